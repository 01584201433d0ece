// Whether a device computes what the CPU computes, asked once before it serves a model.
#pragma once
#include "model/model.h"
#include "weights/checkpoint.h"

namespace vllm {

/// Computes one row, few and many, with every operation that the model uses, in its sizes, with rows of its
/// own weights in each format and with some of its experts, on `device`, where the model is packed, and on
/// `cpu`. Throws Error(ModelLoad) naming the operation and how far apart they are.
void self_test(const Checkpoint& checkpoint, const Model& model, KvFormat kv_format, int block_size,
               Device& device, Device& cpu);

}  // namespace vllm

// Whether a device computes what the CPU computes, asked once before it serves a model.
#pragma once
#include "model/model_spec.h"
#include "weights/checkpoint.h"

namespace vllm {

/// Computes few rows, and many, with every operation that the model uses, in its sizes and with rows of its
/// own weights in each format, on `device` and on `cpu`. Throws Error(ModelLoad) naming the operation and how
/// far apart they are.
void self_test(const Checkpoint& checkpoint, const ModelSpec& spec, KvFormat kv_format, int block_size,
               Device& device, Device& cpu);

}  // namespace vllm

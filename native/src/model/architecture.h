// The architectures: how each reads its configuration into a ModelSpec.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "model/model_spec.h"
#include "weights/checkpoint.h"
#include "weights/fields.h"

namespace vllm {

struct Architecture {
  std::vector<std::string_view> hf_names;  // of config.json's `architectures`
  std::string_view gguf_name;              // of general.architecture; empty: no GGUF form
  void (*read_hf)(const Fields& config, const Checkpoint& checkpoint, ModelSpec& spec);
  /// `arch` reads keys below "<general.architecture>.".
  void (*read_gguf)(const Fields& arch, const Checkpoint& checkpoint, ModelSpec& spec);
};

extern const Architecture llama_architecture;
extern const Architecture qwen2_architecture;
extern const Architecture qwen2_moe_architecture;
extern const Architecture qwen3_architecture;
extern const Architecture qwen3_moe_architecture;
extern const Architecture phi3_architecture;
extern const Architecture granite_architecture;
extern const Architecture minicpm_architecture;
extern const Architecture olmo2_architecture;
extern const Architecture glm4_architecture;
extern const Architecture gemma2_architecture;
extern const Architecture qwen3_next_architecture;
extern const Architecture qwen3_5_architecture;
extern const Architecture qwen3_5_moe_architecture;
extern const Architecture gemma3_architecture;

/// The spec of an opened checkpoint, for sequences of up to `wanted_length` tokens (0: the model's own).
/// Throws Error(ModelLoad) naming the architecture and the known ones, or the key.
ModelSpec read_model_spec(const Checkpoint& checkpoint, int wanted_length);

}  // namespace vllm

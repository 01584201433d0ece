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

/// One line an architecture; its file defines <name>_architecture.
#define VLLM_ARCHITECTURES(EACH) \
  EACH(llama)                    \
  EACH(qwen2)                    \
  EACH(qwen2_moe)                \
  EACH(qwen3)                    \
  EACH(qwen3_moe)                \
  EACH(qwen3_next)               \
  EACH(phi3)                     \
  EACH(granite)                  \
  EACH(minicpm)                  \
  EACH(olmo2)                    \
  EACH(glm4)                     \
  EACH(gemma2)                   \
  EACH(qwen3_5)                  \
  EACH(qwen3_5_moe)              \
  EACH(gemma3)

#define VLLM_DECLARE(name) extern const Architecture name##_architecture;
VLLM_ARCHITECTURES(VLLM_DECLARE)
#undef VLLM_DECLARE

/// The spec of an opened checkpoint, for sequences of up to `wanted_length` tokens (0: the model's own).
/// Throws Error(ModelLoad) naming the architecture and the known ones, or the key.
ModelSpec read_model_spec(const Checkpoint& checkpoint, int wanted_length);

}  // namespace vllm

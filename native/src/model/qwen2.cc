// Qwen2 and Qwen2.5: the Llama block with biases on q, k and v.
#include "model/common_config.h"

namespace vllm {
namespace {

void read_hf(const Fields& config, const Checkpoint&, ModelSpec& spec) {
  read_hf_common(config, false, spec);
  spec.needs_qkv_bias = true;
  spec.ropes = {read_hf_rope(config, spec.head_dim)};
  if (config.boolean_or("use_sliding_window", false))
    config.fail("use_sliding_window", "false: Qwen2 with sliding windows is not served");
}

void read_gguf(const Fields& arch, const Checkpoint& checkpoint, ModelSpec& spec) {
  read_gguf_common(arch, checkpoint, spec);
  spec.needs_qkv_bias = true;
  spec.ropes = {read_gguf_rope(arch, checkpoint, spec.head_dim)};
}

}  // namespace

const Architecture qwen2_architecture{{"Qwen2ForCausalLM"}, "qwen2", read_hf, read_gguf};

}  // namespace vllm

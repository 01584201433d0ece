// Qwen2 and Qwen2.5: the Llama block with biases on q, k and v.
#include "model/common_config.h"

namespace vllm {
namespace {

void read_hf(const Fields& config, const Checkpoint&, ModelSpec& spec) {
  read_hf_common(config, false, spec);
  spec.needs_qkv_bias = true;
  spec.needs_o_bias = false;
  spec.ropes = {read_hf_rope(config, spec)};
  read_hf_upper_windows(config, spec);
}

void read_gguf(const Fields& arch, const Checkpoint& checkpoint, ModelSpec& spec) {
  read_gguf_common(arch, checkpoint, spec);
  spec.needs_qkv_bias = true;
  spec.ropes = {read_gguf_rope(arch, checkpoint, spec)};
}

}  // namespace

const Architecture qwen2_architecture{{"Qwen2ForCausalLM"}, "qwen2", read_hf, read_gguf};

}  // namespace vllm

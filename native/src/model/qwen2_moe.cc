// Qwen1.5-MoE and Qwen2-MoE: Qwen2 with experts, one of them shared, in place of the MLP of most layers.
#include "model/common_config.h"
#include "model/experts_config.h"

namespace vllm {
namespace {

void read_hf(const Fields& config, const Checkpoint& checkpoint, ModelSpec& spec) {
  qwen2_architecture.read_hf(config, checkpoint, spec);
  spec.needs_qkv_bias = config.boolean_or("qkv_bias", true);
  read_hf_experts(config, "model.", false, true, spec);
}

void read_gguf(const Fields& arch, const Checkpoint& checkpoint, ModelSpec& spec) {
  qwen2_architecture.read_gguf(arch, checkpoint, spec);
  read_gguf_experts(arch, false, true, spec);
}

}  // namespace

const Architecture qwen2_moe_architecture{{"Qwen2MoeForCausalLM"}, "qwen2moe", read_hf, read_gguf};

}  // namespace vllm

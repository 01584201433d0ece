// Qwen3-MoE: Qwen3 with experts in place of the MLP of most layers.
#include "model/common_config.h"
#include "model/experts_config.h"

namespace vllm {
namespace {

void read_hf(const Fields& config, const Checkpoint& checkpoint, ModelSpec& spec) {
  qwen3_architecture.read_hf(config, checkpoint, spec);
  read_hf_experts(config, "model.", false, false, spec);
}

void read_gguf(const Fields& arch, const Checkpoint& checkpoint, ModelSpec& spec) {
  qwen3_architecture.read_gguf(arch, checkpoint, spec);
  read_gguf_experts(arch, true, false, spec);
}

}  // namespace

const Architecture qwen3_moe_architecture{{"Qwen3MoeForCausalLM"}, "qwen3moe", read_hf, read_gguf};

}  // namespace vllm

// Qwen3-Next: the hybrid layers of Qwen3.5 with fused projections, and experts in place of the MLP.
#include "model/experts_config.h"
#include "model/hybrid_config.h"

namespace vllm {
namespace {

void read_hf(const Fields& config, const Checkpoint& checkpoint, ModelSpec& spec) {
  const std::string prefix = read_hf_hybrid(config, checkpoint, spec);
  spec.names.delta_net.qkvz = prefix + "layers.{}.linear_attn.in_proj_qkvz";
  spec.names.delta_net.ba = prefix + "layers.{}.linear_attn.in_proj_ba";
  read_hf_experts(config, prefix, true, true, spec);
}

void read_gguf(const Fields& arch, const Checkpoint& checkpoint, ModelSpec& spec) {
  read_gguf_hybrid(arch, checkpoint, spec);
  // Converters first wrote the fused matrix as it is, then its two parts.
  if (checkpoint.find("blk.0.ssm_in.weight") != nullptr) spec.names.delta_net.qkvz = "blk.{}.ssm_in";
  spec.names.delta_net.ba = "blk.{}.ssm_ba";
  read_gguf_experts(arch, true, true, spec);
}

}  // namespace

const Architecture qwen3_next_architecture{{"Qwen3NextForCausalLM"}, "qwen3next", read_hf, read_gguf};

}  // namespace vllm

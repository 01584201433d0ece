// Qwen3.5 and 3.6: three gated DeltaNet layers to one of gated attention, with dense MLPs or experts.
#include "model/experts_config.h"
#include "model/hybrid_config.h"

namespace vllm {
namespace {

/// Returns the prefix of all tensors.
std::string read_hf_backbone(const Fields& config, const Checkpoint& checkpoint, ModelSpec& spec) {
  const std::string prefix = read_hf_hybrid(config, checkpoint, spec),
                    layer = prefix + "layers.{}.linear_attn.";
  spec.names.delta_net.qkv = layer + "in_proj_qkv";
  spec.names.delta_net.z = layer + "in_proj_z";
  spec.names.delta_net.b = layer + "in_proj_b";
  spec.names.delta_net.a = layer + "in_proj_a";
  return prefix;
}

void read_hf(const Fields& config, const Checkpoint& checkpoint, ModelSpec& spec) {
  read_hf_backbone(config, checkpoint, spec);
}

void read_hf_moe(const Fields& config, const Checkpoint& checkpoint, ModelSpec& spec) {
  read_hf_experts(config, read_hf_backbone(config, checkpoint, spec), true, true, spec);
}

void read_gguf(const Fields& arch, const Checkpoint& checkpoint, ModelSpec& spec) {
  read_gguf_hybrid(arch, checkpoint, spec);
  spec.delta_net.tiled = true;
  spec.names.delta_net.b = "blk.{}.ssm_beta";
  spec.names.delta_net.a = "blk.{}.ssm_alpha";
}

void read_gguf_moe(const Fields& arch, const Checkpoint& checkpoint, ModelSpec& spec) {
  read_gguf(arch, checkpoint, spec);
  read_gguf_experts(arch, true, true, spec);
}

}  // namespace

const Architecture qwen3_5_architecture{
    {"Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM"}, "qwen35", read_hf, read_gguf};
const Architecture qwen3_5_moe_architecture{
    {"Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM"}, "qwen35moe", read_hf_moe, read_gguf_moe};

}  // namespace vllm

// GLM-4-0414 dense: norms before and after both sublayers, half of each head turns in adjacent pairs, gate
// and up in one matrix.
#include "model/common_config.h"

namespace vllm {
namespace {

void read_hf(const Fields& config, const Checkpoint&, ModelSpec& spec) {
  read_hf_common(config, false, spec);
  spec.needs_qkv_bias = config.boolean_or("attention_bias", true);
  spec.needs_o_bias = false;
  spec.names.post_attn_norm = "model.layers.{}.post_self_attn_layernorm";
  spec.names.gate_up = "model.layers.{}.mlp.gate_up_proj";
  spec.names.post_mlp_norm = "model.layers.{}.post_mlp_layernorm";
  spec.ropes = {read_hf_rope(config, spec, nullptr, 0.5)};
  spec.ropes[0].interleaved = true;
}

void read_gguf(const Fields& arch, const Checkpoint& checkpoint, ModelSpec& spec) {
  read_gguf_common(arch, checkpoint, spec);
  spec.names.post_attn_norm = "blk.{}.post_attention_norm";
  spec.names.gate_up = "blk.{}.ffn_up";
  spec.names.post_mlp_norm = "blk.{}.post_ffw_norm";
  spec.ropes = {read_gguf_rope(arch, checkpoint, spec)};
  spec.ropes[0].interleaved = true;
}

}  // namespace

const Architecture glm4_architecture{{"Glm4ForCausalLM"}, "glm4", read_hf, read_gguf};

}  // namespace vllm

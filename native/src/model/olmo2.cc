// OLMo-2: norms after the sublayers only; q and k are normed over all heads together.
#include "model/common_config.h"

namespace vllm {
namespace {

void read_hf(const Fields& config, const Checkpoint&, ModelSpec& spec) {
  read_hf_common(config, false, spec);
  spec.qk_norm_whole = true;
  spec.names.attn_norm = spec.names.mlp_norm = "";
  spec.names.q_norm = "model.layers.{}.self_attn.q_norm";
  spec.names.k_norm = "model.layers.{}.self_attn.k_norm";
  spec.names.post_attn_norm = "model.layers.{}.post_attention_layernorm";
  spec.names.post_mlp_norm = "model.layers.{}.post_feedforward_layernorm";
  spec.ropes = {read_hf_rope(config, spec)};
}

void read_gguf(const Fields& arch, const Checkpoint& checkpoint, ModelSpec& spec) {
  read_gguf_common(arch, checkpoint, spec);
  if (arch.integer_or("attention.sliding_window", 0, 0, kMaxWindow) > 0)
    arch.fail("attention.sliding_window", "0: OLMo-3 is not served");
  spec.qk_norm_whole = true;
  spec.names.attn_norm = spec.names.mlp_norm = "";
  spec.names.q_norm = "blk.{}.attn_q_norm";
  spec.names.k_norm = "blk.{}.attn_k_norm";
  spec.names.post_attn_norm = "blk.{}.post_attention_norm";
  spec.names.post_mlp_norm = "blk.{}.post_ffw_norm";
  spec.ropes = {read_gguf_rope(arch, checkpoint, spec)};
}

}  // namespace

const Architecture olmo2_architecture{{"Olmo2ForCausalLM"}, "olmo2", read_hf, read_gguf};

}  // namespace vllm

// Qwen3 dense: the Llama block with per-head norms of q and k.
#include "model/common_config.h"

namespace vllm {
namespace {

void read_hf(const Fields& config, const Checkpoint&, ModelSpec& spec) {
  read_hf_common(config, false, spec);
  spec.names.q_norm = "model.layers.{}.self_attn.q_norm";
  spec.names.k_norm = "model.layers.{}.self_attn.k_norm";
  spec.ropes = {read_hf_rope(config, spec)};
  read_hf_upper_windows(config, spec);
}

void read_gguf(const Fields& arch, const Checkpoint& checkpoint, ModelSpec& spec) {
  read_gguf_common(arch, checkpoint, spec);
  spec.names.q_norm = "blk.{}.attn_q_norm";
  spec.names.k_norm = "blk.{}.attn_k_norm";
  spec.ropes = {read_gguf_rope(arch, checkpoint, spec)};
}

}  // namespace

const Architecture qwen3_architecture{{"Qwen3ForCausalLM"}, "qwen3", read_hf, read_gguf};

}  // namespace vllm

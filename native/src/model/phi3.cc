// Phi-3 and Phi-4: the Llama block with q, k, v in one matrix and gate, up in another.
#include "model/common_config.h"

namespace vllm {
namespace {

void read_hf(const Fields& config, const Checkpoint&, ModelSpec& spec) {
  read_hf_common(config, false, spec);
  spec.names.qkv = "model.layers.{}.self_attn.qkv_proj";
  spec.names.gate_up = "model.layers.{}.mlp.gate_up_proj";
  spec.ropes = {read_hf_rope(config, spec)};
  set_windows(spec, config.integer_or("sliding_window", 0, 0, kMaxWindow));
}

void read_gguf(const Fields& arch, const Checkpoint& checkpoint, ModelSpec& spec) {
  read_gguf_common(arch, checkpoint, spec);
  spec.names.qkv = "blk.{}.attn_qkv";
  spec.names.gate_up = "blk.{}.ffn_up";
  spec.ropes = {read_gguf_rope(arch, checkpoint, spec)};
  set_windows(spec, arch.integer_or("attention.sliding_window", 0, 0, kMaxWindow));
}

}  // namespace

const Architecture phi3_architecture{{"Phi3ForCausalLM"}, "phi3", read_hf, read_gguf};

}  // namespace vllm

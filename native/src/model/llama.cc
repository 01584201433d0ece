// Llama 3.x, SmolLM2 and Mistral: pre-norm attention and SwiGLU. Mixtral: the same over experts.
#include "model/common_config.h"
#include "model/experts_config.h"

namespace vllm {
namespace {

void read_hf(const Fields& config, const Checkpoint&, ModelSpec& spec) {
  read_hf_common(config, false, spec);
  spec.ropes = {read_hf_rope(config, spec)};
  set_windows(spec, config.integer_or("sliding_window", 0, 0, kMaxWindow));
  if (spec.architecture == "MixtralForCausalLM") read_mixtral_experts(config, spec);
}

void read_gguf(const Fields& arch, const Checkpoint& checkpoint, ModelSpec& spec) {
  read_gguf_common(arch, checkpoint, spec);
  if (arch.integer_or("expert_count", 0, 0, 1 << 20) > 0) read_gguf_experts(arch, true, false, spec);
  RopeSpec rope = read_gguf_rope(arch, checkpoint, spec);
  rope.interleaved = true;  // the file's q and k rows are permuted for it
  spec.ropes = {rope};
  set_windows(spec, arch.integer_or("attention.sliding_window", 0, 0, kMaxWindow));
}

}  // namespace

const Architecture llama_architecture{
    {"LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM"}, "llama", read_hf, read_gguf};

}  // namespace vllm

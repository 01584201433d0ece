// Granite 3: the Llama block with multipliers of embeddings, scores, sublayer outputs and logits.
#include "model/common_config.h"

namespace vllm {
namespace {

void read_hf(const Fields& config, const Checkpoint&, ModelSpec& spec) {
  read_hf_common(config, false, spec);
  const auto scale = [&](const char* key) {
    return static_cast<float>(config.number_or(key, 1, kMinScale, kMaxScale));
  };
  spec.embedding_scale = scale("embedding_multiplier");
  spec.attention_scale = scale("attention_multiplier");
  spec.residual_scale = scale("residual_multiplier");
  spec.logit_scale = 1 / scale("logits_scaling");
  spec.ropes = {read_hf_rope(config, spec)};
}

void read_gguf(const Fields& arch, const Checkpoint& checkpoint, ModelSpec& spec) {
  read_gguf_common(arch, checkpoint, spec);
  const auto scale = [&](const char* key, float fallback) {
    return static_cast<float>(arch.number_or(key, fallback, kMinScale, kMaxScale));
  };
  spec.embedding_scale = scale("embedding_scale", 1);
  spec.attention_scale = scale("attention.scale", spec.attention_scale);
  spec.residual_scale = scale("residual_scale", 1);
  spec.logit_scale = 1 / scale("logit_scale", 1);
  spec.ropes = {read_gguf_rope(arch, checkpoint, spec)};
  spec.ropes[0].interleaved = true;  // the file's q and k rows are permuted for it
}

}  // namespace

const Architecture granite_architecture{{"GraniteForCausalLM"}, "granite", read_hf, read_gguf};

}  // namespace vllm

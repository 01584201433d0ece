// MiniCPM 1, 2 and 4 (dense attention): the Llama block with scaled embeddings, sublayer outputs and logits.
#include <cmath>

#include "model/common_config.h"

namespace vllm {
namespace {

void read_hf(const Fields& config, const Checkpoint&, ModelSpec& spec) {
  read_hf_common(config, true, spec);
  if (config.integer_or("num_experts", 0, 0, 1 << 20) > 0)
    config.fail("num_experts", "0: mixtures of experts are not served for this architecture");
  const auto scale = [&](const char* key) { return config.number(key, kMinScale, kMaxScale); };
  spec.embedding_scale = static_cast<float>(scale("scale_emb"));
  spec.residual_scale =
      static_cast<float>(scale("scale_depth") / std::sqrt(static_cast<double>(spec.layers.size())));
  spec.logit_scale = static_cast<float>(scale("dim_model_base") / spec.hidden);
  spec.ropes = {read_hf_rope(config, spec)};
}

void read_gguf(const Fields& arch, const Checkpoint& checkpoint, ModelSpec& spec) {
  read_gguf_common(arch, checkpoint, spec);
  const auto scale = [&](const char* key) {
    return static_cast<float>(arch.number(key, kMinScale, kMaxScale));
  };
  spec.embedding_scale = scale("embedding_scale");
  spec.residual_scale = scale("residual_scale");
  spec.logit_scale = 1 / scale("logit_scale");
  spec.ropes = {read_gguf_rope(arch, checkpoint, spec)};
  spec.ropes[0].interleaved = true;  // the file's q and k rows are permuted for it
}

}  // namespace

const Architecture minicpm_architecture{{"MiniCPMForCausalLM"}, "minicpm", read_hf, read_gguf};

}  // namespace vllm

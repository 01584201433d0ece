// Gemma 2 and Gemma 3 text: norms before and after both sublayers, sliding layers between full ones, scaled
// embeddings, GELU. Gemma 2 caps scores and logits; Gemma 3 norms q and k, and its sliding layers have a rope
// of their own.
#include <cmath>

#include "base/error.h"
#include "model/common_config.h"

namespace vllm {
namespace {

// Every second, every sixth layer attends to everything.
constexpr int kPattern2 = 2, kPattern3 = 6;
enum Rope { kGlobal = 0, kLocal = 1 };

void set_layers(ModelSpec& spec, const std::vector<std::string>& types, int pattern, int window) {
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const bool full =
        types.empty() ? (i + 1) % static_cast<size_t>(pattern) == 0 : types[i] == "full_attention";
    spec.layers[i].window = full ? 0 : window;
    spec.layers[i].rope = full ? kGlobal : kLocal;
  }
}

/// What both have in common: all but the ropes, and names of the norms of q and k.
void read_hf_gemma(const Fields& config, const Checkpoint& checkpoint, int pattern, ModelSpec& spec) {
  read_hf_common(config, true, spec);
  const std::string activation = config.string_or("hidden_activation", "gelu_pytorch_tanh");
  if (activation != "gelu_pytorch_tanh") config.fail("hidden_activation", "gelu_pytorch_tanh");
  spec.activation = Activation::GeluTanh;
  spec.attention_scale =
      static_cast<float>(1.0 / std::sqrt(config.number_or("query_pre_attn_scalar", 256, 1e-6, 1e9)));
  spec.norm_adds_one = true;
  // The reference multiplies by sqrt(hidden) in the dtype of the checkpoint.
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.hidden));
  const std::string dtype = config.string_or(config.has("dtype") ? "dtype" : "torch_dtype", "float32");
  if (dtype == "bfloat16") spec.embedding_scale = bf16_to_f32(f32_to_bf16(spec.embedding_scale));
  if (dtype == "float16") spec.embedding_scale = f16_to_f32(f32_to_f16(spec.embedding_scale));
  set_layers(spec, read_hf_layer_types(config, spec), pattern,
             static_cast<int>(config.integer("sliding_window", 1, kMaxWindow)));

  // A text-only model, or the text part of the multimodal one under one of its two spellings.
  std::string prefix = "model.";
  for (const char* nested : {"language_model.model.", "model.language_model."})
    if (checkpoint.find(std::string(nested) + "embed_tokens.weight") != nullptr) prefix = nested;
  spec.names = hf_weight_names(prefix);
  const std::string layer = prefix + "layers.{}.";
  spec.names.post_attn_norm = layer + "post_attention_layernorm";
  spec.names.mlp_norm = layer + "pre_feedforward_layernorm";
  spec.names.post_mlp_norm = layer + "post_feedforward_layernorm";
  spec.ignored_prefixes = {"vision_tower.", "multi_modal_projector.", "model.vision_tower.",
                           "model.multi_modal_projector."};
}

/// The same. The model with `deep` layers alone scales scores by the width of a head as hidden / heads.
void read_gguf_gemma(const Fields& arch, const Checkpoint& checkpoint, int pattern, size_t deep,
                     ModelSpec& spec) {
  read_gguf_common(arch, checkpoint, spec);
  spec.activation = Activation::GeluTanh;
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.hidden));
  if (spec.layers.size() == deep)
    spec.attention_scale = 1.0f / std::sqrt(static_cast<float>(spec.hidden) / static_cast<float>(spec.heads));
  set_layers(spec, {}, pattern, static_cast<int>(arch.integer("attention.sliding_window", 1, kMaxWindow)));
  spec.names.post_attn_norm = "blk.{}.post_attention_norm";
  spec.names.post_mlp_norm = "blk.{}.post_ffw_norm";
}

void read_hf_gemma2(const Fields& config, const Checkpoint& checkpoint, ModelSpec& spec) {
  read_hf_gemma(config, checkpoint, kPattern2, spec);
  // An absent cap is the published one, null is none.
  const auto cap = [&](const char* key, double published) {
    const double absent = checkpoint.config().contains(key) ? 0 : published;
    return static_cast<float>(config.number_or(key, absent, kMinScale, kMaxScale));
  };
  spec.attention_softcap = cap("attn_logit_softcapping", 50);
  spec.logit_softcap = cap("final_logit_softcapping", 30);
  const RopeSpec rope = read_hf_rope(config, spec);
  spec.ropes = {rope, rope};
}

void read_gguf_gemma2(const Fields& arch, const Checkpoint& checkpoint, ModelSpec& spec) {
  read_gguf_gemma(arch, checkpoint, kPattern2, 46, spec);
  spec.attention_softcap =
      static_cast<float>(arch.number_or("attn_logit_softcapping", 50, kMinScale, kMaxScale));
  spec.logit_softcap =
      static_cast<float>(arch.number_or("final_logit_softcapping", 30, kMinScale, kMaxScale));
  const RopeSpec rope = read_gguf_rope(arch, checkpoint, spec);
  spec.ropes = {rope, rope};
}

void read_hf_gemma3(const Fields& config, const Checkpoint& checkpoint, ModelSpec& spec) {
  read_hf_gemma(config, checkpoint,
                static_cast<int>(config.integer_or("sliding_window_pattern", kPattern3, 1, kMaxLayers)),
                spec);
  if (config.has("attn_logit_softcapping")) config.fail("attn_logit_softcapping", "null");
  spec.logit_softcap = static_cast<float>(config.number_or("final_logit_softcapping", 0, 0, kMaxScale));
  const std::string self_attn = spec.names.q.substr(0, spec.names.q.rfind('.') + 1);
  spec.names.q_norm = self_attn + "q_norm";
  spec.names.k_norm = self_attn + "k_norm";
  RopeSpec local;
  const auto parameters = config.object("rope_parameters");
  if (parameters && parameters->has("sliding_attention")) {
    local = read_hf_rope(config, spec, "sliding_attention");
  } else {
    local.inv_freq =
        inverse_frequencies(config.number_or("rope_local_base_freq", 10000, 1e-3, 1e15), spec.head_dim);
  }
  spec.ropes = {read_hf_rope(config, spec, "full_attention"), local};
}

void read_gguf_gemma3(const Fields& arch, const Checkpoint& checkpoint, ModelSpec& spec) {
  read_gguf_gemma(arch, checkpoint, kPattern3, 62, spec);
  spec.logit_softcap = static_cast<float>(arch.number_or("final_logit_softcapping", 0, 0, kMaxScale));
  spec.names.q_norm = "blk.{}.attn_q_norm";
  spec.names.k_norm = "blk.{}.attn_k_norm";
  RopeSpec local;
  local.inv_freq =
      inverse_frequencies(arch.number_or("rope.freq_base_swa", 10000, 1e-3, 1e15), spec.head_dim);
  spec.ropes = {read_gguf_rope(arch, checkpoint, spec), local};
}

}  // namespace

const Architecture gemma2_architecture{{"Gemma2ForCausalLM"}, "gemma2", read_hf_gemma2, read_gguf_gemma2};

const Architecture gemma3_architecture{
    {"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"}, "gemma3", read_hf_gemma3, read_gguf_gemma3};

}  // namespace vllm

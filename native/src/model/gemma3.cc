// Gemma 3 text: norms before and after both sublayers, five sliding layers to one full, scaled embeddings,
// GELU.
#include <cmath>

#include "base/error.h"
#include "model/common_config.h"

namespace vllm {
namespace {

constexpr int kPattern = 6;  // every sixth layer attends to everything
enum Rope { kGlobal = 0, kLocal = 1 };

void set_layers(ModelSpec& spec, const std::vector<std::string>& types, int pattern, int window) {
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const bool full =
        types.empty() ? (i + 1) % static_cast<size_t>(pattern) == 0 : types[i] == "full_attention";
    spec.layers[i].window = full ? 0 : window;
    spec.layers[i].rope = full ? kGlobal : kLocal;
  }
}

void read_hf(const Fields& config, const Checkpoint& checkpoint, ModelSpec& spec) {
  read_hf_common(config, true, spec);
  const std::string activation = config.string_or("hidden_activation", "gelu_pytorch_tanh");
  if (activation != "gelu_pytorch_tanh") config.fail("hidden_activation", "gelu_pytorch_tanh");
  spec.activation = Activation::GeluTanh;
  if (config.has("attn_logit_softcapping")) config.fail("attn_logit_softcapping", "null");
  spec.logit_softcap = static_cast<float>(config.number_or("final_logit_softcapping", 0, 0, 1e6));
  spec.attention_scale =
      static_cast<float>(1.0 / std::sqrt(config.number_or("query_pre_attn_scalar", 256, 1e-6, 1e9)));
  spec.norm_adds_one = true;
  // The reference multiplies by sqrt(hidden) in the dtype of the checkpoint.
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.hidden));
  const std::string dtype = config.string_or(config.has("dtype") ? "dtype" : "torch_dtype", "float32");
  if (dtype == "bfloat16") spec.embedding_scale = bf16_to_f32(f32_to_bf16(spec.embedding_scale));
  if (dtype == "float16") spec.embedding_scale = f16_to_f32(f32_to_f16(spec.embedding_scale));

  const auto types = config.strings("layer_types");
  if (!types.empty() && types.size() != spec.layers.size())
    config.fail("layer_types", format("one entry for each of the %zu layers", spec.layers.size()));
  for (const std::string& type : types)
    if (type != "full_attention" && type != "sliding_attention")
      config.fail("layer_types", "only full_attention and sliding_attention");
  set_layers(spec, types,
             static_cast<int>(config.integer_or("sliding_window_pattern", kPattern, 1, kMaxLayers)),
             static_cast<int>(config.integer("sliding_window", 1, 1 << 30)));
  RopeSpec local;
  const auto parameters = config.object("rope_parameters");
  if (parameters && parameters->has("sliding_attention")) {
    local = read_hf_rope(config, spec.head_dim, "sliding_attention");
  } else {
    local.inv_freq =
        inverse_frequencies(config.number_or("rope_local_base_freq", 10000, 1e-3, 1e15), spec.head_dim);
  }
  spec.ropes = {read_hf_rope(config, spec.head_dim, "full_attention"), local};

  // A text-only model, or the text part of the multimodal one under one of its two spellings.
  std::string prefix = "model.";
  for (const char* nested : {"language_model.model.", "model.language_model."})
    if (checkpoint.find(std::string(nested) + "embed_tokens.weight") != nullptr) prefix = nested;
  spec.names = hf_weight_names(prefix);
  const std::string layer = prefix + "layers.{}.";
  spec.names.q_norm = layer + "self_attn.q_norm";
  spec.names.k_norm = layer + "self_attn.k_norm";
  spec.names.post_attn_norm = layer + "post_attention_layernorm";
  spec.names.mlp_norm = layer + "pre_feedforward_layernorm";
  spec.names.post_mlp_norm = layer + "post_feedforward_layernorm";
  spec.ignored_prefixes = {"vision_tower.", "multi_modal_projector.", "model.vision_tower.",
                           "model.multi_modal_projector."};
}

void read_gguf(const Fields& arch, const Checkpoint& checkpoint, ModelSpec& spec) {
  read_gguf_common(arch, checkpoint, spec);
  spec.activation = Activation::GeluTanh;
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.hidden));
  spec.logit_softcap = static_cast<float>(arch.number_or("final_logit_softcapping", 0, 0, 1e6));
  // The 27B model alone scales by the width of a head as hidden / heads; it is known by its depth.
  if (spec.layers.size() == 62)
    spec.attention_scale = 1.0f / std::sqrt(static_cast<float>(spec.hidden) / static_cast<float>(spec.heads));
  set_layers(spec, {}, kPattern, static_cast<int>(arch.integer("attention.sliding_window", 1, 1 << 30)));
  RopeSpec local;
  local.inv_freq =
      inverse_frequencies(arch.number_or("rope.freq_base_swa", 10000, 1e-3, 1e15), spec.head_dim);
  spec.ropes = {read_gguf_rope(arch, checkpoint, spec.head_dim), local};
  spec.names.q_norm = "blk.{}.attn_q_norm";
  spec.names.k_norm = "blk.{}.attn_k_norm";
  spec.names.post_attn_norm = "blk.{}.post_attention_norm";
  spec.names.post_mlp_norm = "blk.{}.post_ffw_norm";
}

}  // namespace

const Architecture gemma3_architecture{
    {"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"}, "gemma3", read_hf, read_gguf};

}  // namespace vllm

// What the readers of configurations refuse, one sentence each.
#include <doctest/doctest.h>

#include "edited_checkpoint.h"
#include "tiny_models.h"

using namespace vllm;

TEST_CASE("FILE-09 numbers that an architecture cannot be computed with are refused by name") {
  struct Bad {
    const char* file;
    const char* key;
    Json value;
    std::string words;
  };
  const Bad bad[] = {
      {"granite", "embedding_multiplier", 0, "embedding_multiplier is 0"},
      {"granite", "residual_multiplier", 0, "residual_multiplier is 0"},
      {"granite", "residual_multiplier", "0.22", "residual_multiplier is '0.22'"},
      {"granite", "logits_scaling", 0, "logits_scaling is 0"},
      {"granite", "attention_multiplier", -1, "attention_multiplier is -1"},
      {"granite", "attention_bias", true, "self_attn.q_proj.bias"},
      {"granite", "mlp_bias", true, "mlp.gate_proj.bias"},
      {"granite/granite.gguf", "granite.residual_scale", 0, "granite.residual_scale is 0"},
      {"granite/granite.gguf", "granite.logit_scale", 0, "granite.logit_scale is 0"},
      {"minicpm", "scale_emb", nullptr, "scale_emb is missing"},
      {"minicpm", "scale_depth", nullptr, "scale_depth is missing"},
      {"minicpm", "scale_depth", 0, "scale_depth is 0"},
      {"minicpm", "dim_model_base", nullptr, "dim_model_base is missing"},
      {"minicpm", "num_experts", 8, "num_experts is 8"},
      {"minicpm/minicpm.gguf", "minicpm.embedding_scale", nullptr, "minicpm.embedding_scale is missing"},
      {"minicpm/minicpm.gguf", "minicpm.residual_scale", nullptr, "minicpm.residual_scale is missing"},
      {"minicpm/minicpm.gguf", "minicpm.logit_scale", nullptr, "minicpm.logit_scale is missing"},
      {"gemma2", "attn_logit_softcapping", 0, "attn_logit_softcapping is 0"},
      {"gemma2", "final_logit_softcapping", -30, "final_logit_softcapping is -30"},
      {"gemma2", "sliding_window", nullptr, "sliding_window is missing"},
      {"gemma2", "layer_types", {"full_attention"}, "needed is one entry for each of the 3 layers"},
      {"gemma2",
       "layer_types",
       {"full_attention", "chunked_attention", "full_attention"},
       "only full_attention and sliding_attention"},
      {"gemma2/gemma2.gguf", "gemma2.attention.sliding_window", nullptr, "sliding_window is missing"},
      {"olmo2/olmo2.gguf", "olmo2.attention.sliding_window", 4096, "OLMo-3 is not served"},
      {"olmo2", "num_key_value_heads", 4, "k_norm.weight is 1 x 32, needed is 1 x 64"},
      {"glm4", "partial_rotary_factor", 1.5, "partial_rotary_factor is 1.5"},
      {"glm4/glm4.gguf", "glm4.rope.dimension_count", 18, "rope.dimension_count is 18"},
      {"phi3", "num_key_value_heads", 4, "qkv_proj.weight is 128 x 64, needed is 192 x 64"},
      {"phi3", "intermediate_size", 36, "gate_up_proj.weight is 144 x 64, needed is 72 x 64"},
      {"phi3/phi3.gguf", "phi3.feed_forward_length", 144, "ffn_up.weight is 144 x 64, needed is 288 x 64"},
      {"llama-dynamic", "attention_bias", "yes", "attention_bias is 'yes', needed is true or false"},
      {"qwen2-window", "max_window_layers", nullptr, "max_window_layers is missing"},
      {"qwen2-window", "sliding_window", -8, "sliding_window is -8"},
  };
  for (const Bad& b : bad) {
    CAPTURE(b.words);
    const auto checkpoint = Checkpoint::open(tiny::folder(b.file));
    const std::string message =
        refusal(*checkpoint, [&](EditedCheckpoint& e) { e.config_[b.key] = b.value; });
    CAPTURE(message);
    CHECK(message.find(b.words) != std::string::npos);
  }
}

TEST_CASE("FILE-07 a part that an architecture needs is named when it is missing") {
  const std::pair<const char*, const char*> parts[] = {
      {"phi3", "model.layers.1.self_attn.qkv_proj.weight"},
      {"phi3/phi3.gguf", "blk.0.attn_qkv.weight"},
      {"olmo2", "model.layers.0.post_feedforward_layernorm.weight"},
      {"olmo2/olmo2.gguf", "blk.1.attn_k_norm.weight"},
      {"glm4", "model.layers.0.self_attn.k_proj.bias"},
      {"glm4", "model.layers.1.post_self_attn_layernorm.weight"},
      {"gemma2", "model.layers.2.pre_feedforward_layernorm.weight"},
      {"llama-dynamic", "model.layers.0.self_attn.o_proj.bias"},
      {"llama-dynamic", "model.layers.1.mlp.down_proj.bias"},
  };
  for (const auto& [file, tensor] : parts) {
    const auto checkpoint = Checkpoint::open(tiny::folder(file));
    const std::string name = tensor;
    CAPTURE(name);
    REQUIRE(checkpoint->find(name) != nullptr);
    const std::string message = refusal(*checkpoint, [&](EditedCheckpoint& e) { e.weights_.erase(name); });
    CHECK(message.find("are missing: " + name) != std::string::npos);
  }
}

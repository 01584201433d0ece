#include "model/common_config.h"

#include <cmath>

#include "base/error.h"

namespace vllm {
namespace {

void check_heads(const ModelSpec& spec, const Fields& fields, std::string_view kv_key) {
  if (spec.heads % spec.kv_heads != 0)
    fields.fail(kv_key, format("a divisor of the %d attention heads", spec.heads));
  if (spec.head_dim % 2 != 0)
    fail_load("%s: the head size is %d, needed is an even number", fields.source().c_str(), spec.head_dim);
}

}  // namespace

WeightNames hf_weight_names(const std::string& prefix) {
  const std::string layer = prefix + "layers.{}.";
  WeightNames n;
  n.embedding = prefix + "embed_tokens";
  n.output_norm = prefix + "norm";
  n.output = "lm_head";
  n.attn_norm = layer + "input_layernorm";
  n.q = layer + "self_attn.q_proj";
  n.k = layer + "self_attn.k_proj";
  n.v = layer + "self_attn.v_proj";
  n.o = layer + "self_attn.o_proj";
  n.mlp_norm = layer + "post_attention_layernorm";
  n.gate = layer + "mlp.gate_proj";
  n.up = layer + "mlp.up_proj";
  n.down = layer + "mlp.down_proj";
  return n;
}

WeightNames gguf_weight_names() {
  WeightNames n;
  n.embedding = "token_embd";
  n.output_norm = "output_norm";
  n.output = "output";
  n.attn_norm = "blk.{}.attn_norm";
  n.q = "blk.{}.attn_q";
  n.k = "blk.{}.attn_k";
  n.v = "blk.{}.attn_v";
  n.o = "blk.{}.attn_output";
  n.mlp_norm = "blk.{}.ffn_norm";
  n.gate = "blk.{}.ffn_gate";
  n.up = "blk.{}.ffn_up";
  n.down = "blk.{}.ffn_down";
  return n;
}

void read_hf_common(const Fields& config, bool tied_by_default, ModelSpec& spec) {
  spec.hidden = static_cast<int>(config.integer("hidden_size", 1, kMaxSize));
  // Where every layer has experts, the size of a dense MLP may be left out.
  spec.intermediate =
      static_cast<int>(config.has("num_experts") ? config.integer_or("intermediate_size", 0, 1, kMaxSize)
                                                 : config.integer("intermediate_size", 1, kMaxSize));
  spec.vocab = static_cast<int>(config.integer("vocab_size", 1, kMaxSize));
  spec.heads = static_cast<int>(config.integer("num_attention_heads", 1, 65536));
  spec.kv_heads = static_cast<int>(config.integer_or("num_key_value_heads", spec.heads, 1, spec.heads));
  if (!config.has("head_dim") && spec.hidden % spec.heads != 0)
    config.fail("num_attention_heads", format("a divisor of hidden_size (%d)", spec.hidden));
  spec.head_dim = static_cast<int>(config.integer_or("head_dim", spec.hidden / spec.heads, 2, 4096));
  check_heads(spec, config, "num_key_value_heads");
  spec.norm_eps = static_cast<float>(config.number("rms_norm_eps", 0, 1));
  spec.max_position = static_cast<int>(config.integer("max_position_embeddings", 1, 1 << 30));
  spec.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(spec.head_dim)));
  spec.tied_embeddings = config.boolean_or("tie_word_embeddings", tied_by_default);
  spec.needs_qkv_bias = spec.needs_o_bias = config.boolean_or("attention_bias", false);
  spec.needs_mlp_bias = config.boolean_or("mlp_bias", false);
  const std::string activation = config.string_or("hidden_act", "silu");
  if (activation == "silu" || activation == "swish") {
    spec.activation = Activation::Silu;
  } else if (activation == "gelu_pytorch_tanh") {
    spec.activation = Activation::GeluTanh;
  } else {
    config.fail("hidden_act", "silu or gelu_pytorch_tanh");
  }
  spec.layers.resize(static_cast<size_t>(config.integer("num_hidden_layers", 1, kMaxLayers)));
  spec.names = hf_weight_names("model.");
}

std::vector<std::string> read_hf_layer_types(const Fields& config, const ModelSpec& spec) {
  std::vector<std::string> types = config.strings("layer_types");
  if (!types.empty() && types.size() != spec.layers.size())
    config.fail("layer_types", format("one entry for each of the %zu layers", spec.layers.size()));
  for (const std::string& type : types)
    if (type != "full_attention" && type != "sliding_attention")
      config.fail("layer_types", "only full_attention and sliding_attention");
  return types;
}

void set_windows(ModelSpec& spec, int64_t window) {
  for (LayerSpec& layer : spec.layers) layer.window = static_cast<int>(window);
}

void read_hf_upper_windows(const Fields& config, ModelSpec& spec) {
  if (!config.boolean_or("use_sliding_window", false)) return;
  const auto window = static_cast<int>(config.integer_or("sliding_window", 0, 0, kMaxWindow));
  const std::vector<std::string> types = read_hf_layer_types(config, spec);
  const int64_t first = types.empty() ? config.integer("max_window_layers", 0, kMaxLayers) : 0;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const bool sliding = types.empty() ? static_cast<int64_t>(i) >= first : types[i] == "sliding_attention";
    if (sliding) spec.layers[i].window = window;
  }
}

void read_gguf_common(const Fields& arch, const Checkpoint& checkpoint, ModelSpec& spec) {
  spec.hidden = static_cast<int>(arch.integer("embedding_length", 1, kMaxSize));
  spec.intermediate =
      static_cast<int>(arch.has("expert_count") ? arch.integer_or("feed_forward_length", 0, 1, kMaxSize)
                                                : arch.integer("feed_forward_length", 1, kMaxSize));
  spec.heads = static_cast<int>(arch.integer("attention.head_count", 1, 65536));
  const auto kv = arch.integers("attention.head_count_kv", 1, spec.heads);
  for (int64_t n : kv)
    if (n != kv[0]) arch.fail("attention.head_count_kv", "the same number for all layers");
  spec.kv_heads = kv.empty() ? spec.heads : static_cast<int>(kv[0]);
  if (!arch.has("attention.key_length") && spec.hidden % spec.heads != 0)
    arch.fail("attention.head_count", format("a divisor of embedding_length (%d)", spec.hidden));
  spec.head_dim =
      static_cast<int>(arch.integer_or("attention.key_length", spec.hidden / spec.heads, 2, 4096));
  if (arch.integer_or("attention.value_length", spec.head_dim, 1, 4096) != spec.head_dim)
    arch.fail("attention.value_length", format("the key length, %d", spec.head_dim));
  check_heads(spec, arch, "attention.head_count_kv");
  spec.norm_eps = static_cast<float>(arch.number("attention.layer_norm_rms_epsilon", 0, 1));
  spec.max_position = static_cast<int>(arch.integer("context_length", 1, 1 << 30));
  spec.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(spec.head_dim)));
  spec.layers.resize(static_cast<size_t>(arch.integer("block_count", 1, kMaxLayers)));
  spec.names = gguf_weight_names();
  const Weight* embedding = checkpoint.find(spec.names.embedding + ".weight");
  if (embedding == nullptr)
    fail_load("%s: the tensor token_embd.weight is missing", checkpoint.path().c_str());
  spec.vocab = static_cast<int>(embedding->view().rows);
  spec.tied_embeddings = checkpoint.find("output.weight") == nullptr;
}

}  // namespace vllm

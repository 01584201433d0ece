#include "model/common_config.h"

#include <cmath>
#include <numbers>

#include "base/error.h"

namespace vllm {
namespace {

void check_heads(const ModelSpec& spec, const Fields& fields, std::string_view kv_key) {
  if (spec.heads % spec.kv_heads != 0)
    fields.fail(kv_key, format("a divisor of the %d attention heads", spec.heads));
  if (spec.head_dim % 2 != 0)
    fail_load("%s: the head size is %d, needed is an even number", fields.source().c_str(), spec.head_dim);
}

/// llama3 scaling: long wavelengths are slowed by `factor`, short ones kept, those between blended.
void scale_llama3(std::vector<float>& inv_freq, const Fields& rope) {
  const double factor = rope.number("factor", 1, 1e6);
  const double low = rope.number("low_freq_factor", 1e-6, 1e6);
  const double high = rope.number("high_freq_factor", 1e-6, 1e6);
  const double context = rope.number("original_max_position_embeddings", 1, 1e9);
  if (high <= low) rope.fail("high_freq_factor", format("a number above low_freq_factor (%g)", low));
  for (float& f : inv_freq) {
    const double wavelength = 2 * std::numbers::pi / f;
    if (wavelength < context / high) continue;
    if (wavelength > context / low) {
      f = static_cast<float>(f / factor);
    } else {
      const double smooth = (context / wavelength - low) / (high - low);
      f = static_cast<float>((1 - smooth) * f / factor + smooth * f);
    }
  }
}

}  // namespace

std::vector<float> inverse_frequencies(double theta, int dim) {
  std::vector<float> out(static_cast<size_t>(dim / 2));
  for (int i = 0; i < dim / 2; ++i) out[i] = static_cast<float>(std::pow(theta, -2.0 * i / dim));
  return out;
}

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
  spec.intermediate = static_cast<int>(config.integer("intermediate_size", 1, kMaxSize));
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

void read_gguf_common(const Fields& arch, const Checkpoint& checkpoint, ModelSpec& spec) {
  spec.hidden = static_cast<int>(arch.integer("embedding_length", 1, kMaxSize));
  spec.intermediate = static_cast<int>(arch.integer("feed_forward_length", 1, kMaxSize));
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

RopeSpec read_hf_rope(const Fields& config, int head_dim, const char* layer_type) {
  std::optional<Fields> parameters = config.object("rope_parameters");
  if (parameters && layer_type != nullptr && parameters->has(layer_type)) {
    const Fields of_type = *parameters->object(layer_type);
    parameters.emplace(of_type);
  }
  const std::optional<Fields> scaling = parameters ? parameters : config.object("rope_scaling");
  const double theta = parameters && parameters->has("rope_theta")
                           ? parameters->number("rope_theta", 1e-3, 1e15)
                           : config.number_or("rope_theta", 10000, 1e-3, 1e15);
  double partial = config.number_or("partial_rotary_factor", 1, 0, 1);
  if (parameters) partial = parameters->number_or("partial_rotary_factor", partial, 0, 1);
  const int dim = static_cast<int>(head_dim * partial) / 2 * 2;
  RopeSpec rope;
  rope.inv_freq = inverse_frequencies(theta, dim);
  if (!scaling) return rope;
  const char* type_key = scaling->has("rope_type") ? "rope_type" : "type";
  const std::string type = scaling->string_or(type_key, "default");
  if (type == "linear") {
    const double factor = scaling->number("factor", 1e-3, 1e6);
    for (float& f : rope.inv_freq) f = static_cast<float>(f / factor);
  } else if (type == "llama3") {
    scale_llama3(rope.inv_freq, *scaling);
  } else if (type != "default") {
    scaling->fail(type_key, "default, linear or llama3");
  }
  return rope;
}

RopeSpec read_gguf_rope(const Fields& arch, const Checkpoint& checkpoint, int head_dim) {
  const int dim = static_cast<int>(arch.integer_or("rope.dimension_count", head_dim, 2, head_dim)) / 2 * 2;
  RopeSpec rope;
  rope.inv_freq = inverse_frequencies(arch.number_or("rope.freq_base", 10000, 1e-3, 1e15), dim);
  const std::string type = arch.string_or("rope.scaling.type", "none");
  if (type == "linear") {
    const double factor = arch.number("rope.scaling.factor", 1e-3, 1e6);
    for (float& f : rope.inv_freq) f = static_cast<float>(f / factor);
  } else if (type != "none") {
    arch.fail("rope.scaling.type", "none or linear");
  }
  if (const Weight* factors = checkpoint.find("rope_freqs.weight")) {
    if (factors->format != Format::F32 || factors->view().cols != dim / 2 || factors->view().rows != 1)
      fail_load("%s: rope_freqs.weight has %lld values of %s, needed are %d of F32",
                checkpoint.path().c_str(),
                static_cast<long long>(factors->view().rows * factors->view().cols),
                format_info(factors->format).name, dim / 2);
    std::vector<float> divisors(rope.inv_freq.size());
    format_info(Format::F32).decode(factors->data, dim / 2, divisors.data());
    for (size_t i = 0; i < divisors.size(); ++i) {
      if (!(divisors[i] > 0))
        fail_load("%s: rope_freqs.weight holds %g, needed are numbers above zero", checkpoint.path().c_str(),
                  divisors[i]);
      rope.inv_freq[i] /= divisors[i];
    }
  }
  return rope;
}

}  // namespace vllm

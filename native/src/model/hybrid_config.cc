#include "model/hybrid_config.h"

#include <algorithm>

#include "base/error.h"
#include "model/common_config.h"

namespace vllm {
namespace {

constexpr int kFullInterval = 4;  // every fourth layer is attention
constexpr int kMaxDim = 1024;     // of a head
constexpr int kMaxHeads = 4096;

void check_sizes(const Fields& fields, std::string_view key, const DeltaNetSpec& sizes) {
  if (sizes.value_heads % sizes.key_heads != 0)
    fields.fail(key, format("a multiple of the %d key heads", sizes.key_heads));
}

void set_layers(ModelSpec& spec, int64_t interval) {
  for (size_t i = 0; i < spec.layers.size(); ++i)
    spec.layers[i].mixer = (i + 1) % static_cast<size_t>(interval) == 0 ? Mixer::Attention : Mixer::DeltaNet;
}

void check_attention(const Fields& fields, std::string_view key, const ModelSpec& spec) {
  if (std::ranges::none_of(spec.layers, [](const LayerSpec& l) { return l.mixer == Mixer::Attention; }))
    fields.fail(key, "such that at least one layer is full attention");
}

void read_layer_types(const Fields& config, ModelSpec& spec) {
  const auto types = config.strings("layer_types");
  if (types.empty()) {
    set_layers(spec, config.integer_or("full_attention_interval", kFullInterval, 1, kMaxLayers));
    return check_attention(config, "full_attention_interval", spec);
  }
  if (types.size() != spec.layers.size())
    config.fail("layer_types", format("one entry for each of the %zu layers", spec.layers.size()));
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] != "linear_attention" && types[i] != "full_attention")
      config.fail("layer_types", "only linear_attention and full_attention");
    spec.layers[i].mixer = types[i] == "linear_attention" ? Mixer::DeltaNet : Mixer::Attention;
  }
  check_attention(config, "layer_types", spec);
}

/// "model.", or "model.language_model." of a checkpoint with a vision tower.
std::string backbone_prefix(const Checkpoint& checkpoint) {
  const auto exists = [&](const std::string& prefix) {
    const auto at = checkpoint.weights().lower_bound(prefix);
    return at != checkpoint.weights().end() && at->first.starts_with(prefix);
  };
  const bool nested = exists("model.language_model."), flat = exists("model.layers.");
  if (nested && flat)
    fail_load("%s: there are layers below model.language_model. and below model., needed is one of the two",
              checkpoint.path().c_str());
  return nested ? "model.language_model." : "model.";
}

}  // namespace

std::string read_hf_hybrid(const Fields& config, const Checkpoint& checkpoint, ModelSpec& spec) {
  read_hf_common(config, false, spec);
  if (spec.activation != Activation::Silu) config.fail("hidden_act", "silu");
  if (!config.has("head_dim")) config.fail("head_dim", "a number");
  if (config.boolean_or("layer_scale", false))
    config.fail("layer_scale", "false: scaled sublayers are not served");
  spec.norm_adds_one = true;
  spec.attention_gate = config.boolean_or("attn_output_gate", true);
  const std::string gate = config.string_or("output_gate_type", "silu");
  if (gate != "silu" && gate != "swish" && gate != "sigmoid")
    config.fail("output_gate_type", "silu, swish or sigmoid");
  spec.delta_net_gate = gate == "sigmoid" ? Activation::Sigmoid : Activation::Silu;
  DeltaNetSpec& sizes = spec.delta_net;
  sizes.key_heads = static_cast<int>(config.integer("linear_num_key_heads", 1, kMaxHeads));
  sizes.value_heads = static_cast<int>(config.integer("linear_num_value_heads", 1, kMaxHeads));
  sizes.key_dim = static_cast<int>(config.integer("linear_key_head_dim", 1, kMaxDim));
  sizes.value_dim = static_cast<int>(config.integer("linear_value_head_dim", 1, kMaxDim));
  sizes.conv_kernel =
      static_cast<int>(config.integer("linear_conv_kernel_dim", 1, DeltaNetSpec::kMaxConvKernel));
  check_sizes(config, "linear_num_value_heads", sizes);
  read_layer_types(config, spec);
  spec.ropes = {read_hf_rope(config, spec, nullptr, 0.25)};

  const std::string prefix = backbone_prefix(checkpoint), layer = prefix + "layers.{}.";
  spec.names = hf_weight_names(prefix);
  spec.names.q_norm = layer + "self_attn.q_norm";
  spec.names.k_norm = layer + "self_attn.k_norm";
  DeltaNetNames& n = spec.names.delta_net;
  n.conv = layer + "linear_attn.conv1d.weight";
  n.a_log = layer + "linear_attn.A_log";
  n.dt_bias = layer + "linear_attn.dt_bias";
  n.norm = layer + "linear_attn.norm";
  n.out = layer + "linear_attn.out_proj";
  spec.ignored_prefixes = {"model.visual.", "visual.", "mtp."};
  return prefix;
}

void read_gguf_hybrid(const Fields& arch, const Checkpoint& checkpoint, ModelSpec& spec) {
  read_gguf_common(arch, checkpoint, spec);
  const auto depth = static_cast<int64_t>(spec.layers.size());
  const int64_t extra = arch.integer_or("nextn_predict_layers", 0, 0, depth - 1);
  spec.layers.resize(static_cast<size_t>(depth - extra));
  for (int64_t i = depth - extra; i < depth; ++i)
    spec.ignored_prefixes.push_back("blk." + std::to_string(i) + ".");
  spec.attention_gate = true;
  DeltaNetSpec& sizes = spec.delta_net;
  sizes.key_heads = static_cast<int>(arch.integer("ssm.group_count", 1, kMaxHeads));
  sizes.value_heads = static_cast<int>(arch.integer("ssm.time_step_rank", 1, kMaxHeads));
  sizes.key_dim = static_cast<int>(arch.integer("ssm.state_size", 1, kMaxDim));
  const int64_t values = arch.integer("ssm.inner_size", 1, int64_t{kMaxDim} * sizes.value_heads);
  if (values % sizes.value_heads != 0)
    arch.fail("ssm.inner_size", format("a multiple of the %d value heads", sizes.value_heads));
  sizes.value_dim = static_cast<int>(values / sizes.value_heads);
  sizes.conv_kernel = static_cast<int>(arch.integer("ssm.conv_kernel", 1, DeltaNetSpec::kMaxConvKernel));
  check_sizes(arch, "ssm.time_step_rank", sizes);
  set_layers(spec, arch.integer_or("full_attention_interval", kFullInterval, 1, kMaxLayers));
  check_attention(arch, "full_attention_interval", spec);
  spec.ropes = {read_gguf_rope(arch, checkpoint, spec)};

  spec.names.q_norm = "blk.{}.attn_q_norm";
  spec.names.k_norm = "blk.{}.attn_k_norm";
  spec.names.mlp_norm = "blk.{}.post_attention_norm";
  DeltaNetNames& n = spec.names.delta_net;
  n.qkv = "blk.{}.attn_qkv";
  n.z = "blk.{}.attn_gate";
  n.conv = "blk.{}.ssm_conv1d.weight";
  n.decay = "blk.{}.ssm_a";
  n.dt_bias = "blk.{}.ssm_dt.bias";
  n.norm = "blk.{}.ssm_norm";
  n.out = "blk.{}.ssm_out";
}

}  // namespace vllm

#include "model/experts_config.h"

#include <algorithm>

#include "base/error.h"
#include "model/common_config.h"

namespace vllm {
namespace {

constexpr int64_t kMaxExperts = 4096;

/// The number of experts and how many of them a row takes.
void read_counts(const Fields& fields, const char* count_key, const char* used_key, ModelSpec& spec) {
  spec.experts.count = static_cast<int>(fields.integer(count_key, 1, kMaxExperts));
  spec.experts.router.experts_per_row = static_cast<int>(fields.integer(used_key, 1, kMaxExperts));
  if (spec.experts.router.experts_per_row > spec.experts.count)
    fields.fail(used_key, format("at most the number of experts, %d", spec.experts.count));
}

void set_hf_names(const std::string& mlp, const char* gate, const char* up, const char* down,
                  WeightNames& n) {
  n.router = mlp + "gate";
  n.expert_gate = mlp + "experts.{}." + gate;
  n.expert_up = mlp + "experts.{}." + up;
  n.expert_down = mlp + "experts.{}." + down;
  n.experts_gate_up = mlp + "experts.gate_up_proj";
  n.experts_down = mlp + "experts.down_proj";
}

}  // namespace

void read_hf_experts(const Fields& config, const std::string& prefix, bool renormalise, bool shared,
                     ModelSpec& spec) {
  ExpertsSpec& experts = spec.experts;
  read_counts(config, "num_experts", "num_experts_per_tok", spec);
  experts.router.renormalise = config.boolean_or("norm_topk_prob", renormalise);
  experts.intermediate = static_cast<int>(config.integer("moe_intermediate_size", 1, kMaxSize));
  if (shared)
    experts.shared_intermediate =
        static_cast<int>(config.integer("shared_expert_intermediate_size", 1, kMaxSize));
  const int64_t step = config.integer_or("decoder_sparse_step", 1, 1, kMaxLayers);
  const std::vector<int64_t> dense = config.integers("mlp_only_layers", 0, kMaxLayers);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const auto number = static_cast<int64_t>(i);
    spec.layers[i].experts =
        (number + 1) % step == 0 && std::find(dense.begin(), dense.end(), number) == dense.end();
  }
  const std::string mlp = prefix + "layers.{}.mlp.";
  set_hf_names(mlp, "gate_proj", "up_proj", "down_proj", spec.names);
  spec.names.shared_router = mlp + "shared_expert_gate";
  spec.names.shared_gate = mlp + "shared_expert.gate_proj";
  spec.names.shared_up = mlp + "shared_expert.up_proj";
  spec.names.shared_down = mlp + "shared_expert.down_proj";
}

void read_mixtral_experts(const Fields& config, ModelSpec& spec) {
  read_counts(config, "num_local_experts", "num_experts_per_tok", spec);
  spec.experts.router.renormalise = true;
  spec.experts.intermediate = spec.intermediate;
  for (LayerSpec& layer : spec.layers) layer.experts = true;
  set_hf_names("model.layers.{}.block_sparse_moe.", "w1", "w3", "w2", spec.names);
}

void read_gguf_experts(const Fields& arch, bool renormalise, bool shared, ModelSpec& spec) {
  ExpertsSpec& experts = spec.experts;
  read_counts(arch, "expert_count", "expert_used_count", spec);
  experts.router.renormalise = arch.boolean_or("expert_weights_norm", renormalise);
  const double scale = arch.number_or("expert_weights_scale", 1, 0, 1e6);
  experts.router.scale = scale == 0 ? 1.0f : static_cast<float>(scale);  // 0: not set
  if (arch.integer_or("expert_gating_func", 1, 0, 1 << 20) > 1)
    arch.fail("expert_gating_func", "1: a softmax over the experts");
  experts.intermediate =
      static_cast<int>(arch.integer_or("expert_feed_forward_length", spec.intermediate, 1, kMaxSize));
  if (shared)
    experts.shared_intermediate = static_cast<int>(
        arch.integer_or("expert_shared_feed_forward_length", spec.intermediate, 1, kMaxSize));
  for (LayerSpec& layer : spec.layers) layer.experts = true;
  WeightNames& n = spec.names;
  n.router = "blk.{}.ffn_gate_inp";
  n.expert_gate = "blk.{}.ffn_gate.{}";
  n.expert_up = "blk.{}.ffn_up.{}";
  n.expert_down = "blk.{}.ffn_down.{}";
  n.experts_gate = "blk.{}.ffn_gate_exps.weight";
  n.experts_up = "blk.{}.ffn_up_exps.weight";
  n.experts_gate_up = "blk.{}.ffn_gate_up_exps.weight";
  n.experts_down = "blk.{}.ffn_down_exps.weight";
  n.shared_router = "blk.{}.ffn_gate_inp_shexp";
  n.shared_gate = "blk.{}.ffn_gate_shexp";
  n.shared_up = "blk.{}.ffn_up_shexp";
  n.shared_down = "blk.{}.ffn_down_shexp";
}

}  // namespace vllm

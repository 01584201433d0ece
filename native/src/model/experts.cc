// The mixture of experts as an MLP of a layer.
#include <numeric>

#include "model/binder.h"
#include "model/sublayer.h"

namespace vllm {
namespace {

/// The shared expert is a dense MLP under other names.
ModelSpec shared_part(const ModelSpec& spec) {
  ModelSpec out = spec;
  out.intermediate = spec.experts.shared_intermediate;
  out.names.gate = spec.names.shared_gate;
  out.names.up = spec.names.shared_up;
  out.names.down = spec.names.shared_down;
  return out;
}

class Experts : public Sublayer {
 public:
  Experts(Binder& binder, const ModelSpec& spec, int layer)
      : spec_(spec.experts), hidden_(spec.hidden), activation_(spec.activation) {
    const WeightNames& n = spec.names;
    router_ = binder.exact_matrix(layer_name(n.router, layer), spec_.count, hidden_);
    std::vector<int> all(static_cast<size_t>(spec_.count));
    std::iota(all.begin(), all.end(), 0);
    weights_ = bind_expert_weights(binder, spec, layer, all);
    for (size_t i = 0; i < weights_.size(); i += 3)
      experts_.push_back({weights_[i].get(), weights_[i + 1].get(), weights_[i + 2].get()});
    if (spec_.shared_intermediate == 0) return;
    shared_router_ = binder.exact_matrix(layer_name(n.shared_router, layer), 1, hidden_);
    shared_ = bind_dense_mlp(binder, shared_part(spec), layer);
  }

  std::span<const ExpertWeights> experts() const override { return experts_; }

  int64_t scratch_cols() const override {
    const int64_t shared =
        shared_ ? Scratch::padded(1) + Scratch::padded(hidden_) + shared_->scratch_cols() : 0;
    return Scratch::padded(spec_.count) + shared;
  }

  void run(const StepContext& step, const Tensor& in, bool accumulate, const Tensor& out) const override {
    Device& device = step.device;
    const Tensor logits = step.scratch.take(in.rows, spec_.count);
    const DeviceWeight* const router = router_.get();
    device.matmul(std::span(&router, 1), in, nullptr, false, logits);
    if (!shared_) {
      device.experts(spec_.router, experts_, activation_, in, logits, accumulate, out);
      return;
    }
    // All that reads `in` comes first, for `out` may be the same.
    const Tensor gate = step.scratch.take(in.rows, 1), shared = step.scratch.take(in.rows, hidden_);
    const DeviceWeight* const shared_router = shared_router_.get();
    device.matmul(std::span(&shared_router, 1), in, nullptr, false, gate);
    shared_->run(step, in, false, shared);
    device.experts(spec_.router, experts_, activation_, in, logits, accumulate, out);
    device.add_gated_rows(shared, gate, out);
  }

 private:
  ExpertsSpec spec_;
  int64_t hidden_;
  Activation activation_;
  std::unique_ptr<DeviceWeight> router_, shared_router_;
  std::vector<std::unique_ptr<DeviceWeight>> weights_;
  std::vector<ExpertWeights> experts_;
  std::unique_ptr<Sublayer> shared_;
};

}  // namespace

std::vector<std::unique_ptr<DeviceWeight>> bind_expert_weights(Binder& binder, const ModelSpec& spec,
                                                               int layer, std::span<const int> ids) {
  const WeightNames& n = spec.names;
  const int64_t count = spec.experts.count, inner = spec.experts.intermediate, hidden = spec.hidden;
  const Binder::Stack gate{layer_name(n.experts_gate, layer), count, inner, hidden},
      up{layer_name(n.experts_up, layer), count, inner, hidden},
      gate_up{layer_name(n.experts_gate_up, layer), count, 2 * inner, hidden},
      down{layer_name(n.experts_down, layer), count, hidden, inner};
  const auto own = [&](const std::string& pattern, int e) {
    return layer_name(layer_name(pattern, layer), e);
  };
  const bool fused = gate.name.empty() || binder.has(gate_up.name);
  // Where the file has neither, what is missing is named in its usual spelling: stacked in a GGUF.
  const bool stacked = binder.has(gate_up.name) || binder.has(gate.name) || binder.has(down.name) ||
                       (!gate.name.empty() && !binder.has(own(n.expert_gate, 0) + ".weight"));
  std::vector<std::unique_ptr<DeviceWeight>> out;
  for (const int e : ids) {
    const std::string names[] = {own(n.expert_gate, e), own(n.expert_up, e), own(n.expert_down, e)};
    if (stacked) {
      for (const std::string& name : names)
        if (binder.has(name + ".weight")) binder.fail_both(name + ".weight", down.name);
      out.push_back(binder.stacked(fused ? gate_up : gate, e, 0, inner));
      out.push_back(binder.stacked(fused ? gate_up : up, e, fused ? inner : 0, inner));
      out.push_back(binder.stacked(down, e, 0, hidden));
    } else {
      out.push_back(binder.expert(names[0], inner, hidden));
      out.push_back(binder.expert(names[1], inner, hidden));
      out.push_back(binder.expert(names[2], hidden, inner));
    }
  }
  return out;
}

std::unique_ptr<Sublayer> bind_experts(Binder& binder, const ModelSpec& spec, int layer) {
  return std::make_unique<Experts>(binder, spec, layer);
}

}  // namespace vllm

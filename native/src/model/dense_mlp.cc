#include "model/binder.h"
#include "model/sublayer.h"

namespace vllm {
namespace {

class DenseMlp : public Sublayer {
 public:
  DenseMlp(Binder& binder, const ModelSpec& spec, int layer) : cols_(spec.intermediate) {
    const WeightNames& n = spec.names;
    std::vector<Binder::Part> parts = {{layer_name(n.gate, layer), cols_}, {layer_name(n.up, layer), cols_}};
    if (!n.gate_up.empty()) parts = {{layer_name(n.gate_up, layer), 2 * cols_}};
    gate_up_ = binder.linear(parts, spec.hidden, spec.needs_mlp_bias);
    down_ = binder.linear({{layer_name(n.down, layer), spec.hidden}}, cols_, spec.needs_mlp_bias);
  }

  int64_t scratch_cols() const override { return Scratch::padded(2 * cols_); }

  void run(const StepContext& step, const Tensor& in, bool accumulate, const Tensor& out) const override {
    const Tensor gate_up = step.scratch.take(in.rows, 2 * cols_);
    const Tensor gate = gate_up.columns(0, cols_), up = gate_up.columns(cols_, cols_);
    step.device.matmul(gate_up_.pointers, in, gate_up_.bias_or_null(), false, gate_up);
    step.device.gated(step.spec.activation, gate, up, gate);
    step.device.matmul(down_.pointers, gate, down_.bias_or_null(), accumulate, out);
  }

 private:
  int64_t cols_;
  Linear gate_up_, down_;
};

}  // namespace

std::unique_ptr<Sublayer> bind_dense_mlp(Binder& binder, const ModelSpec& spec, int layer) {
  return std::make_unique<DenseMlp>(binder, spec, layer);
}

}  // namespace vllm

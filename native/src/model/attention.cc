#include "model/binder.h"
#include "model/sublayer.h"

namespace vllm {
namespace {

/// Rows [q | gate] of each head, in the order that puts all q before all gates.
std::vector<int32_t> gates_last(int heads, int head_dim) {
  std::vector<int32_t> order;
  for (int part = 0; part < 2; ++part)
    for (int h = 0; h < heads; ++h)
      for (int d = 0; d < head_dim; ++d) order.push_back((2 * h + part) * head_dim + d);
  return order;
}

/// Causal self-attention with grouped heads, rotary positions and, where the architecture has them, norms of
/// q and k and a gate for each head.
class Attention : public Sublayer {
 public:
  Attention(Binder& binder, const ModelSpec& spec, int layer, int kv_layer)
      : kv_layer_(kv_layer),
        rope_(spec.ropes[static_cast<size_t>(spec.layers[static_cast<size_t>(layer)].rope)]),
        q_cols_(static_cast<int64_t>(spec.heads) * spec.head_dim),
        kv_cols_(static_cast<int64_t>(spec.kv_heads) * spec.head_dim),
        gate_cols_(spec.attention_gate ? q_cols_ : 0),
        whole_norm_(spec.qk_norm_whole) {
    const WeightNames& n = spec.names;
    attention_.heads = spec.heads;
    attention_.kv_heads = spec.kv_heads;
    attention_.head_dim = spec.head_dim;
    attention_.scale = spec.attention_scale;
    attention_.window = spec.layers[static_cast<size_t>(layer)].window;
    attention_.softcap = spec.attention_softcap;
    q_norm_ = binder.norm(layer_name(n.q_norm, layer), whole_norm_ ? q_cols_ : spec.head_dim);
    k_norm_ = binder.norm(layer_name(n.k_norm, layer), whole_norm_ ? kv_cols_ : spec.head_dim);
    std::vector<Binder::Part> parts = {{layer_name(n.q, layer), q_cols_ + gate_cols_},
                                       {layer_name(n.k, layer), kv_cols_},
                                       {layer_name(n.v, layer), kv_cols_}};
    if (spec.attention_gate) parts[0].order = gates_last(spec.heads, spec.head_dim);
    if (!n.qkv.empty()) parts = {{layer_name(n.qkv, layer), q_cols_ + 2 * kv_cols_}};
    qkv_ = binder.linear(parts, spec.hidden, spec.needs_qkv_bias);
    o_ = binder.linear({{layer_name(n.o, layer), spec.hidden}}, q_cols_, spec.needs_o_bias);
  }

  int64_t scratch_cols() const override {
    return Scratch::padded(q_cols_ + gate_cols_ + 2 * kv_cols_) + Scratch::padded(q_cols_);
  }

  void run(const StepContext& step, const Tensor& in, bool accumulate, const Tensor& out) const override {
    Device& device = step.device;
    const Tensor qkv = step.scratch.take(in.rows, q_cols_ + gate_cols_ + 2 * kv_cols_);
    const Tensor mixed = step.scratch.take(in.rows, q_cols_);
    const int64_t k_at = q_cols_ + gate_cols_;
    const Tensor q = qkv.columns(0, q_cols_), k = qkv.columns(k_at, kv_cols_),
                 v = qkv.columns(k_at + kv_cols_, kv_cols_);
    device.matmul(qkv_.pointers, in, qkv_.bias_or_null(), false, qkv);
    norm_rope(step, q, attention_.heads, q_norm_.get());
    norm_rope(step, k, attention_.kv_heads, k_norm_.get());
    device.write_kv(step.cache, kv_layer_, k, v);
    device.attention(step.cache, kv_layer_, q, attention_, mixed);
    if (gate_cols_ > 0) device.gated(Activation::Sigmoid, qkv.columns(q_cols_, gate_cols_), mixed, mixed);
    device.matmul(o_.pointers, mixed, o_.bias_or_null(), accumulate, out);
  }

 private:
  void norm_rope(const StepContext& step, const Tensor& x, int heads, const Vector* norm) const {
    const float eps = step.spec.norm_eps;
    if (norm && whole_norm_) step.device.rms_norm(x, norm->values, eps, false, x);
    step.device.norm_rope(x, heads, norm && !whole_norm_ ? &norm->values : nullptr, eps, rope_);
  }

  int kv_layer_;
  const RopeSpec& rope_;
  int64_t q_cols_, kv_cols_, gate_cols_;
  bool whole_norm_;
  AttentionSpec attention_;
  std::unique_ptr<Vector> q_norm_, k_norm_;
  Linear qkv_, o_;
};

}  // namespace

std::unique_ptr<Sublayer> bind_attention(Binder& binder, const ModelSpec& spec, int layer, int kv_layer) {
  return std::make_unique<Attention>(binder, spec, layer, kv_layer);
}

}  // namespace vllm

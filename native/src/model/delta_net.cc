#include <cmath>

#include "base/error.h"
#include "model/binder.h"
#include "model/sublayer.h"

namespace vllm {
namespace {

/// Rows that are stored key head by key head, each with the parts of these sizes, in the order that puts the
/// heads of a part together.
std::vector<int32_t> parts_together(int key_heads, const std::vector<int>& sizes) {
  int group = 0;
  for (int size : sizes) group += size;
  std::vector<int32_t> order;
  for (int start = 0, part = 0; part < static_cast<int>(sizes.size()); start += sizes[part++])
    for (int h = 0; h < key_heads; ++h)
      for (int i = 0; i < sizes[part]; ++i) order.push_back(h * group + start + i);
  return order;
}

class DeltaNet : public Sublayer {
 public:
  DeltaNet(Binder& binder, const ModelSpec& spec, int layer, int state_layer)
      : state_layer_(state_layer), sizes_(spec.delta_net), gate_(spec.delta_net_gate) {
    const DeltaNetNames& n = spec.names.delta_net;
    in_ = binder.linear(input_parts(n, layer), spec.hidden, false);
    out_ = binder.linear({{layer_name(n.out, layer), spec.hidden}}, sizes_.value_cols(), false);
    bind_conv(binder, layer_name(n.conv, layer));
    bind_decay(binder, layer_name(n.a_log, layer), layer_name(n.decay, layer));
    std::vector<float> values;
    if (binder.decode(layer_name(n.dt_bias, layer), 1, sizes_.value_heads, values))
      dt_bias_ = binder.vector(values);
    if (binder.decode(layer_name(n.norm, layer) + ".weight", 1, sizes_.value_dim, values))
      norm_ = binder.vector(values);
  }

  int64_t scratch_cols() const override {
    return Scratch::padded(input_cols()) + Scratch::padded(sizes_.value_cols());
  }

  void run(const StepContext& step, const Tensor& in, bool accumulate, const Tensor& out) const override {
    static const RopeSpec kNoRotation;
    Device& device = step.device;
    if (step.states == nullptr) fail_runtime("a DeltaNet layer runs without a state cache");
    const Tensor all = step.scratch.take(in.rows, input_cols());
    const Tensor mixed = step.scratch.take(in.rows, sizes_.value_cols());
    const int64_t z_at = sizes_.conv_cols(), b_at = z_at + sizes_.value_cols(), heads = sizes_.value_heads;
    const Tensor qkv = all.columns(0, z_at), z = all.columns(z_at, sizes_.value_cols()),
                 b = all.columns(b_at, heads), a = all.columns(b_at + heads, heads);
    device.matmul(in_.pointers, in, in_.bias_or_null(), false, all);
    device.causal_conv(*step.states, state_layer_, conv_->values, qkv);
    device.delta_rule(*step.states, state_layer_, qkv, a, b, decay_->values, dt_bias_->values, mixed);
    device.norm_rope(mixed, sizes_.value_heads, &norm_->values, step.spec.norm_eps, kNoRotation);
    device.gated(gate_, z, mixed, mixed);
    device.matmul(out_.pointers, mixed, out_.bias_or_null(), accumulate, out);
  }

 private:
  /// Columns of [qkv | z | b | a].
  int64_t input_cols() const {
    return sizes_.conv_cols() + sizes_.value_cols() + 2 * static_cast<int64_t>(sizes_.value_heads);
  }

  std::vector<Binder::Part> input_parts(const DeltaNetNames& n, int layer) const {
    const int r = sizes_.value_heads / sizes_.key_heads, values = r * sizes_.value_dim;
    std::vector<Binder::Part> parts;
    if (!n.qkvz.empty()) {
      parts.push_back({layer_name(n.qkvz, layer), sizes_.conv_cols() + sizes_.value_cols(),
                       parts_together(sizes_.key_heads, {sizes_.key_dim, sizes_.key_dim, values, values})});
    } else {
      parts.push_back({layer_name(n.qkv, layer), sizes_.conv_cols()});
      parts.push_back({layer_name(n.z, layer), sizes_.value_cols()});
    }
    if (!n.ba.empty()) {
      parts.push_back({layer_name(n.ba, layer), 2 * static_cast<int64_t>(sizes_.value_heads),
                       parts_together(sizes_.key_heads, {r, r})});
    } else {
      parts.push_back({layer_name(n.b, layer), sizes_.value_heads});
      parts.push_back({layer_name(n.a, layer), sizes_.value_heads});
    }
    return parts;
  }

  /// The file has a row of taps for each channel, the device wants a row of channels for each tap.
  void bind_conv(Binder& binder, const std::string& name) {
    std::vector<float> stored;
    const int64_t channels = sizes_.conv_cols(), taps = sizes_.conv_kernel;
    if (!binder.decode(name, channels, taps, stored)) return;
    std::vector<float> values(stored.size());
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t j = 0; j < taps; ++j)
        values[static_cast<size_t>(j * channels + c)] = stored[static_cast<size_t>(c * taps + j)];
    conv_ = binder.vector(values, taps);
  }

  void bind_decay(Binder& binder, const std::string& a_log, const std::string& decay) {
    std::vector<float> values;
    const std::string& name = a_log.empty() ? decay : a_log;
    if (!binder.decode(name, 1, sizes_.value_heads, values)) return;
    for (float& value : values) {
      if (!a_log.empty()) value = -std::exp(value);
      if (!std::isfinite(value)) binder.fail(name, "gives a decay that is not finite");
      // A converter that took the exponential twice, or not at all, makes a file that loads and is wrong.
      if (value >= 0 && a_log.empty())
        binder.fail(name, format("holds %g, needed are numbers below zero", value));
    }
    decay_ = binder.vector(values);
  }

  int state_layer_;
  DeltaNetSpec sizes_;
  Activation gate_;
  Linear in_, out_;
  std::unique_ptr<Vector> conv_, decay_, dt_bias_, norm_;
};

}  // namespace

std::unique_ptr<Sublayer> bind_delta_net(Binder& binder, const ModelSpec& spec, int layer, int state_layer) {
  return std::make_unique<DeltaNet>(binder, spec, layer, state_layer);
}

}  // namespace vllm

// Gated DeltaNet on the reference device: the recurrence, token by token.
#include <cmath>
#include <cstring>

#include "device/checks.h"
#include "device/host_memory.h"
#include "device/reference/reference_device.h"

namespace vllm {
namespace {

/// The memory of a layer of a slot: the last inputs of the convolution [conv_cols, conv_kernel - 1], then S
/// [value_heads, value_dim, key_dim].
class ReferenceStateCache final : public StateCache {
 public:
  explicit ReferenceStateCache(const StateCacheSpec& wanted)
      : memory_(wanted.slot_bytes() * static_cast<size_t>(wanted.slots)) {
    spec = wanted;
    bytes = memory_.bytes();
  }
  float* slot(int index) {
    return reinterpret_cast<float*>(memory_.host()) +
           static_cast<size_t>(index) * (spec.slot_bytes() / sizeof(float));
  }
  float* history(int layer, int slot) {
    const StateCacheSpec before{{spec.layers.begin(), spec.layers.begin() + layer}, 1};
    return this->slot(slot) + before.slot_bytes() / sizeof(float);
  }
  float* matrices(int layer, int slot) {
    const DeltaNetSpec& l = spec.layers[layer];
    return history(layer, slot) + l.conv_cols() * (l.conv_kernel - 1);
  }

 private:
  HostBuffer memory_;
};

/// x / |x| * scale
void normalise(const float* x, int n, double scale, std::vector<double>& out) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  const double factor = scale / std::sqrt(sum + 1e-6);
  out.resize(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) out[i] = x[i] * factor;
}

/// One token of one value head; S: [value_dim, key_dim].
void advance(float* s, const DeltaNetSpec& spec, double keep, double beta, const std::vector<double>& q,
             const std::vector<double>& k, const float* v, float* out) {
  for (int d = 0; d < spec.value_dim; ++d, s += spec.key_dim) {
    double read = 0, result = 0;
    for (int i = 0; i < spec.key_dim; ++i) read += keep * s[i] * k[i];
    const double u = (v[d] - read) * beta;
    for (int i = 0; i < spec.key_dim; ++i) {
      const double value = keep * s[i] + u * k[i];
      s[i] = static_cast<float>(value);
      result += value * q[i];
    }
    out[d] = static_cast<float>(result);
  }
}

}  // namespace

std::unique_ptr<StateCache> ReferenceDevice::make_state_cache(const StateCacheSpec& spec) {
  checks::state_cache(spec);
  return std::make_unique<ReferenceStateCache>(spec);
}

void ReferenceDevice::copy_state(StateCache& cache, int from, int to) {
  checks::copy_state(cache, from, to);
  auto& own = static_cast<ReferenceStateCache&>(cache);
  std::memmove(own.slot(to), own.slot(from), cache.spec.slot_bytes());
}

void ReferenceDevice::causal_conv(StateCache& cache, int layer, const Tensor& weight, const Tensor& x) {
  checks::causal_conv(*batch_, cache, layer, weight, x);
  const int taps = cache.spec.layers[layer].conv_kernel;
  for (int s = 0; s < batch_->sequences(); ++s) {
    const int first = batch_->seq_start[s], rows = batch_->seq_start[s + 1] - first;
    float* history = static_cast<ReferenceStateCache&>(cache).history(layer, batch_->state_slots[s]);
    for (int64_t c = 0; c < x.cols; ++c, history += taps - 1) {
      std::vector<float> inputs(history, history + taps - 1);
      if (batch_->positions[first] == 0) std::fill(inputs.begin(), inputs.end(), 0.0f);
      float* column = host_data(x) + first * x.stride + c;
      for (int t = 0; t < rows; ++t) inputs.push_back(column[t * x.stride]);
      for (int t = 0; t < rows; ++t) {
        double sum = 0;
        for (int j = 0; j < taps; ++j)
          sum += static_cast<double>(host_data(weight)[j * weight.stride + c]) * inputs[t + j];
        column[t * x.stride] = static_cast<float>(sum / (1.0 + std::exp(-sum)));
      }
      std::copy(inputs.end() - (taps - 1), inputs.end(), history);
    }
  }
}

void ReferenceDevice::delta_rule(StateCache& cache, int layer, const Tensor& qkv, const Tensor& a,
                                 const Tensor& b, const Tensor& decay, const Tensor& dt_bias,
                                 const Tensor& out) {
  checks::delta_rule(*batch_, cache, layer, qkv, a, b, decay, dt_bias, out);
  const DeltaNetSpec& spec = cache.spec.layers[layer];
  std::vector<double> q, k;
  for (int s = 0; s < batch_->sequences(); ++s) {
    float* matrices = static_cast<ReferenceStateCache&>(cache).matrices(layer, batch_->state_slots[s]);
    const int64_t size = static_cast<int64_t>(spec.value_dim) * spec.key_dim;
    if (batch_->positions[batch_->seq_start[s]] == 0)
      std::memset(matrices, 0, static_cast<size_t>(spec.value_heads * size) * sizeof(float));
    for (int64_t t = batch_->seq_start[s]; t < batch_->seq_start[s + 1]; ++t) {
      const float* row = host_data(qkv) + t * qkv.stride;
      for (int h = 0; h < spec.value_heads; ++h) {
        const int64_t key = static_cast<int64_t>(spec.key_head(h)) * spec.key_dim;
        normalise(row + key, spec.key_dim, 1 / std::sqrt(static_cast<double>(spec.key_dim)), q);
        normalise(row + spec.key_cols() + key, spec.key_dim, 1, k);
        const double step = static_cast<double>(host_data(a)[t * a.stride + h]) + host_data(dt_bias)[h];
        const double softplus = step > 20 ? step : std::log1p(std::exp(step));
        const double keep = std::exp(host_data(decay)[h] * softplus);
        const double beta = 1 / (1 + std::exp(-static_cast<double>(host_data(b)[t * b.stride + h])));
        const int64_t value = static_cast<int64_t>(h) * spec.value_dim;
        advance(matrices + h * size, spec, keep, beta, q, k, row + 2 * spec.key_cols() + value,
                host_data(out) + t * out.stride + value);
      }
    }
  }
}

}  // namespace vllm

// Mixture of experts of the reference device.
#include <cmath>

#include "device/checks.h"
#include "device/host_memory.h"
#include "device/reference/activation.h"
#include "device/reference/reference_device.h"
#include "device/reference/reference_weight.h"

namespace vllm {
namespace {

/// The weight of every expert for a row, 0 for those not chosen.
std::vector<float> route(const RouterSpec& router, const float* logits, size_t experts) {
  float top = -INFINITY, sum = 0;
  for (size_t e = 0; e < experts; ++e) top = std::fmax(top, logits[e]);
  std::vector<float> p(experts);
  for (size_t e = 0; e < experts; ++e) sum += p[e] = std::exp(logits[e] - top);
  for (float& v : p) v = std::isfinite(v / sum) ? v / sum : 0.0f;
  std::vector<bool> chosen(experts);
  float total = 0;
  for (int i = 0; i < router.experts_per_row; ++i) {
    size_t best = experts;
    for (size_t e = 0; e < experts; ++e)
      if (!chosen[e] && (best == experts || p[e] > p[best])) best = e;
    chosen[best] = true;
    total += p[best];
  }
  for (size_t e = 0; e < experts; ++e) {
    if (!chosen[e]) p[e] = 0;
    if (router.renormalise && total > 0) p[e] /= total;
    p[e] *= router.scale;
  }
  return p;
}

std::vector<double> product(const DeviceWeight* weight, const std::vector<double>& x) {
  std::vector<double> out(static_cast<size_t>(weight->rows));
  for (int64_t n = 0; n < weight->rows; ++n) {
    const std::vector<float> w = static_cast<const ReferenceWeight*>(weight)->row(n);
    for (size_t k = 0; k < x.size(); ++k) out[static_cast<size_t>(n)] += w[k] * x[k];
  }
  return out;
}

}  // namespace

void ReferenceDevice::experts(const RouterSpec& router, std::span<const ExpertWeights> experts,
                              Activation act, const Tensor& x, const Tensor& logits, bool accumulate,
                              const Tensor& out) {
  checks::experts(router, experts, x, logits, out);
  for (int64_t t = 0; t < x.rows; ++t) {
    const float* row = host_data(x) + t * x.stride;
    float* y = host_data(out) + t * out.stride;
    const std::vector<double> in(row, row + x.cols);
    const std::vector<float> weights = route(router, host_data(logits) + t * logits.stride, experts.size());
    std::vector<double> sum(in.size());
    for (size_t e = 0; e < experts.size(); ++e) {
      if (weights[e] == 0) continue;
      std::vector<double> inner = product(experts[e].gate, in);
      const std::vector<double> up = product(experts[e].up, in);
      for (size_t i = 0; i < inner.size(); ++i) inner[i] = activate(act, inner[i]) * up[i];
      const std::vector<double> down = product(experts[e].down, inner);
      for (size_t c = 0; c < sum.size(); ++c) sum[c] += weights[e] * down[c];
    }
    for (size_t c = 0; c < sum.size(); ++c) y[c] = static_cast<float>(accumulate ? y[c] + sum[c] : sum[c]);
  }
}

void ReferenceDevice::add_gated_rows(const Tensor& x, const Tensor& gate, const Tensor& out) {
  checks::add_gated_rows(x, gate, out);
  for (int64_t t = 0; t < x.rows; ++t) {
    const double g = host_data(gate)[t * gate.stride];
    for (int64_t c = 0; c < x.cols; ++c) {
      float& y = host_data(out)[t * out.stride + c];
      y = static_cast<float>(y + host_data(x)[t * x.stride + c] / (1.0 + std::exp(-g)));
    }
  }
}

}  // namespace vllm

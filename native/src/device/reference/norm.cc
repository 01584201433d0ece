// Normalisation and rotary positions of the reference device.
#include <cmath>

#include "device/checks.h"
#include "device/host_memory.h"
#include "device/reference/reference_device.h"

namespace vllm {
namespace {

/// 1 / sqrt(mean(x^2) + eps)
double inverse_rms(const float* x, int64_t n, float eps) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return 1.0 / std::sqrt(sum / static_cast<double>(n) + eps);
}

/// Turns pair i by position * inv_freq[i]. The angle is a product in f32, as the models were trained with.
void rotate(float* x, int position, const RopeSpec& rope) {
  const int64_t pairs = static_cast<int64_t>(rope.inv_freq.size());
  for (int64_t i = 0; i < pairs; ++i) {
    const float angle = static_cast<float>(position) * rope.inv_freq[i];
    const double cosine = std::cos(static_cast<double>(angle)) * rope.magnitude;
    const double sine = std::sin(static_cast<double>(angle)) * rope.magnitude;
    float& a = x[rope.interleaved ? 2 * i : i];
    float& b = x[rope.interleaved ? 2 * i + 1 : i + pairs];
    const double turned_a = a * cosine - b * sine, turned_b = b * cosine + a * sine;
    a = static_cast<float>(turned_a);
    b = static_cast<float>(turned_b);
  }
}

}  // namespace

void ReferenceDevice::rms_norm(const Tensor& x, const Tensor& weight, float eps, bool accumulate,
                               const Tensor& out) {
  checks::rms_norm(x, weight, out);
  for (int64_t t = 0; t < x.rows; ++t) {
    const float* row = host_data(x) + t * x.stride;
    float* y = host_data(out) + t * out.stride;
    const double factor = inverse_rms(row, x.cols, eps);
    for (int64_t c = 0; c < x.cols; ++c) {
      const double value = row[c] * factor * host_data(weight)[c];
      y[c] = static_cast<float>(accumulate ? y[c] + value : value);
    }
  }
}

void ReferenceDevice::norm_rope(const Tensor& x, int heads, const Tensor* norm, float eps,
                                const RopeSpec& rope) {
  checks::norm_rope(*batch_, x, heads, norm, rope);
  const int64_t head_dim = x.cols / heads;
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int h = 0; h < heads; ++h) {
      float* head = host_data(x) + t * x.stride + h * head_dim;
      if (norm) {
        const double factor = inverse_rms(head, head_dim, eps);
        for (int64_t d = 0; d < head_dim; ++d)
          head[d] = static_cast<float>(head[d] * factor * host_data(*norm)[d]);
      }
      rotate(head, batch_->positions[t], rope);
    }
  }
}

}  // namespace vllm

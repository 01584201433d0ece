// Table look-up and matrix products of the reference device.
#include <cstring>

#include "device/checks.h"
#include "device/host_memory.h"
#include "device/reference/reference_device.h"
#include "device/reference/reference_weight.h"

namespace vllm {

void ReferenceDevice::embed(const DeviceWeight& table, float scale, const Tensor& out) {
  checks::embed(*batch_, table, out);
  for (int t = 0; t < batch_->rows(); ++t) {
    const std::vector<float> row = static_cast<const ReferenceWeight&>(table).row(batch_->token_ids[t]);
    for (int64_t c = 0; c < out.cols; ++c) host_data(out)[t * out.stride + c] = scale * row[c];
  }
}

void ReferenceDevice::matmul(std::span<const DeviceWeight* const> weights, const Tensor& x,
                             const Tensor* bias, bool accumulate, const Tensor& out) {
  checks::matmul(weights, x, bias, out);
  int64_t column = 0;
  for (const DeviceWeight* weight : weights) {
    for (int64_t n = 0; n < weight->rows; ++n, ++column) {
      const std::vector<float> w = static_cast<const ReferenceWeight*>(weight)->row(n);
      for (int64_t t = 0; t < x.rows; ++t) {
        double sum = bias ? host_data(*bias)[column] : 0.0;
        for (int64_t k = 0; k < x.cols; ++k)
          sum += static_cast<double>(host_data(x)[t * x.stride + k]) * w[k];
        float& y = host_data(out)[t * out.stride + column];
        y = static_cast<float>(accumulate ? y + sum : sum);
      }
    }
  }
}

void ReferenceDevice::gather_logit_rows(const Tensor& x, const Tensor& out) {
  checks::gather_logit_rows(*batch_, x, out);
  for (int64_t i = 0; i < out.rows; ++i)
    std::memcpy(host_data(out) + i * out.stride, host_data(x) + batch_->logit_rows[i] * x.stride,
                x.cols * sizeof(float));
}

}  // namespace vllm

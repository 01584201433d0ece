// Elementwise functions of the reference device.
#include "device/reference/activation.h"

#include <cmath>
#include <numbers>

#include "device/checks.h"
#include "device/host_memory.h"
#include "device/reference/reference_device.h"

namespace vllm {
namespace {

double silu(double x) { return x / (1.0 + std::exp(-x)); }

/// x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3), written as x / (1 + exp(-2u)), which does not cancel
/// for u < 0.
double gelu_tanh(double x) {
  const double u = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return x / (1.0 + std::exp(-2.0 * u));
}

}  // namespace

double activate(Activation act, double x) {
  switch (act) {
    case Activation::Silu:
      return silu(x);
    case Activation::GeluTanh:
      return gelu_tanh(x);
    case Activation::Sigmoid:
      return 1.0 / (1.0 + std::exp(-x));
  }
  return x;
}

void ReferenceDevice::gated(Activation act, const Tensor& gate, const Tensor& up, const Tensor& out) {
  checks::gated(gate, up, out);
  for (int64_t t = 0; t < gate.rows; ++t) {
    for (int64_t c = 0; c < gate.cols; ++c) {
      const double g = host_data(gate)[t * gate.stride + c];
      host_data(out)[t * out.stride + c] =
          static_cast<float>(activate(act, g) * host_data(up)[t * up.stride + c]);
    }
  }
}

void ReferenceDevice::softcap(float cap, const Tensor& x) {
  checks::tensor("softcap", "x", x, x.rows, x.cols);
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t c = 0; c < x.cols; ++c) {
      float& value = host_data(x)[t * x.stride + c];
      value = static_cast<float>(cap * std::tanh(static_cast<double>(value) / cap));
    }
  }
}

}  // namespace vllm

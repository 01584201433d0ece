// Elementwise kernels and norms, one table an instruction set. Plain C types only: see simd.h.
#pragma once
#include <stdint.h>

namespace vllm::cpu {

/// Rotation of one token: pair i turns by cos[i], sin[i].
struct Rotation {
  const float* cos;
  const float* sin;
  int64_t pairs;
  bool interleaved;  // pairs (2i, 2i + 1), else (i, i + pairs)
};

struct ElementwiseKernels {
  /// out (+)= x * rsqrt(mean(x^2) + eps) * weight over one row of n.
  void (*rms_norm)(const float* x, const float* weight, int64_t n, float eps, bool accumulate, float* out);
  /// In place over `heads` dense heads of one token; norm may be null.
  void (*norm_rope)(float* x, int heads, int64_t head_dim, const float* norm, float eps,
                    const Rotation& rotation);
  /// out = silu(gate) * up
  void (*silu_gated)(const float* gate, const float* up, int64_t n, float* out);
  /// out = gelu_tanh(gate) * up
  void (*gelu_gated)(const float* gate, const float* up, int64_t n, float* out);
  /// out = sigmoid(gate) * up
  void (*sigmoid_gated)(const float* gate, const float* up, int64_t n, float* out);
  /// x = cap * tanh(x / cap)
  void (*softcap)(float cap, float* x, int64_t n);
};

const ElementwiseKernels& elementwise_baseline();
const ElementwiseKernels& elementwise_avx2();
const ElementwiseKernels& elementwise_avx512();

}  // namespace vllm::cpu

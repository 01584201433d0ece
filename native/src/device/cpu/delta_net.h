// Kernels of gated DeltaNet layers, one table an instruction set. Plain C types only: see simd.h.
#pragma once
#include <stdint.h>

namespace vllm::cpu {

/// Columns of S^T that one call of delta_rule works on: with key_dim 128 they are 16 KiB.
constexpr int kStateCols = 32;

/// Consecutive tokens of one sequence, and kStateCols values of one of its value heads. Rows of q, k and v
/// are `stride` apart, those of keep `keep_stride`, those of beta `beta_stride`.
struct DeltaRuleRun {
  const float* q;
  const float* k;
  const float* v;
  int64_t stride;
  const float* keep;  // what S is multiplied with
  int64_t keep_stride;
  const float* beta;
  int64_t beta_stride;
  int64_t rows;
  int64_t key_dim;
  int64_t cols;  // of v and out that exist, 1 .. kStateCols
  float* state;  // [key_dim, kStateCols]
  float* out;
  int64_t out_stride;
};

struct DeltaNetKernels {
  /// out = silu(sum_j weights[j * stride] * inputs[j]) over n channels; out may be the last input.
  void (*conv_silu)(const float* const* inputs, const float* weights, int64_t stride, int taps, int64_t n,
                    float* out);
  /// x = x * scale / sqrt(sum(x^2) + 1e-6) for each of `heads` dense heads, in place.
  void (*unit_length)(float* x, int heads, int64_t dim, float scale);
  void (*delta_rule)(const DeltaRuleRun& run);
};

const DeltaNetKernels& delta_net_baseline();
const DeltaNetKernels& delta_net_avx2();
const DeltaNetKernels& delta_net_avx512();

}  // namespace vllm::cpu

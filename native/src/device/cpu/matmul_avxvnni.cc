// matmul with AVX2 and its own form of VNNI: vpdpbusd for quantised weights, the rest as with AVX2.
#include "device/cpu/matmul_vectors_avx2.h"

namespace vllm::cpu {
namespace {

struct Simd : Avx2Vectors {
  static constexpr bool kSignedBytes = false;
  static constexpr bool kMultiples = false;
  static constexpr int kTurns = 2;  // more would not fit the registers

  template <int kMax, int n>
  static Int dots(const Word* w, const int8_t* x, Int sum) {
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) {
      const __m256i four = _mm256_castps_si256(_mm256_broadcast_ss((const float*)(x + 4 * i)));
      sum = (Int)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)w[i], four);
    }
    return sum;
  }
};

}  // namespace
}  // namespace vllm::cpu

#include "device/cpu/matmul_tiles-inl.h"

namespace vllm::cpu {

void add_avxvnni(Kernels& kernels) { add_quantised_formats(kernels); }

}  // namespace vllm::cpu

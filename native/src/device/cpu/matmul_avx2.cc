// matmul with AVX2, FMA and F16C.
#include "device/cpu/matmul_vectors_avx2.h"

namespace vllm::cpu {
namespace {

struct Simd : Avx2Vectors {
  static constexpr bool kSignedBytes = true;
  static constexpr bool kMultiples = true;
  static constexpr int kTurns = 1;

  /// vpmaddubsw adds two products in 16 bits: 2 * 127 * kMax, and small weights leave room for the sums of
  /// several vectors. Above 127 weights are signed and pass their sign to x: 2 * 128 * 127 fits.
  template <int kMax, int n, int kMultiple = 1>
  static Int dots(const Word* w, const int8_t* x, Int sum) {
    constexpr int kChain = kMax > 63 ? 1 : kMax > 31 ? 2 : kMax > 15 ? 4 : 8;
    constexpr int kStep = kChain < n ? kChain : n;
    const __m256i factors = _mm256_set1_epi16(kMultiple);
#pragma GCC unroll 8
    for (int i = 0; i < n; i += kStep) {
      __m256i pairs = _mm256_setzero_si256();
#pragma GCC unroll 8
      for (int j = i; j < i + kStep; j++) {
        __m256i four = _mm256_castps_si256(_mm256_broadcast_ss((const float*)(x + 4 * j)));
        __m256i a = (__m256i)w[j];
        if (kMax > 127) {
          four = _mm256_sign_epi8(four, a);
          a = _mm256_abs_epi8(a);
        }
        const __m256i products = _mm256_maddubs_epi16(a, four);
        pairs = j == i ? products : _mm256_add_epi16(pairs, products);
      }
      sum += (Int)_mm256_madd_epi16(pairs, factors);
    }
    return sum;
  }
};

}  // namespace
}  // namespace vllm::cpu

#include "device/cpu/matmul_tiles-inl.h"

namespace vllm::cpu {
constinit const Kernels kAvx2Kernels = make_kernels();
}

// matmul with AVX-512 F, BW, VL and DQ: AVX2's arithmetic twice as wide.
#include "device/cpu/matmul_vectors_avx512.h"

namespace vllm::cpu {
namespace {

struct Simd : Avx512Vectors {
  static constexpr bool kSignedBytes = true;
  static constexpr bool kMultiples = true;
  static constexpr bool kBf16Dots = false;
  static constexpr int kTurns = 1;

  /// See the AVX2 form; here a mask negates x where a signed weight is negative.
  template <int kMax, int n, int kMultiple = 1>
  static Int dots(const Word* w, const int8_t* x, Int sum) {
    constexpr int kChain = kMax > 63 ? 1 : kMax > 31 ? 2 : kMax > 15 ? 4 : 8;
    constexpr int kStep = kChain < n ? kChain : n;
    const __m512i factors = _mm512_set1_epi16(kMultiple);
#pragma GCC unroll 8
    for (int i = 0; i < n; i += kStep) {
      __m512i pairs = _mm512_setzero_si512();
#pragma GCC unroll 8
      for (int j = i; j < i + kStep; j++) {
        __m512i four = _mm512_castps_si512(_mm512_set1_ps(*(const float*)(x + 4 * j)));
        __m512i a = (__m512i)w[j];
        if (kMax > 127) {
          four = _mm512_mask_sub_epi8(four, _mm512_movepi8_mask(a), _mm512_setzero_si512(), four);
          a = _mm512_abs_epi8(a);
        }
        const __m512i products = _mm512_maddubs_epi16(a, four);
        pairs = j == i ? products : _mm512_add_epi16(pairs, products);
      }
      sum += (Int)_mm512_madd_epi16(pairs, factors);
    }
    return sum;
  }
};

}  // namespace
}  // namespace vllm::cpu

#include "device/cpu/matmul_tiles-inl.h"

namespace vllm::cpu {
constinit const Kernels kAvx512Kernels = make_kernels();
}

// matmul with AVX-512 F, BW, VL and DQ: AVX2's arithmetic twice as wide.
// gcc 12 takes the undefined operand inside its own AVX-512 intrinsics for a mistake.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#include <cstdint>

namespace vllm::cpu {
namespace {

struct Simd {
  static constexpr int kLanes = 16;
  static constexpr int kRegisters = 32;
  static constexpr bool kSignedBytes = true;
  static constexpr bool kBf16Dots = false;
  typedef float Float __attribute__((vector_size(64), aligned(4), may_alias));
  typedef int32_t Int __attribute__((vector_size(64), aligned(4), may_alias));
  typedef uint32_t Word __attribute__((vector_size(64), aligned(4), may_alias));

  static Float splat(float v) { return _mm512_set1_ps(v); }
  static Int splat_int(const int32_t* p) { return (Int)_mm512_set1_epi32(*p); }
  static Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  static Float half(const uint8_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }
  static Float brain(const uint8_t* p) {
    return (Float)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16);
  }
  static Float half_of_bytes(const uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i*)p)), 7));
  }
  static Word table(const uint8_t* p) {
    return (Word)_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)p));
  }
  static Word lookup(Word book, Word w) { return (Word)_mm512_shuffle_epi8((__m512i)book, (__m512i)w); }
  static Float e4m3(const uint8_t* p) {
    // See the AVX2 form.
    const __m256i v = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)p)), 7);
    return _mm512_cvtph_ps(_mm256_and_si256(v, _mm256_set1_epi16(-0x4001)));
  }
  static Int byte_ints(const uint8_t* p) {
    return (Int)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p));
  }
  static Float signed_bytes(const uint8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p)));
  }
  static int32_t max_lanes(Int v) { return _mm512_reduce_max_epi32((__m512i)v); }
  static int32_t sum_lanes(Int v) { return _mm512_reduce_add_epi32((__m512i)v); }
  static void store_bytes(int8_t* p, Int v) {
    _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8((__m512i)v));
  }

  /// See the AVX2 form; here a mask negates x where a signed weight is negative.
  template <int kMax, int n>
  static Int dots(const Word* w, const int8_t* x, Int sum) {
    constexpr int kChain = kMax > 63 ? 1 : kMax > 31 ? 2 : kMax > 15 ? 4 : 8;
    constexpr int kStep = kChain < n ? kChain : n;
    const __m512i ones = _mm512_set1_epi16(1);
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
      sum += (Int)_mm512_madd_epi16(pairs, ones);
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

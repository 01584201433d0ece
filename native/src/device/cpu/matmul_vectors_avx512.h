// What the AVX-512 forms of matmul share: the vectors, and how they are loaded and converted.
#pragma once
// gcc 12 takes the undefined operand inside its own AVX-512 intrinsics for a mistake.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include "device/cpu/simd.h"

namespace vllm::cpu {
namespace {

struct Avx512Vectors {
  static constexpr int kRegisters = 32;
  static constexpr bool kTokenPairs = false;
  static constexpr bool kShiftTables = false;
  typedef float Float __attribute__((vector_size(64), aligned(4), may_alias));
  typedef int32_t Int __attribute__((vector_size(64), aligned(4), may_alias));
  typedef uint32_t Word __attribute__((vector_size(64), aligned(4), may_alias));

  static Float splat(float v) { return _mm512_set1_ps(v); }
  static Int splat_int(const int32_t* p) {
    Int v;
    asm("vpbroadcastd %1,%0" : "=v"(v) : "m"(*p));
    return v;
  }
  static Float splat_at(const float* p) { return splat(*p); }
  static Int splat_int_at(const int32_t* p) { return splat_int(p); }
  static Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  static Float half(const uint8_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }
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
  static Word average(Word a, Word b) { return (Word)_mm512_avg_epu8((__m512i)a, (__m512i)b); }
  static Word byte_pairs(const uint8_t* p) {
    return (Word)_mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i*)p));
  }
  static int32_t max_lanes(Int v) { return _mm512_reduce_max_epi32((__m512i)v); }
  static int32_t sum_lanes(Int v) { return _mm512_reduce_add_epi32((__m512i)v); }
  static void store_bytes(int8_t* p, Int v) {
    _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8((__m512i)v));
  }
};

struct VnniVectors : Avx512Vectors {
  static constexpr bool kSignedBytes = false;
  static constexpr bool kMultiples = false;
  static constexpr bool kBf16Dots = false;
  static constexpr int kTurns = 4;

  /// gcc 12 does not fold the broadcast of x into the instruction by itself; that is worth 4 to 8 %.
  template <int kMax, int n>
  static Int dots(const Word* w, const int8_t* x, Int sum) {
    struct Four {
      int8_t v[4];
    };
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) {
      asm("vpdpbusd %2%{1to16%},%1,%0" : "+v"(sum) : "v"(w[i]), "m"(*(const Four*)(x + 4 * i)));
    }
    return sum;
  }
};

}  // namespace
}  // namespace vllm::cpu

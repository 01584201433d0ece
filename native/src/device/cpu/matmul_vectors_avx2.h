// What the AVX2 forms of matmul share: the vectors, and how they are loaded and converted.
#pragma once
#include "device/cpu/simd.h"

namespace vllm::cpu {
namespace {

struct Avx2Vectors {
  static constexpr int kRegisters = 16;
  static constexpr bool kBf16Dots = false;
  static constexpr bool kTokenPairs = false;
  typedef float Float __attribute__((vector_size(32), aligned(4), may_alias));
  typedef int32_t Int __attribute__((vector_size(32), aligned(4), may_alias));
  typedef uint32_t Word __attribute__((vector_size(32), aligned(4), may_alias));

  static Float splat(float v) { return _mm256_set1_ps(v); }
  static Int splat_int(const int32_t* p) { return (Int)_mm256_set1_epi32(*p); }
  static Float fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  static Float half(const uint8_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)); }
  static Float half_of_bytes(const uint8_t* p) {
    return _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i*)p)), 7));
  }
  static Word table(const uint8_t* p) {
    return (Word)_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)p));
  }
  static Word lookup(Word book, Word w) { return (Word)_mm256_shuffle_epi8((__m256i)book, (__m256i)w); }
  static Float e4m3(const uint8_t* p) {
    // The sign lands in both bits above the exponent's lower four.
    const __m128i v = _mm_slli_epi16(_mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i*)p)), 7);
    return _mm256_cvtph_ps(_mm_and_si128(v, _mm_set1_epi16(-0x4001)));
  }
  static Int byte_ints(const uint8_t* p) {
    return (Int)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p));
  }
  static int32_t max_lanes(Int v) {
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128((__m256i)v), _mm256_extracti128_si256((__m256i)v, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
  }
  static int32_t sum_lanes(Int v) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128((__m256i)v), _mm256_extracti128_si256((__m256i)v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
  }
  static void store_bytes(int8_t* p, Int v) {
    const __m128i s =
        _mm_packs_epi32(_mm256_castsi256_si128((__m256i)v), _mm256_extracti128_si256((__m256i)v, 1));
    _mm_storel_epi64((__m128i*)p, _mm_packs_epi16(s, s));
  }

  static void shift_tables(const int8_t* x, Word tables[2]) {
    const __m256i bytes = _mm256_xor_si256(_mm256_loadu_si256((const __m256i*)x), _mm256_set1_epi8(-128));
    const __m256i sums = _mm256_sad_epu8(bytes, _mm256_setzero_si256());  // of 8 each, and 1024
    // Factors of a and of b in the low halves of the lanes.
    const __m256i first = _mm256_set_epi32(0xfff9, 0xfff7, 0xfff9, 0xfff7, 0xfff9, 0xfff7, 0xfff9, 0xfff7);
    const __m256i last = _mm256_set_epi32(0xfff9, 0xfff9, 0xfff7, 0xfff7, 0xfff9, 0xfff9, 0xfff7, 0xfff7);
    const __m256i surplus = _mm256_slli_epi32(_mm256_set_epi32(-14, -16, -16, -18, -14, -16, -16, -18), 10);
    const __m256i both = _mm256_add_epi32(_mm256_madd_epi16(_mm256_shuffle_epi32(sums, 0x00), first),
                                          _mm256_madd_epi16(_mm256_shuffle_epi32(sums, 0xaa), last));
    const __m256i table = _mm256_sub_epi32(both, surplus);
    tables[0] = (Word)_mm256_permute2x128_si256(table, table, 0x00);
    tables[1] = (Word)_mm256_permute2x128_si256(table, table, 0x11);
  }
  static Int pick(Word table, Word w) { return (Int)_mm256_permutevar_ps((__m256)table, (__m256i)w); }
};

}  // namespace
}  // namespace vllm::cpu

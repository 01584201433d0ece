// What the AVX2 forms of matmul share: the vectors, and how they are loaded and converted.
#pragma once
#include "device/cpu/simd.h"

namespace vllm::cpu {
namespace {

struct Avx2Vectors {
  static constexpr int kRegisters = 16;
  static constexpr bool kBf16Dots = false;
  static constexpr bool kTokenPairs = false;
  static constexpr bool kShiftTables = true;
  typedef float Float __attribute__((vector_size(32), aligned(4), may_alias));
  typedef int32_t Int __attribute__((vector_size(32), aligned(4), may_alias));
  typedef uint32_t Word __attribute__((vector_size(32), aligned(4), may_alias));

  static Float splat(float v) { return _mm256_set1_ps(v); }
  static Int splat_int(const int32_t* p) { return (Int)_mm256_set1_epi32(*p); }
  static Float splat_at(const float* p) { return _mm256_broadcast_ss(p); }
  static Int splat_int_at(const int32_t* p) { return (Int)_mm256_broadcast_ss((const float*)p); }
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
  static Word average(Word a, Word b) { return (Word)_mm256_avg_epu8((__m256i)a, (__m256i)b); }
  static Word byte_pairs(const uint8_t* p) {
    return (Word)_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i*)p));
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

  static void shift_tables(const int8_t* x, int32_t tables[2][4]) {
    const __m256i bytes = _mm256_xor_si256(_mm256_loadu_si256((const __m256i*)x), _mm256_set1_epi8(-128));
    const __m256i sums = _mm256_sad_epu8(bytes, _mm256_setzero_si256());  // of 8 each, and 1024
    const __m256i pairs = _mm256_shuffle_epi8(sums, _mm256_set1_epi32(0x09080100));
    const __m256i factors = _mm256_set_epi16(-7, -7, -7, -9, -9, -7, -9, -9, -7, -7, -7, -9, -9, -7, -9, -9);
    const __m256i surplus = _mm256_slli_epi32(_mm256_set_epi32(-14, -16, -16, -18, -14, -16, -16, -18), 10);
    const __m256i both = _mm256_sub_epi32(_mm256_madd_epi16(pairs, factors), surplus);
    _mm256_storeu_si256((__m256i*)tables, both);
  }
  static Int pair_sums(Int a, Int b, Word w) {
    const __m256i both = _mm256_blend_epi16((__m256i)a, _mm256_slli_epi32((__m256i)b, 16), 0xaa);
    return (Int)_mm256_madd_epi16(both, (__m256i)w);
  }
  static Int pick(const int32_t* table, Word w) {
    return (Int)_mm256_permutevar_ps(_mm256_broadcast_ps((const __m128*)table), (__m256i)w);
  }
};

}  // namespace
}  // namespace vllm::cpu

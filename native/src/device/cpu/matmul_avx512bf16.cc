// matmul with AVX-512 VNNI and BF16: vpdpbusd for quantised weights, vdpbf16ps for bf16 ones.
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
  static constexpr bool kSignedBytes = false;
  static constexpr bool kBf16Dots = true;
  typedef float Float __attribute__((vector_size(64), aligned(4), may_alias));
  typedef int32_t Int __attribute__((vector_size(64), aligned(4), may_alias));
  typedef uint32_t Word __attribute__((vector_size(64), aligned(4), may_alias));

  static Float splat(float v) { return _mm512_set1_ps(v); }
  static Int splat_int(const int32_t* p) {
    Int v;
    asm("vpbroadcastd %1,%0" : "=v"(v) : "m"(*p));
    return v;
  }
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
  static Float bf16_dot(Float c, Word w, Int x) {
    asm("vdpbf16ps %2,%1,%0" : "+v"(c) : "v"(w), "v"(x));
    return c;
  }
};

}  // namespace
}  // namespace vllm::cpu

#include "device/cpu/matmul_tiles-inl.h"

namespace vllm::cpu {
constinit const Kernels kAvx512Bf16Kernels = make_kernels();
}

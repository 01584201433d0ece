// matmul for any machine but 64-bit ARM, which has matmul_neon.cc: 16-byte vectors, as the compiler makes
// them from plain operators.
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "device/cpu/simd.h"

#define VLLM_INLINE static inline __attribute__((always_inline))
#if defined(__SSE2__)  // no instruction for it: one call instead of many copies of 16 lookups
#define VLLM_LOOKUP static __attribute__((noinline))
#else
#define VLLM_LOOKUP VLLM_INLINE
#endif

namespace vllm::cpu {
namespace {

struct Simd {
  static constexpr int kRegisters = 16;
  static constexpr bool kSignedBytes = false;
  static constexpr bool kBf16Dots = false;
  static constexpr bool kTokenPairs = false;
  static constexpr bool kShiftTables = false;
  static constexpr bool kMultiples = false;
  static constexpr int kTurns = 1;
  typedef float Float __attribute__((vector_size(16), aligned(4), may_alias));
  typedef int32_t Int __attribute__((vector_size(16), aligned(4), may_alias));
  typedef uint32_t Word __attribute__((vector_size(16), aligned(4), may_alias));
  typedef uint8_t Byte __attribute__((vector_size(16), aligned(4), may_alias));
  typedef int16_t Short __attribute__((vector_size(16), aligned(4), may_alias));

  VLLM_INLINE Float splat(float v) { return Float{v, v, v, v}; }
  VLLM_INLINE Int splat_int(const int32_t* p) { return Int{*p, *p, *p, *p}; }
  VLLM_INLINE Float splat_at(const float* p) { return splat(*p); }
  VLLM_INLINE Int splat_int_at(const int32_t* p) { return splat_int(p); }
  VLLM_INLINE Float fma(Float a, Float b, Float c) { return a * b + c; }
  VLLM_INLINE Float half(const uint8_t* p) {
    uint16_t h[4];
    std::memcpy(h, p, 8);
    return half_bits(Word{h[0], h[1], h[2], h[3]});
  }
  VLLM_INLINE Float half_of_bytes(const uint8_t* p) { return half_bits(Word{p[0], p[1], p[2], p[3]} << 7); }
  VLLM_INLINE Word table(const uint8_t* p) {
    Word w;
    std::memcpy(&w, p, 16);
    return w;
  }
  VLLM_LOOKUP Word lookup(Word book, Word w) { return (Word)__builtin_shuffle((Byte)book, (Byte)w); }
  VLLM_INLINE Float half_bits(Word bits) {
    // The exponent's bias grows from 15 to 127; multiplying also puts subnormal numbers right.
    const Float magnitude = (Float)((bits & 0x7fffu) << 13) * 0x1p112f;
    const Word not_finite = (Word)((bits & 0x7c00u) == 0x7c00u) & 0x7f800000u;
    return (Float)((Word)magnitude | not_finite | (bits & 0x8000u) << 16);
  }
  VLLM_INLINE Float e4m3(const uint8_t* p) {
#if defined(__SSE2__)
    int32_t four;
    std::memcpy(&four, p, 4);
    const __m128i zero = _mm_setzero_si128();
    const Word top = (Word)_mm_unpacklo_epi16(zero, _mm_unpacklo_epi8(zero, _mm_cvtsi32_si128(four)));
#else
    const Word top = Word{p[0], p[1], p[2], p[3]} << 24;
#endif
    // The exponent's bias is greater by 120. Subnormal codes are rare, so that they are subnormal f32 costs
    // nothing.
    return (Float)((Word)((Int)top >> 4) & 0x87f00000u) * 0x1p112f;
  }
  VLLM_INLINE Int byte_ints(const uint8_t* p) { return Int{p[0], p[1], p[2], p[3]}; }
  VLLM_INLINE Word average(Word a, Word b) { return (a & b) + ((a ^ b) >> 1 & 0x7f7f7f7fu); }
  VLLM_INLINE Word byte_pairs(const uint8_t* p) {
    uint16_t h[4];
    std::memcpy(h, p, 8);
    const Word both{h[0], h[1], h[2], h[3]};
    return (both | both << 8) & 0x00ff00ffu;
  }
  VLLM_INLINE int32_t max_lanes(Int v) {
    int32_t top = v[0];
    for (int i = 1; i < kLanes; i++) top = v[i] > top ? v[i] : top;
    return top;
  }
  VLLM_INLINE int32_t sum_lanes(Int v) { return v[0] + v[1] + v[2] + v[3]; }
  VLLM_INLINE void store_bytes(int8_t* p, Int v) {
    for (int i = 0; i < kLanes; i++) p[i] = static_cast<int8_t>(v[i]);
  }

  /// start + the products of neighbouring 16-bit values, none above 255 * 127.
  VLLM_INLINE Int pair_products(Short a, Short b, Int start) {
#if defined(__SSE2__)
    return start + (Int)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    const Short product = a * b;
    return start + ((Int)((Word)product << 16) >> 16) + ((Int)product >> 16);
#endif
  }
  template <int kMax, int n>
  VLLM_INLINE Int dots(const Word* w, const int8_t* x, Int sum) {
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) {
      int32_t four;
      std::memcpy(&four, x + 4 * i, 4);
      const Int all = splat_int(&four);
      const Short even = (Short)all << 8 >> 8, odd = (Short)all >> 8;
      sum = pair_products((Short)(w[i] & 0x00ff00ffu), even, sum);
      sum = pair_products((Short)(w[i] >> 8 & 0x00ff00ffu), odd, sum);
    }
    return sum;
  }
};  // namespace

}  // namespace
}  // namespace vllm::cpu
#undef VLLM_INLINE
#undef VLLM_LOOKUP

#include "device/cpu/matmul_tiles-inl.h"

namespace vllm::cpu {
constinit const Kernels kBaselineKernels = make_kernels();
}

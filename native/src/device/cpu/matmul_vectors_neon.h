// What the NEON forms of matmul share: the vectors, and how they are loaded and converted.
#pragma once
#include "device/cpu/simd.h"

namespace vllm::cpu {
namespace {

struct NeonVectors {
  static constexpr int kRegisters = 32;
  static constexpr bool kSignedBytes = true;
  static constexpr bool kShiftTables = false;
  static constexpr bool kMultiples = false;
  static constexpr int kTurns = 1;
  typedef float Float __attribute__((vector_size(16), aligned(4), may_alias));
  typedef int32_t Int __attribute__((vector_size(16), aligned(4), may_alias));
  typedef uint32_t Word __attribute__((vector_size(16), aligned(4), may_alias));
  typedef uint32_t FourBytes __attribute__((aligned(1), may_alias));

  /// The four bytes at p, in each quarter.
  static uint32x4_t four_bytes(const void* p) { return vdupq_n_u32(*static_cast<const FourBytes*>(p)); }
  static float16x4_t halves(uint16x4_t bits) { return vreinterpret_f16_u16(bits); }

  static Float splat(float v) { return vdupq_n_f32(v); }
  static Int splat_int(const int32_t* p) { return (Int)vdupq_n_s32(*p); }
  static Float splat_at(const float* p) { return splat(*p); }
  static Int splat_int_at(const int32_t* p) { return splat_int(p); }
  static Float fma(Float a, Float b, Float c) { return vfmaq_f32(c, a, b); }
  static Float half(const uint8_t* p) { return vcvt_f32_f16(halves(vreinterpret_u16_u8(vld1_u8(p)))); }
  static Float half_of_bytes(const uint8_t* p) {
    return vcvt_f32_f16(
        halves(vget_low_u16(vshll_n_u8(vget_low_u8(vreinterpretq_u8_u32(four_bytes(p))), 7))));
  }
  static Word table(const uint8_t* p) { return (Word)vld1q_u8(p); }
  static Word lookup(Word book, Word w) {
    return (Word)vqtbl1q_u8((uint8x16_t)book, (uint8x16_t)(w & 0x0f0f0f0fu));
  }
  static Float e4m3(const uint8_t* p) {
    // The sign lands in both bits above the exponent's lower four.
    const int16x8_t v = vshll_n_s8(vget_low_s8(vreinterpretq_s8_u32(four_bytes(p))), 7);
    return vcvt_f32_f16(halves(vand_u16(vreinterpret_u16_s16(vget_low_s16(v)), vdup_n_u16(0xbfff))));
  }
  static Int byte_ints(const uint8_t* p) {
    const uint16x8_t v = vmovl_u8(vget_low_u8(vreinterpretq_u8_u32(four_bytes(p))));
    return (Int)vmovl_u16(vget_low_u16(v));
  }
  static Word average(Word a, Word b) { return (Word)vhaddq_u8((uint8x16_t)a, (uint8x16_t)b); }
  static Word byte_pairs(const uint8_t* p) { return (Word)vmovl_u8(vld1_u8(p)); }
  static int32_t max_lanes(Int v) { return vmaxvq_s32((int32x4_t)v); }
  static int32_t sum_lanes(Int v) { return vaddvq_s32((int32x4_t)v); }
  static void store_bytes(int8_t* p, Int v) {
    const int16x4_t s = vmovn_s32((int32x4_t)v);
    *reinterpret_cast<FourBytes*>(p) = vget_lane_u32(vreinterpret_u32_s8(vmovn_s16(vcombine_s16(s, s))), 0);
  }
};

#if defined(__ARM_FEATURE_DOTPROD)

/// sdot adds four products a lane; both its factors are signed.
struct NeonDots : NeonVectors {
  template <int kMax, int n>
  static Int dots(const Word* w, const int8_t* x, Int start) {
    static_assert(n % 4 == 0);
    int32x4_t sum = (int32x4_t)start;
#pragma GCC unroll 2
    for (int i = 0; i < n; i += 4) {
      const int8x16_t fours = vld1q_s8(x + 4 * i);
      sum = vdotq_laneq_s32(sum, (int8x16_t)w[i], fours, 0);
      sum = vdotq_laneq_s32(sum, (int8x16_t)w[i + 1], fours, 1);
      sum = vdotq_laneq_s32(sum, (int8x16_t)w[i + 2], fours, 2);
      sum = vdotq_laneq_s32(sum, (int8x16_t)w[i + 3], fours, 3);
    }
    return (Int)sum;
  }
};

#endif

}  // namespace
}  // namespace vllm::cpu

// matmul for any 64-bit ARM, in place of matmul_baseline.cc.
#include "device/cpu/matmul_vectors_neon.h"

namespace vllm::cpu {
namespace {

struct Simd : NeonVectors {
  static constexpr bool kBf16Dots = false;
  static constexpr bool kTokenPairs = false;

  /// Products of small weights leave room in 16 bits for the sums of several vectors. Above 127 weights are
  /// signed: 2 * 128 * 127 fits.
  template <int kMax, int n>
  static Int dots(const Word* w, const int8_t* x, Int start) {
    constexpr int kChain = kMax > 63 ? 2 : kMax > 31 ? 4 : kMax > 15 ? 8 : 16;
    constexpr int kStep = kChain < n ? kChain : n;
    int32x4_t first{}, last{};  // two sums for each of the rows 0 and 1, and of the rows 2 and 3
#pragma GCC unroll 8
    for (int i = 0; i < n; i += kStep) {
      int16x8_t low{}, high{};
#pragma GCC unroll 8
      for (int j = i; j < i + kStep; j++) {
        const int8x16_t a = (int8x16_t)w[j], four = vreinterpretq_s8_u32(four_bytes(x + 4 * j));
        low = j == i ? vmull_s8(vget_low_s8(a), vget_low_s8(four))
                     : vmlal_s8(low, vget_low_s8(a), vget_low_s8(four));
        high = j == i ? vmull_high_s8(a, four) : vmlal_high_s8(high, a, four);
      }
      first = vpadalq_s16(first, low);
      last = vpadalq_s16(last, high);
    }
    return start + (Int)vpaddq_s32(first, last);
  }
};

}  // namespace
}  // namespace vllm::cpu

#include "device/cpu/matmul_tiles-inl.h"

namespace vllm::cpu {
constinit const Kernels kBaselineKernels = make_kernels();
}

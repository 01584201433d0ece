// matmul with the I8MM and BF16 extensions of ARM: smmla for two tokens times two rows of quantised weights,
// bfdot for bf16 ones.
#include "device/cpu/matmul_vectors_neon.h"

namespace vllm::cpu {
namespace {

struct Simd : NeonDots {
  static constexpr bool kBf16Dots = true;
  static constexpr bool kTokenPairs = true;

  static Float bf16_dot(Float c, Word w, Int x) {
    return vbfdotq_f32(c, vreinterpretq_bf16_u32((uint32x4_t)w), vreinterpretq_bf16_s32((int32x4_t)x));
  }

  static void pair_rows(Word w[8]) {
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
      const uint32x4_t even = (uint32x4_t)w[i], odd = (uint32x4_t)w[i + 1];
      w[i] = (Word)vzip1q_u32(even, odd);
      w[i + 1] = (Word)vzip2q_u32(even, odd);
    }
  }
  template <int n>
  static void pair_dots(const Word* w, const int8_t* x, Int& first, Int& second) {
    int32x4_t low{}, high{};  // of two rows each: [row][token]
#pragma GCC unroll 4
    for (int i = 0; i < n; i += 2) {
      const int8x16_t both = vld1q_s8(x + 8 * i);
      low = vmmlaq_s32(low, (int8x16_t)w[i], both);
      high = vmmlaq_s32(high, (int8x16_t)w[i + 1], both);
    }
    first += (Int)vuzp1q_s32(low, high);
    second += (Int)vuzp2q_s32(low, high);
  }
};

}  // namespace
}  // namespace vllm::cpu

#include "device/cpu/matmul_tiles-inl.h"

namespace vllm::cpu {
constinit const Kernels kNeonBf16Kernels = make_kernels();
}

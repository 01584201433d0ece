// Attention over a bf16 cache with bfdot, which multiplies and adds a pair in one instruction. Queries and
// weights are rounded to bf16; the sum of a row's weights is taken of the rounded ones, so most of that error
// cancels.
#include "device/cpu/attention_kernels.h"

namespace vllm::cpu {
namespace {

struct Bf16Dot : Bf16Storage {
  using Operand = uint32_t;  // two bf16, the even member in the lower half
  using Loaded = bfloat16x8_t;
  using Broadcast = bfloat16x8_t;
  static constexpr KvElement kElement = KvElement::BF16;
  static constexpr int kVectorElements = 2 * kLanes;
  static constexpr int kValueRows = 4, kValueDims = 4;
  static constexpr int key_units(int rows) { return rows <= 2 ? 2 : 1; }

  static Loaded load_pairs(const Stored* p, int64_t) { return vreinterpretq_bf16_u16(vld1q_u16(p)); }
  static Broadcast broadcast(const Operand* x) { return vreinterpretq_bf16_u32(vdupq_n_u32(*x)); }
  static F multiply_add(F sum, Loaded w, Broadcast x) { return vbfdotq_f32(sum, w, x); }
  static F store_operands(Operand* to, const F* weights, F sum) {
#pragma GCC unroll 2
    for (int v = 0; v < kUnitVectors; v += 2, to += kLanes) {
      const uint16x8_t packed =
          vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(weights[v]), weights[v + 1]));
      vst1q_u32(to, vreinterpretq_u32_u16(packed));
      sum += reinterpret_cast<F>(vshll_n_u16(vget_low_u16(packed), 16));
      sum += reinterpret_cast<F>(vshll_high_n_u16(packed, 16));
    }
    return sum;
  }
};

}  // namespace

const AttentionKernels& attention_neonbf16() { return kAttentionKernels<PairCache<Bf16Dot>>; }

}  // namespace vllm::cpu

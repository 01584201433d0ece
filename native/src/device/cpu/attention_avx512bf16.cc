// Attention over a bf16 cache with vdpbf16ps, which multiplies and adds a pair in one instruction.
#include "device/cpu/attention_bf16dot.h"

namespace vllm::cpu {
namespace {

struct Bf16Dot : Bf16Operands {
  using Loaded = __m512i;
  using Broadcast = __m512i;
  static constexpr int kVectorElements = 2 * kLanes;
  static constexpr int kValueRows = 6, kValueDims = 4;
  static constexpr int key_units(int) { return 2; }

  static Loaded load_pairs(const Stored* p, int64_t) { return _mm512_loadu_si512(p); }
  static Broadcast broadcast(const Operand* x) { return _mm512_set1_epi32(static_cast<int>(*x)); }
  static F multiply_add(F sum, Loaded w, Broadcast x) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(x));
  }
};

}  // namespace

const AttentionKernels& attention_avx512bf16() { return kAttentionKernels<PairCache<Bf16Dot>>; }

}  // namespace vllm::cpu

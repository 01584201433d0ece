// Attention over a bf16 cache with vdpbf16ps, which multiplies and adds a pair in one instruction. Queries
// and weights are rounded to bf16; the sum of a row's weights is taken of the rounded ones, so most of that
// error cancels.
#include "device/cpu/attention_kernels.h"

namespace vllm::cpu {
namespace {

struct Bf16Dot : Bf16Storage {
  using Operand = uint32_t;  // two bf16, the even member in the lower half
  using Loaded = __m512i;
  using Broadcast = __m512i;
  static constexpr KvElement kElement = KvElement::BF16;
  static constexpr int kVectorElements = 2 * kLanes;
  static constexpr int kValueRows = 6, kValueDims = 4;
  static constexpr int key_units(int) { return 2; }

  static Loaded load_pairs(const Stored* p, int64_t) { return _mm512_loadu_si512(p); }
  static Broadcast broadcast(const Operand* x) { return _mm512_set1_epi32(static_cast<int>(*x)); }
  static F multiply_add(F sum, Loaded w, Broadcast x) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(x));
  }
  static F store_operands(Operand* to, const F* weights, F sum) {
    const __m256i packed = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(weights[0]));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), packed);
    return sum + bits_to_float(reinterpret_cast<I>(_mm512_slli_epi32(_mm512_cvtepu16_epi32(packed), 16)));
  }
};

}  // namespace

const AttentionKernels& attention_avx512bf16() { return kAttentionKernels<PairCache<Bf16Dot>>; }

}  // namespace vllm::cpu

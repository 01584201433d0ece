// Queries and softmax weights that are rounded to bf16. The sum of a row's weights is taken of the rounded
// ones, so most of that error cancels.
#pragma once
#include "device/cpu/attention_kernels.h"

namespace vllm::cpu {
namespace {

struct Bf16Operands : Bf16Storage {
  using Operand = uint32_t;  // two bf16, the even member in the lower half
  static constexpr KvElement kElement = KvElement::BF16;

  /// Stores 16 numbers as 8 operands and adds them, as stored, to the lanes of `sum`.
  static F store_operands(Operand* to, const F* weights, F sum) {
    const __m256i packed = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(weights[0]));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), packed);
    return sum + bits_to_float(reinterpret_cast<I>(_mm512_slli_epi32(_mm512_cvtepu16_epi32(packed), 16)));
  }
};

}  // namespace
}  // namespace vllm::cpu

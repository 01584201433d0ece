#include "device/cpu/attention_kernels.h"

namespace vllm::cpu {

const AttentionKernels& attention_avx512(bool bf16) {
  return bf16 ? kAttentionKernels<PairCache<Bf16Widened>> : kAttentionKernels<PairCache<F32Pairs>>;
}

}  // namespace vllm::cpu

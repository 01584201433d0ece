#include "device/cpu/attention_kernels.h"

namespace vllm::cpu {

const AttentionKernels& attention_baseline(bool bf16) {
  return bf16 ? kAttentionKernels<Bf16Widened> : kAttentionKernels<F32Pairs>;
}

}  // namespace vllm::cpu

#include "device/cpu/attention_q8.h"

namespace vllm::cpu {

const AttentionKernels& attention_avx2(KvElement element) { return kernels_of(element); }

}  // namespace vllm::cpu

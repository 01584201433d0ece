#include "device/cpu/elementwise_kernels.h"

namespace vllm::cpu {

const ElementwiseKernels& elementwise_avx512() { return kElementwiseKernels; }

}  // namespace vllm::cpu

#include "device/cpu/elementwise_kernels.h"

namespace vllm::cpu {

const ElementwiseKernels& elementwise_avx2() { return kElementwiseKernels; }

}  // namespace vllm::cpu

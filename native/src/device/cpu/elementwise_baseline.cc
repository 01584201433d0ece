#include "device/cpu/elementwise_kernels.h"

namespace vllm::cpu {

const ElementwiseKernels& elementwise_baseline() { return kElementwiseKernels; }

}  // namespace vllm::cpu

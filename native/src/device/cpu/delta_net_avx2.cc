#include "device/cpu/delta_net_kernels.h"

namespace vllm::cpu {

const DeltaNetKernels& delta_net_avx2() { return kDeltaNetKernels; }

}  // namespace vllm::cpu

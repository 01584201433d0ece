#include "device/cpu/delta_net_kernels.h"

namespace vllm::cpu {

const DeltaNetKernels& delta_net_avx512() { return kDeltaNetKernels; }

}  // namespace vllm::cpu

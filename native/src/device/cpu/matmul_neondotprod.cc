// matmul with the dot products of int8 that ARMv8.2 brought.
#include "device/cpu/matmul_vectors_neon.h"

namespace vllm::cpu {
namespace {

struct Simd : NeonDots {
  static constexpr bool kBf16Dots = false;
  static constexpr bool kTokenPairs = false;
};

}  // namespace
}  // namespace vllm::cpu

#include "device/cpu/matmul_tiles-inl.h"

namespace vllm::cpu {
constinit const Kernels kNeonDotprodKernels = make_kernels();
}

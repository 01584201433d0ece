// matmul with AVX-512 VNNI: vpdpbusd for quantised weights, the rest as with AVX-512.
#include "device/cpu/matmul_vectors_avx512.h"

namespace vllm::cpu {
namespace {

struct Simd : VnniVectors {};

}  // namespace
}  // namespace vllm::cpu

#include "device/cpu/matmul_tiles-inl.h"

namespace vllm::cpu {

void add_avx512vnni(Kernels& kernels) { add_quantised_formats(kernels); }

}  // namespace vllm::cpu

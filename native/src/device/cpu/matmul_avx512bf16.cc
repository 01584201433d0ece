// matmul with AVX-512 BF16: vdpbf16ps for bf16 weights, the rest as with VNNI.
#include "device/cpu/matmul_vectors_avx512.h"

namespace vllm::cpu {
namespace {

struct Simd : Avx512Vectors {
  static constexpr bool kSignedBytes = false;
  static constexpr bool kMultiples = false;
  static constexpr bool kBf16Dots = true;
  static constexpr int kTurns = 1;

  static Float bf16_dot(Float c, Word w, Int x) {
    asm("vdpbf16ps %2,%1,%0" : "+v"(c) : "v"(w), "v"(x));
    return c;
  }
};

}  // namespace
}  // namespace vllm::cpu

#include "device/cpu/matmul_tiles-inl.h"

namespace vllm::cpu {

void add_avx512bf16(Kernels& kernels) {
  kernels.prepare[static_cast<int>(Scheme::BF16)] = prepare_bf16;
  set_float<Format::BF16>(kernels);
}

}  // namespace vllm::cpu

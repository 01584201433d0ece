// matmul with AVX-512 VNNI and BF16: vpdpbusd for quantised weights, vdpbf16ps for bf16 ones.
// gcc 12 takes the undefined operand inside its own AVX-512 intrinsics for a mistake.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include "device/cpu/matmul_vectors_avx512.h"

namespace vllm::cpu {
namespace {

struct Simd : Avx512Vectors {
  static constexpr bool kSignedBytes = false;
  static constexpr bool kBf16Dots = true;
  static constexpr bool kTokenPairs = false;
  static constexpr int kTurns = 4;

  /// gcc 12 does not fold the broadcast of x into the instruction by itself; that is worth 4 to 8 %.
  template <int kMax, int n>
  static Int dots(const Word* w, const int8_t* x, Int sum) {
    struct Four {
      int8_t v[4];
    };
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) {
      asm("vpdpbusd %2%{1to16%},%1,%0" : "+v"(sum) : "v"(w[i]), "m"(*(const Four*)(x + 4 * i)));
    }
    return sum;
  }
  static Float bf16_dot(Float c, Word w, Int x) {
    asm("vdpbf16ps %2,%1,%0" : "+v"(c) : "v"(w), "v"(x));
    return c;
  }
};

}  // namespace
}  // namespace vllm::cpu

#include "device/cpu/matmul_tiles-inl.h"

namespace vllm::cpu {
constinit const Kernels kAvx512Bf16Kernels = make_kernels();
}

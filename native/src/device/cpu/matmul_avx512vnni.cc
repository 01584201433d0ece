// matmul with AVX-512 VNNI: vpdpbusd for quantised weights, the rest as with AVX-512.
#include "device/cpu/matmul_vectors_avx512.h"

namespace vllm::cpu {
namespace {

struct Simd : Avx512Vectors {
  static constexpr bool kSignedBytes = false;
  static constexpr bool kMultiples = false;
  static constexpr bool kBf16Dots = false;
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
};

}  // namespace
}  // namespace vllm::cpu

#include "device/cpu/matmul_tiles-inl.h"

namespace vllm::cpu {

void add_avx512vnni(Kernels& kernels) { add_quantised_formats(kernels); }

}  // namespace vllm::cpu

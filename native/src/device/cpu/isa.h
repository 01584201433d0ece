// Which instruction set the CPU kernels use.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace vllm::cpu {

/// Of each architecture in rising order, where each includes those before it, but for AvxVnni: that is AVX2
/// with VNNI, of processors without AVX-512. Avx512: F, BW, VL, DQ.
/// Avx512Vnni and Avx512Bf16: also what they are called after. Amx: also its tiles of int8 and bf16. Baseline
/// is NEON on 64-bit ARM, which always has it. NeonBf16: also I8MM and BF16.
enum class Isa : uint8_t {
  Baseline,
  Avx2,
  AvxVnni,
  Avx512,
  Avx512Vnni,
  Avx512Bf16,
  Amx,
  NeonDotprod,
  NeonBf16
};

std::vector<Isa> available_isas();  // of this machine, rising; the first is Baseline
Isa best_isa();                     // the last of them
const char* isa_name(Isa isa);      // "baseline", "avx2", "avxvnni", "avx512vnni" ...
/// By name; empty is VLLM_CPU_ISA of the environment, else the best. Throws Error(InvalidArgument) for a name
/// that is unknown or that this machine lacks, with the names it has.
Isa choose_isa(std::string_view name);

}  // namespace vllm::cpu

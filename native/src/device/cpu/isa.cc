#include "device/cpu/isa.h"

#include <cstdlib>
#include <string>

#include "base/error.h"

namespace vllm::cpu {
namespace {

constexpr const char* kNames[] = {"baseline", "avx2", "avx512", "avx512bf16"};

bool has(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::Baseline:
      return true;
    case Isa::Avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("f16c");
    case Isa::Avx512:
      return has(Isa::Avx2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    case Isa::Avx512Bf16:
      return has(Isa::Avx512) && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
  }
  return false;
#else
  return isa == Isa::Baseline;
#endif
}

}  // namespace

Isa best_isa() {
  for (Isa isa : {Isa::Avx512Bf16, Isa::Avx512, Isa::Avx2})
    if (has(isa)) return isa;
  return Isa::Baseline;
}

std::vector<Isa> available_isas() {
  std::vector<Isa> out;
  for (Isa isa : {Isa::Baseline, Isa::Avx2, Isa::Avx512, Isa::Avx512Bf16})
    if (has(isa)) out.push_back(isa);
  return out;
}

const char* isa_name(Isa isa) { return kNames[static_cast<int>(isa)]; }

Isa choose_isa(std::string_view name) {
  if (name.empty()) {
    const char* set = std::getenv("VLLM_CPU_ISA");
    if (!set || !*set) return best_isa();
    name = set;
  }
  std::string known;
  for (Isa isa : available_isas()) {
    if (name == isa_name(isa)) return isa;
    known += std::string(known.empty() ? "" : ", ") + isa_name(isa);
  }
  fail_argument("The CPU instruction set \"%.*s\" is not available; this machine has %s.",
                static_cast<int>(name.size()), name.data(), known.c_str());
}

}  // namespace vllm::cpu

#include "device/cpu/isa.h"

#include <cstdlib>
#include <string>
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#include "base/error.h"

namespace vllm::cpu {
namespace {

constexpr const char* kNames[] = {"baseline",   "avx2", "avxvnni",     "avx512",  "avx512vnni",
                                  "avx512bf16", "amx",  "neondotprod", "neonbf16"};

#if defined(__x86_64__)

/// Whether the system lets this process use the tiles of AMX, for which Linux wants to be asked once.
bool tiles_allowed() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool allowed = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return allowed;
#else
  return false;
#endif
}

/// gcc 12 has no name for it. It needs what AVX2 needs of the system.
bool has_avx_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 4 & 1) != 0;
}

bool has(Isa isa) {
  switch (isa) {
    case Isa::Avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("f16c");
    case Isa::Avx512:
      return has(Isa::Avx2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    case Isa::AvxVnni:
      return has(Isa::Avx2) && has_avx_vnni();
    case Isa::Avx512Vnni:
      return has(Isa::Avx512) && __builtin_cpu_supports("avx512vnni");
    case Isa::Avx512Bf16:
      return has(Isa::Avx512Vnni) && __builtin_cpu_supports("avx512bf16");
    case Isa::Amx:
      return has(Isa::Avx512Bf16) && __builtin_cpu_supports("amx-tile") &&
             __builtin_cpu_supports("amx-int8") && __builtin_cpu_supports("amx-bf16") && tiles_allowed();
    default:
      return false;
  }
}

#elif defined(__aarch64__)

struct Features {
  bool dotprod, i8mm, bf16;
};

Features features() {
#if defined(__linux__)
  const unsigned long one = getauxval(AT_HWCAP), two = getauxval(AT_HWCAP2);
  return {(one & HWCAP_ASIMDDP) != 0, (two & HWCAP2_I8MM) != 0, (two & HWCAP2_BF16) != 0};
#elif defined(__APPLE__)
  const auto on = [](const char* name) {
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
  };
  return {on("hw.optional.arm.FEAT_DotProd"), on("hw.optional.arm.FEAT_I8MM"),
          on("hw.optional.arm.FEAT_BF16")};
#else
  return {};
#endif
}

bool has(Isa isa) {
  const Features f = features();
  switch (isa) {
    case Isa::NeonDotprod:
      return f.dotprod;
    case Isa::NeonBf16:
      return f.dotprod && f.i8mm && f.bf16;
    default:
      return false;
  }
}

#else

bool has(Isa) { return false; }

#endif

}  // namespace

std::vector<Isa> available_isas() {
  std::vector<Isa> all = {Isa::Baseline};
  for (Isa isa : {Isa::Avx2, Isa::AvxVnni, Isa::Avx512, Isa::Avx512Vnni, Isa::Avx512Bf16, Isa::Amx,
                  Isa::NeonDotprod, Isa::NeonBf16})
    if (has(isa)) all.push_back(isa);
  return all;
}

Isa best_isa() { return available_isas().back(); }

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

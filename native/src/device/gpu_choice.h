// Which of several GPUs a name means.
#pragma once
#include <algorithm>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace vllm {

/// In the order in which "vulkan:N" counts. Cpu: a driver that computes on the CPU.
enum class GpuKind : uint8_t { Discrete, Integrated, Virtual, Other, Cpu };

struct GpuDescription {
  std::string name;  // "NVIDIA H200"
  GpuKind kind = GpuKind::Other;
  std::string unfit;  // why it cannot be used; empty when it can
};

/// Among equals the order stays as it is.
template <std::derived_from<GpuDescription> G>
void sort_gpus(std::vector<G>& gpus) {
  std::stable_sort(gpus.begin(), gpus.end(), [](const G& a, const G& b) { return a.kind < b.kind; });
}

/// The index of the first that can be used, of GPUs alone or of drivers on the CPU too. For sorted ones.
template <std::derived_from<GpuDescription> G>
std::optional<size_t> first_usable(const std::vector<G>& gpus, bool cpu_drivers) {
  for (size_t i = 0; i < gpus.size(); ++i)
    if (gpus[i].unfit.empty() && (cpu_drivers || gpus[i].kind != GpuKind::Cpu)) return i;
  return std::nullopt;
}

}  // namespace vllm

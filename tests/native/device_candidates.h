// The devices of this machine that the conformance tests hold against the reference device: the CPU's and
// every one that Vulkan offers. VLLM_TEST_DEVICES=cpu or vulkan leaves the others out.
#pragma once
#include <iterator>

#include "all_devices.h"
#include "device_rig.h"

namespace vllm::test {

struct Candidate {
  std::string name;
  std::string kind;  // candidates of one kind give the same bits
  std::unique_ptr<Device> device;
  bool slow = false;     // likely a GPU that a CPU plays: fewer cases of what takes long
  bool variant = false;  // differs from the candidate before in products and attention alone
};

// Sanitizers make the suite many times slower; one number of threads reaches all code.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int kThreadCounts[] = {2};
#else
inline constexpr int kThreadCounts[] = {1, 2, 3};
#endif

inline const std::vector<Candidate>& candidates() {
  static const std::vector<Candidate> all = [] {
    std::vector<Candidate> list;
    for (TestDevice& each : all_devices({std::begin(kThreadCounts), std::end(kThreadCounts)}))
      list.push_back(
          {each.device->description(), each.kind, std::move(each.device), each.vulkan(), each.variant()});
    return list;
  }();
  return all;
}

inline Device& reference() {
  static const std::unique_ptr<Device> device = make_reference_device();
  return *device;
}

using Run = std::function<std::vector<float>(Device&)>;
using Compare =
    std::function<void(const std::vector<float>& want, const std::vector<float>& got, const Candidate&)>;

/// Whether the device has KV caches of this format.
inline bool has(const Candidate& candidate, KvFormat format) {
  return format != KvFormat::Q8_0 || !candidate.kind.starts_with("vulkan");
}

/// On the candidates that `takes` says, all of them where it is null.
inline void against_reference(const Run& run, const Compare& compare,
                              const std::function<bool(const Candidate&)>& takes = {}) {
  const std::vector<float> want = run(reference());
  for (const Candidate& candidate : candidates()) {
    if (takes && !takes(candidate)) continue;
    INFO(candidate.name);
    compare(want, run(*candidate.device), candidate);
  }
}

inline void against_reference(const Run& run, double relative, double absolute) {
  against_reference(run, [&](const auto& want, const auto& got, const Candidate&) {
    expect_close(want, got, relative, absolute);
  });
}

}  // namespace vllm::test

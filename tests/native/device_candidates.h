// The devices of this machine that the conformance tests hold against the reference device: the CPU's and
// every one that Vulkan offers. VLLM_TEST_DEVICES=cpu or vulkan leaves the others out.
#pragma once
#include <cstdlib>

#include "device_rig.h"

namespace vllm::test {

struct Candidate {
  std::string name;
  std::string kind;  // candidates of one kind give the same bits
  std::unique_ptr<Device> device;
  bool slow = false;  // a GPU that a CPU plays: fewer cases of what takes long
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
    const char* const chosen = std::getenv("VLLM_TEST_DEVICES");
    const auto wanted = [&](const char* kind) { return chosen == nullptr || std::string(chosen) == kind; };
    for (const char* isa : {"baseline", "avx2", "avx512", "avx512bf16"}) {
      for (int threads : kThreadCounts) {
        if (!wanted("cpu")) break;
        try {
          std::unique_ptr<Device> device = make_cpu_device(threads, isa);
          list.push_back({device->description(), isa, std::move(device)});
        } catch (const Error&) {
          MESSAGE("This machine lacks " << isa << ".");
          break;
        }
      }
    }
    for (size_t i = 0; wanted("vulkan") && i < vulkan_devices().size(); ++i) {
      const std::string name = vllm::format("vulkan:%zu", i);
      try {
        std::unique_ptr<Device> device = make_device(name, 0);
        list.push_back({device->description(), name, std::move(device), true});
      } catch (const Error& e) {
        MESSAGE(e.message());
      }
    }
    REQUIRE_MESSAGE(!list.empty(), "This machine has no device of the kind " << (chosen ? chosen : "any"));
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

inline void against_reference(const Run& run, const Compare& compare) {
  const std::vector<float> want = run(reference());
  for (const Candidate& candidate : candidates()) {
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

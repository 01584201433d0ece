// The devices of this machine, for tests that run on each: the CPU with every instruction set it has, and
// what Vulkan offers. VLLM_TEST_DEVICES=cpu or vulkan leaves the others out.
#pragma once
#include <doctest/doctest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "device/cpu/isa.h"
#include "device/device.h"

namespace vllm::test {

inline bool wanted(const std::string& kind) {
  const char* const chosen = std::getenv("VLLM_TEST_DEVICES");
  return chosen == nullptr || chosen == kind;
}

struct TestDevice {
  std::string kind;  // an instruction set, or "vulkan:N"
  std::unique_ptr<Device> device;
  bool vulkan() const { return kind.starts_with("vulkan"); }
};

/// Made anew. `threads` of each CPU device, one device for each number.
inline std::vector<TestDevice> all_devices(const std::vector<int>& threads = {2}) {
  std::vector<TestDevice> out;
  const auto add = [&](const std::string& kind, auto make) {
    try {
      out.push_back({kind, make()});
    } catch (const Error& e) {
      MESSAGE("No " << kind << ": " << e.message());
    }
  };
  if (wanted("cpu"))
    for (const cpu::Isa isa : cpu::available_isas())
      for (const int count : threads) {
        const char* const name = cpu::isa_name(isa);
        add(name, [&] { return make_cpu_device(count, name); });
      }
  if (wanted("vulkan"))
    for (size_t i = 0; i < vulkan_devices().size(); ++i) {
      const std::string name = "vulkan:" + std::to_string(i);
      add(name, [&] { return make_device(name, 0); });
    }
  REQUIRE_MESSAGE(!out.empty(), "This machine has none of the devices asked for.");
  return out;
}

/// For engines: "vulkan" where the environment says so, else "cpu".
inline std::string engine_device() { return wanted("cpu") ? "cpu" : std::getenv("VLLM_TEST_DEVICES"); }

}  // namespace vllm::test

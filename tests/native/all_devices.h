// The devices of this machine, for tests that run on each: the CPU with every instruction set it has, and
// what Vulkan offers, with the plain kernels and with those that a fast GPU would choose.
// VLLM_TEST_DEVICES=cpu or vulkan leaves the others out.
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
  std::string kind;  // an instruction set, or "vulkan:N" and the features in use
  std::unique_ptr<Device> device;
  bool vulkan() const { return kind.starts_with("vulkan"); }
  /// Other kernels of a device that stands in the list before.
  bool variant() const { return kind.find(' ') != std::string::npos; }
  /// Products of codes take their activations as int8.
  bool int8() const { return !vulkan() || kind.find("integer_dot") != std::string::npos; }
};

/// Those features of a Vulkan device that it would use unasked if they are fast.
inline std::string usual_features(const std::string& name) {
  const std::string all = "," + vulkan_features(name) + ",";
  std::string out;
  for (const std::string each : {"integer_dot", "storage16"})
    if (all.find("," + each + ",") != std::string::npos) out += (out.empty() ? "" : ",") + each;
  return out;
}

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
      add(name, [&] { return make_vulkan_device(name, "none"); });
      const std::string features = usual_features(name);
      if (!features.empty()) add(name + " " + features, [&] { return make_vulkan_device(name, features); });
    }
  REQUIRE_MESSAGE(!out.empty(), "This machine has none of the devices asked for.");
  return out;
}

/// For engines: "vulkan" where the environment says so, else "cpu".
inline std::string engine_device() { return wanted("cpu") ? "cpu" : std::getenv("VLLM_TEST_DEVICES"); }

}  // namespace vllm::test

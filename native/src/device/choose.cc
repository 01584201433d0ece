// Devices by name.
#include "base/error.h"
#include "base/log.h"
#include "device/device.h"
#ifdef VLLM_VULKAN
#include "device/vulkan/vulkan_device.h"
#endif

namespace vllm {

std::vector<std::string> vulkan_devices() {
#ifdef VLLM_VULKAN
  return vulkan::device_names();
#else
  return {};
#endif
}

std::unique_ptr<Device> make_vulkan_device(std::string_view name, std::string_view features) {
#ifdef VLLM_VULKAN
  return std::make_unique<vulkan::VulkanDevice>(name, features);
#else
  (void)features;
  fail_load("the device %s is not in this build, needed is auto or cpu", quote(name).c_str());
#endif
}

std::string vulkan_features(std::string_view name) {
#ifdef VLLM_VULKAN
  return vulkan::feature_names(vulkan::choose_gpu(*vulkan::Instance::open(), name).features);
#else
  fail_load("the device %s is not in this build, needed is auto or cpu", quote(name).c_str());
#endif
}

std::unique_ptr<Device> make_device(std::string_view name, int threads) {
  if (name == "cpu") return make_cpu_device(threads);
  if (name == "cuda") fail_load("the device CUDA is not in this build, needed is auto or CPU");
#ifdef VLLM_VULKAN
  if (name == "auto") {
    const std::string gpu = vulkan::first_gpu();
    if (gpu.empty()) return make_cpu_device(threads);
    try {
      return make_vulkan_device(gpu);
    } catch (const Error& error) {
      if (error.status() == Status::InvalidArgument) throw;
      log_warning("%s The CPU is used instead.", error.what());
    }
    return make_cpu_device(threads);
  }
  if (name == "vulkan" || name.starts_with("vulkan:")) return make_vulkan_device(name);
  fail_load("the device %s is unknown, needed is auto, cpu, vulkan or vulkan:N", quote(name).c_str());
#else
  if (name == "auto") return make_cpu_device(threads);
  fail_load("the device %s is not in this build, needed is auto or cpu", quote(name).c_str());
#endif
}

}  // namespace vllm

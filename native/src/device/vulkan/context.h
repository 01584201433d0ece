// A logical device with its one queue.
#pragma once
#include "device/vulkan/gpu.h"

namespace vllm::vulkan {

class Context {
 public:
  explicit Context(std::string_view device_name);  // "vulkan" or "vulkan:N"
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Gpu& gpu() const { return gpu_; }
  const DeviceFunctions& vk() const { return vk_; }
  VkDevice device() const { return device_; }
  VkQueue queue() const { return queue_; }
  /// Bytes of device-local memory that could be allocated now, and what there is in all.
  size_t free_memory() const;
  size_t total_memory() const;

  /// Throws for anything but success: Error(ModelLoad) when memory is short, else Error(Runtime); a lost
  /// device is named. `what` is a participle: "allocating memory".
  void check(VkResult result, const char* what) const;

 private:
  std::shared_ptr<Instance> instance_;
  Gpu gpu_;
  DeviceFunctions vk_;
  VkDevice device_ = VK_NULL_HANDLE;
  VkQueue queue_ = VK_NULL_HANDLE;
};

}  // namespace vllm::vulkan

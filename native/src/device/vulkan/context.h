// A logical device with its one queue.
#pragma once
#include "device/vulkan/gpu.h"

namespace vllm::vulkan {

/// What a user can do about memory that is short, for the end of a message.
inline constexpr const char* kToNeedLess =
    "lower num_blocks, max_num_seqs or max_num_batched_tokens, or take a smaller model";

class Context {
 public:
  /// "vulkan" or "vulkan:N"; `features` as in choose_features().
  explicit Context(std::string_view device_name, std::string_view features = {});
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

  /// Throws for anything but success: Error(ModelLoad) when memory is short, else Error(Runtime). A device
  /// that was lost stays so. `what` is a participle: "allocating memory".
  void check(VkResult result, const char* what) const;
  /// Throws Error(Runtime), always the same, once the device was lost.
  void check_not_lost() const;

 private:
  std::shared_ptr<Instance> instance_;
  Gpu gpu_;
  DeviceFunctions vk_;
  VkDevice device_ = VK_NULL_HANDLE;
  VkQueue queue_ = VK_NULL_HANDLE;
  mutable std::string lost_;  // the message, once the device was lost
};

}  // namespace vllm::vulkan

// The Vulkan loader, opened at run time: a machine without it has no Vulkan devices, nothing more.
#pragma once
#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#include <memory>

namespace vllm::vulkan {

// clang-format off
#define VLLM_VULKAN_INSTANCE_FUNCTIONS(X)                                                                \
  X(vkDestroyInstance) X(vkEnumeratePhysicalDevices) X(vkGetPhysicalDeviceProperties2)                   \
  X(vkGetPhysicalDeviceFeatures2) X(vkGetPhysicalDeviceMemoryProperties2)                                \
  X(vkGetPhysicalDeviceQueueFamilyProperties) X(vkEnumerateDeviceExtensionProperties) X(vkCreateDevice)  \
  X(vkGetDeviceProcAddr)

#define VLLM_VULKAN_DEVICE_FUNCTIONS(X)                                                                  \
  X(vkDestroyDevice) X(vkGetDeviceQueue) X(vkDeviceWaitIdle) X(vkQueueSubmit)                            \
  X(vkAllocateMemory) X(vkFreeMemory) X(vkMapMemory) X(vkCreateBuffer) X(vkDestroyBuffer)                \
  X(vkGetBufferMemoryRequirements) X(vkBindBufferMemory) X(vkGetBufferDeviceAddress)                     \
  X(vkCreateFence) X(vkDestroyFence) X(vkWaitForFences) X(vkResetFences)                                 \
  X(vkCreateCommandPool) X(vkDestroyCommandPool) X(vkResetCommandPool) X(vkAllocateCommandBuffers)       \
  X(vkBeginCommandBuffer) X(vkEndCommandBuffer)                                                          \
  X(vkCreateShaderModule) X(vkDestroyShaderModule) X(vkCreatePipelineLayout) X(vkDestroyPipelineLayout)  \
  X(vkCreateComputePipelines) X(vkDestroyPipeline)                                                       \
  X(vkCreatePipelineCache) X(vkDestroyPipelineCache) X(vkGetPipelineCacheData)                           \
  X(vkCmdBindPipeline) X(vkCmdPushConstants) X(vkCmdDispatch) X(vkCmdPipelineBarrier) X(vkCmdCopyBuffer) \
  X(vkCmdFillBuffer)
// clang-format on

struct InstanceFunctions {
#define X(name) PFN_##name name = nullptr;
  VLLM_VULKAN_INSTANCE_FUNCTIONS(X)
#undef X
};

struct DeviceFunctions {
#define X(name) PFN_##name name = nullptr;
  VLLM_VULKAN_DEVICE_FUNCTIONS(X)
#undef X
};

/// An instance of Vulkan 1.2 or later. The loader stays open for the life of the process: drivers do not
/// survive being unloaded.
class Instance {
 public:
  /// Throws Error(ModelLoad) saying what is missing.
  static std::shared_ptr<Instance> open();
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  VkInstance handle() const { return handle_; }
  uint32_t version() const { return version_; }  // that devices may be used with
  const InstanceFunctions& vk() const { return vk_; }
  /// A function of an extension; null where the loader does not know it.
  PFN_vkVoidFunction find(const char* name) const;

 private:
  Instance() = default;
  uint32_t version_ = 0;
  VkInstance handle_ = VK_NULL_HANDLE;
  InstanceFunctions vk_;
};

}  // namespace vllm::vulkan

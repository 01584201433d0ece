#include "device/vulkan/context.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/log.h"

namespace vllm::vulkan {
namespace {

/// VkPhysicalDeviceCooperativeMatrixFeaturesKHR, for headers before 1.3.255 lack it.
struct MatrixFeatures {
  VkStructureType type = static_cast<VkStructureType>(1000506000);
  void* pNext = nullptr;
  VkBool32 cooperative_matrix = VK_TRUE, robust_access = VK_FALSE;
};

}  // namespace

Context::Context(std::string_view device_name, std::string_view features) : instance_(Instance::open()) {
  gpu_ = choose_gpu(*instance_, device_name);
  gpu_.features = choose_features(gpu_, features);
  const float priority = 1.0f;
  VkDeviceQueueCreateInfo queue{};
  queue.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
  queue.queueFamilyIndex = gpu_.compute_family;
  queue.queueCount = 1;
  queue.pQueuePriorities = &priority;

  const Features& used = gpu_.features;
  VkPhysicalDeviceVulkan11Features v11{};
  v11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES;
  v11.storageBuffer16BitAccess = used.storage16;
  VkPhysicalDeviceVulkan12Features v12{};
  v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
  v12.pNext = &v11;
  v12.bufferDeviceAddress = VK_TRUE;
  v12.shaderFloat16 = used.float16 || used.cooperative_matrix;
  v12.vulkanMemoryModel = used.cooperative_matrix;
  void** next = &v11.pNext;
  const auto enable = [&](auto& features) {
    *next = &features;
    next = &features.pNext;
  };
  VkPhysicalDeviceShaderIntegerDotProductFeatures dot{};
  dot.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES;
  dot.shaderIntegerDotProduct = VK_TRUE;
  if (used.integer_dot) enable(dot);
  VkPhysicalDeviceSubgroupSizeControlFeatures sizes{};
  sizes.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES;
  sizes.subgroupSizeControl = VK_TRUE;
  sizes.computeFullSubgroups = VK_TRUE;
  MatrixFeatures matrix;
  if (used.cooperative_matrix) enable(sizes), enable(matrix);

  std::vector<const char*> extensions;
  if (gpu_.memory_budget) extensions.push_back(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  if (used.integer_dot && gpu_.dot_extension)
    extensions.push_back(VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME);
  if (used.cooperative_matrix) extensions.push_back(kMatrixExtension);
  VkDeviceCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
  info.pNext = &v12;
  info.queueCreateInfoCount = 1;
  info.pQueueCreateInfos = &queue;
  info.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
  info.ppEnabledExtensionNames = extensions.data();
  if (const VkResult result = instance_->vk().vkCreateDevice(gpu_.handle, &info, nullptr, &device_);
      result != VK_SUCCESS)
    fail_load("The Vulkan device %s could not be opened (error %d).", gpu_.name.c_str(), result);
  const char* missing = nullptr;
#define X(name)                                                                                 \
  vk_.name = reinterpret_cast<PFN_##name>(instance_->vk().vkGetDeviceProcAddr(device_, #name)); \
  if (!vk_.name) missing = #name;
  VLLM_VULKAN_DEVICE_FUNCTIONS(X)
#undef X
  if (missing) {
    if (vk_.vkDestroyDevice) vk_.vkDestroyDevice(device_, nullptr);
    fail_load("The driver of the Vulkan device %s lacks %s.", gpu_.name.c_str(), missing);
  }
  vk_.vkGetDeviceQueue(device_, gpu_.compute_family, 0, &queue_);
}

Context::~Context() {
  if (device_) vk_.vkDestroyDevice(device_, nullptr);
}

size_t Context::total_memory() const {
  VkDeviceSize total = 0;
  for (uint32_t i = 0; i < gpu_.memory.memoryHeapCount; ++i)
    if (gpu_.memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT)
      total = std::max(total, gpu_.memory.memoryHeaps[i].size);
  return static_cast<size_t>(total);
}

size_t Context::free_memory() const {
  if (!gpu_.memory_budget) return total_memory();
  VkPhysicalDeviceMemoryBudgetPropertiesEXT budget{};
  budget.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT;
  VkPhysicalDeviceMemoryProperties2 memory{};
  memory.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2;
  memory.pNext = &budget;
  instance_->vk().vkGetPhysicalDeviceMemoryProperties2(gpu_.handle, &memory);
  VkDeviceSize free = 0;
  for (uint32_t i = 0; i < memory.memoryProperties.memoryHeapCount; ++i)
    if (memory.memoryProperties.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT)
      free = std::max(free, budget.heapBudget[i] - std::min(budget.heapBudget[i], budget.heapUsage[i]));
  return static_cast<size_t>(free);
}

void Context::check(VkResult result, const char* what) const {
  switch (result) {
    case VK_SUCCESS:
      return;
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
    case VK_ERROR_OUT_OF_HOST_MEMORY:
      fail_load("Memory of the Vulkan device %s ran out in %s: %.0f MB are free; %s.", gpu_.name.c_str(),
                what, static_cast<double>(free_memory()) / 1e6, kToNeedLess);
    case VK_ERROR_DEVICE_LOST:
      if (lost_.empty()) {
        lost_ = format("The Vulkan device %s was lost in %s: the model must be loaded again.",
                       gpu_.name.c_str(), what);
        log_warning("%s", lost_.c_str());
      }
      check_not_lost();
      break;
    default:
      fail_runtime("The Vulkan device %s failed in %s (error %d).", gpu_.name.c_str(), what, result);
  }
}

void Context::check_not_lost() const {
  if (!lost_.empty()) fail_runtime("%s", lost_.c_str());
}

}  // namespace vllm::vulkan

// A Vulkan layer that loses devices, runs out of memory, has small buffers and skips work when it is told to
// (vulkan_faults.h), in front of whatever driver there is. A lost device stays lost; one that is opened after
// it works.
#include <vulkan/vk_layer.h>

#include <cstring>
#include <map>
#include <mutex>

#include "vulkan_faults.h"

extern "C" __attribute__((visibility("default"))) VulkanFaults vulkan_faults;
VulkanFaults vulkan_faults;

namespace {

struct Device {
  PFN_vkGetDeviceProcAddr next = nullptr;
  PFN_vkDestroyDevice destroy = nullptr;
  PFN_vkQueueSubmit submit = nullptr;
  PFN_vkWaitForFences wait = nullptr;
  PFN_vkDeviceWaitIdle wait_idle = nullptr;
  PFN_vkAllocateMemory allocate = nullptr;
  PFN_vkCmdDispatch dispatch = nullptr;
  VkDevice handle = VK_NULL_HANDLE;
  bool lost = false;

  /// What runs ends first: unlike on a GPU that was reset, it would still touch memory that is freed then.
  VkResult lose() {
    if (!lost) ++vulkan_faults.lost;
    lost = true;
    wait_idle(handle);
    return VK_ERROR_DEVICE_LOST;
  }
};

std::mutex mutex;
std::map<void*, std::pair<VkInstance, PFN_vkGetInstanceProcAddr>>
    instances;  // by the loader's dispatch table, as are
std::map<void*, Device> devices;

template <class Handle>
void* key(Handle handle) {
  return *reinterpret_cast<void**>(handle);
}

template <class Handle>
Device& device_of(Handle handle) {
  const std::lock_guard lock(mutex);
  return devices.at(key(handle));
}

/// Counts a call; true when it is one that fails.
bool due(std::atomic<int>& left) {
  if (left < 0) return false;
  if (left == 0) return true;
  --left;
  return false;
}

/// The part of a chain by which the loader links its layers.
template <class Info>
Info* link_of(const void* chain, VkStructureType type) {
  for (auto* info = static_cast<const Info*>(chain); info; info = static_cast<const Info*>(info->pNext))
    if (info->sType == type && info->function == VK_LAYER_LINK_INFO) return const_cast<Info*>(info);
  return nullptr;
}

VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo* info,
                                               const VkAllocationCallbacks* allocator, VkInstance* instance) {
  auto* link = link_of<VkLayerInstanceCreateInfo>(info->pNext, VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO);
  const auto next = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
  link->u.pLayerInfo = link->u.pLayerInfo->pNext;
  const VkResult result = reinterpret_cast<PFN_vkCreateInstance>(next(VK_NULL_HANDLE, "vkCreateInstance"))(
      info, allocator, instance);
  const std::lock_guard lock(mutex);
  if (result == VK_SUCCESS) instances[key(*instance)] = {*instance, next};
  return result;
}

/// What is behind this layer.
template <class Function>
Function next_of(VkPhysicalDevice physical, const char* name) {
  const std::lock_guard lock(mutex);
  const auto& [instance, function] = instances.at(key(physical));
  return reinterpret_cast<Function>(function(instance, name));
}

VKAPI_ATTR void VKAPI_CALL get_memory(VkPhysicalDevice physical, VkPhysicalDeviceMemoryProperties2* memory) {
  next_of<PFN_vkGetPhysicalDeviceMemoryProperties2>(physical, "vkGetPhysicalDeviceMemoryProperties2")(
      physical, memory);
  if (vulkan_faults.heap == 0) return;
  for (VkMemoryHeap& heap : memory->memoryProperties.memoryHeaps) heap.size = vulkan_faults.heap;
  for (auto* part = static_cast<VkBaseOutStructure*>(memory->pNext); part; part = part->pNext)
    if (part->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT)
      for (VkDeviceSize& budget :
           reinterpret_cast<VkPhysicalDeviceMemoryBudgetPropertiesEXT*>(part)->heapBudget)
        budget = vulkan_faults.heap;
}

VKAPI_ATTR void VKAPI_CALL get_properties(VkPhysicalDevice physical,
                                          VkPhysicalDeviceProperties2* properties) {
  next_of<PFN_vkGetPhysicalDeviceProperties2>(physical, "vkGetPhysicalDeviceProperties2")(physical,
                                                                                          properties);
  if (vulkan_faults.discrete) properties->properties.deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
  if (vulkan_faults.old) properties->properties.apiVersion = VK_API_VERSION_1_1;
  if (vulkan_faults.buffer == 0) return;
  for (auto* part = static_cast<VkBaseOutStructure*>(properties->pNext); part; part = part->pNext)
    if (part->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES)
      reinterpret_cast<VkPhysicalDeviceVulkan11Properties*>(part)->maxMemoryAllocationSize =
          vulkan_faults.buffer;
}

VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical, const VkDeviceCreateInfo* info,
                                             const VkAllocationCallbacks* allocator, VkDevice* handle) {
  auto* link = link_of<VkLayerDeviceCreateInfo>(info->pNext, VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO);
  const auto next_instance = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
  if (due(vulkan_faults.opens)) return VK_ERROR_INITIALIZATION_FAILED;
  Device device;
  device.next = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
  link->u.pLayerInfo = link->u.pLayerInfo->pNext;
  const auto create = reinterpret_cast<PFN_vkCreateDevice>(next_instance(VK_NULL_HANDLE, "vkCreateDevice"));
  if (const VkResult result = create(physical, info, allocator, handle); result != VK_SUCCESS) return result;
  const auto function = [&](auto& out, const char* name) {
    out = reinterpret_cast<std::remove_reference_t<decltype(out)>>(device.next(*handle, name));
  };
  function(device.destroy, "vkDestroyDevice");
  function(device.submit, "vkQueueSubmit");
  function(device.wait, "vkWaitForFences");
  function(device.wait_idle, "vkDeviceWaitIdle");
  function(device.allocate, "vkAllocateMemory");
  function(device.dispatch, "vkCmdDispatch");
  device.handle = *handle;
  const std::lock_guard lock(mutex);
  devices[key(*handle)] = device;
  return VK_SUCCESS;
}

VKAPI_ATTR void VKAPI_CALL destroy_device(VkDevice handle, const VkAllocationCallbacks* allocator) {
  if (!handle) return;
  void* const entry = key(handle);
  device_of(handle).destroy(handle, allocator);
  const std::lock_guard lock(mutex);
  devices.erase(entry);
}

VKAPI_ATTR VkResult VKAPI_CALL submit(VkQueue queue, uint32_t count, const VkSubmitInfo* infos,
                                      VkFence fence) {
  Device& device = device_of(queue);
  if (device.lost || due(vulkan_faults.submits)) return device.lose();
  if (due(vulkan_faults.short_submits)) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
  return device.submit(queue, count, infos, fence);
}

VKAPI_ATTR VkResult VKAPI_CALL wait(VkDevice handle, uint32_t count, const VkFence* fences, VkBool32 all,
                                    uint64_t timeout) {
  Device& device = device_of(handle);
  if (device.lost || due(vulkan_faults.waits)) return device.lose();
  return device.wait(handle, count, fences, all, timeout);
}

VKAPI_ATTR VkResult VKAPI_CALL wait_idle(VkDevice handle) {
  Device& device = device_of(handle);
  return device.lost ? device.lose() : device.wait_idle(handle);
}

VKAPI_ATTR VkResult VKAPI_CALL allocate(VkDevice handle, const VkMemoryAllocateInfo* info,
                                        const VkAllocationCallbacks* allocator, VkDeviceMemory* memory) {
  if (due(vulkan_faults.allocations)) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
  return device_of(handle).allocate(handle, info, allocator, memory);
}

VKAPI_ATTR void VKAPI_CALL dispatch(VkCommandBuffer commands, uint32_t x, uint32_t y, uint32_t z) {
  if (!due(vulkan_faults.dispatches)) device_of(commands).dispatch(commands, x, y, z);
}

PFN_vkVoidFunction of_device(const char* name) {
  const std::pair<const char*, PFN_vkVoidFunction> own[] = {
      {"vkDestroyDevice", reinterpret_cast<PFN_vkVoidFunction>(destroy_device)},
      {"vkQueueSubmit", reinterpret_cast<PFN_vkVoidFunction>(submit)},
      {"vkWaitForFences", reinterpret_cast<PFN_vkVoidFunction>(wait)},
      {"vkDeviceWaitIdle", reinterpret_cast<PFN_vkVoidFunction>(wait_idle)},
      {"vkAllocateMemory", reinterpret_cast<PFN_vkVoidFunction>(allocate)},
      {"vkCmdDispatch", reinterpret_cast<PFN_vkVoidFunction>(dispatch)}};
  for (const auto& [known, function] : own)
    if (std::strcmp(known, name) == 0) return function;
  return nullptr;
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_device_function(VkDevice device, const char* name) {
  if (std::strcmp(name, "vkGetDeviceProcAddr") == 0)
    return reinterpret_cast<PFN_vkVoidFunction>(get_device_function);
  if (const PFN_vkVoidFunction own = of_device(name)) return own;
  return device_of(device).next(device, name);
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_instance_function(VkInstance instance, const char* name) {
  const std::pair<const char*, PFN_vkVoidFunction> own[] = {
      {"vkGetInstanceProcAddr", reinterpret_cast<PFN_vkVoidFunction>(get_instance_function)},
      {"vkGetDeviceProcAddr", reinterpret_cast<PFN_vkVoidFunction>(get_device_function)},
      {"vkCreateInstance", reinterpret_cast<PFN_vkVoidFunction>(create_instance)},
      {"vkCreateDevice", reinterpret_cast<PFN_vkVoidFunction>(create_device)},
      {"vkGetPhysicalDeviceMemoryProperties2", reinterpret_cast<PFN_vkVoidFunction>(get_memory)},
      {"vkGetPhysicalDeviceProperties2", reinterpret_cast<PFN_vkVoidFunction>(get_properties)}};
  for (const auto& [known, function] : own)
    if (std::strcmp(known, name) == 0) return function;
  if (const PFN_vkVoidFunction device = of_device(name)) return device;
  if (!instance) return nullptr;
  PFN_vkGetInstanceProcAddr next;
  {
    const std::lock_guard lock(mutex);
    next = instances.at(key(instance)).second;
  }
  return next(instance, name);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) VKAPI_ATTR VkResult VKAPI_CALL
vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface* out) {
  out->loaderLayerInterfaceVersion = 2;
  out->pfnGetInstanceProcAddr = get_instance_function;
  out->pfnGetDeviceProcAddr = get_device_function;
  out->pfnGetPhysicalDeviceProcAddr = nullptr;
  return VK_SUCCESS;
}

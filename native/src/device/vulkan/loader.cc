#include "device/vulkan/loader.h"

#include <dlfcn.h>

#include <algorithm>

#include "base/error.h"

namespace vllm::vulkan {
namespace {

PFN_vkGetInstanceProcAddr open_loader() {
  static const PFN_vkGetInstanceProcAddr entry = []() -> PFN_vkGetInstanceProcAddr {
    for (const char* name : {"libvulkan.so.1", "libvulkan.1.dylib"})
      if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL))
        return reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(library, "vkGetInstanceProcAddr"));
    return nullptr;
  }();
  return entry;
}

}  // namespace

std::shared_ptr<Instance> Instance::open() {
  const PFN_vkGetInstanceProcAddr entry = open_loader();
  if (!entry) fail_load("This machine has no Vulkan loader (libvulkan.so.1).");
  const auto global = [&](const char* name) { return entry(VK_NULL_HANDLE, name); };
  const auto version = reinterpret_cast<PFN_vkEnumerateInstanceVersion>(global("vkEnumerateInstanceVersion"));
  const auto create = reinterpret_cast<PFN_vkCreateInstance>(global("vkCreateInstance"));
  uint32_t found = VK_API_VERSION_1_0;
  if (version) version(&found);
  if (found < VK_API_VERSION_1_2)
    fail_load("The Vulkan loader is of version %u.%u, needed is 1.2.", VK_API_VERSION_MAJOR(found),
              VK_API_VERSION_MINOR(found));

  VkApplicationInfo application{};
  application.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
  application.pApplicationName = "vllm";
  application.apiVersion = std::min<uint32_t>(found, VK_API_VERSION_1_3);
  VkInstanceCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
  info.pApplicationInfo = &application;
  std::shared_ptr<Instance> instance(new Instance);
  instance->version_ = application.apiVersion;
  if (const VkResult result = create(&info, nullptr, &instance->handle_); result != VK_SUCCESS)
    fail_load("Vulkan has no usable driver on this machine (error %d).", result);
  bool complete = true;
#define X(name)                                                                       \
  instance->vk_.name = reinterpret_cast<PFN_##name>(entry(instance->handle_, #name)); \
  complete = complete && instance->vk_.name;
  VLLM_VULKAN_INSTANCE_FUNCTIONS(X)
#undef X
  if (!complete) fail_load("The Vulkan loader lacks functions of version 1.2.");
  return instance;
}

PFN_vkVoidFunction Instance::find(const char* name) const { return open_loader()(handle_, name); }

Instance::~Instance() {
  if (handle_ && vk_.vkDestroyInstance) vk_.vkDestroyInstance(handle_, nullptr);
}

}  // namespace vllm::vulkan

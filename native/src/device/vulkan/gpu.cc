#include "device/vulkan/gpu.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <set>

#include "base/error.h"

namespace vllm::vulkan {
namespace {

struct NamedFeature {
  const char* name;
  bool Features::* on;
};
constexpr NamedFeature kFeatures[] = {{"integer_dot", &Features::integer_dot},
                                      {"storage16", &Features::storage16},
                                      {"float16", &Features::float16},
                                      {"cooperative_matrix", &Features::cooperative_matrix}};

#ifdef VLLM_VULKAN_MATRIX
/// VkCooperativeMatrixPropertiesKHR, for headers before 1.3.255 lack it.
struct MatrixSize {
  VkStructureType type;
  void* next;
  uint32_t rows, columns, inner;
  uint32_t a, b, c, result;  // VkComponentTypeKHR
  VkBool32 saturating;
  uint32_t scope;  // VkScopeKHR
};
constexpr auto kMatrixSizeType = static_cast<VkStructureType>(1000506001);
constexpr uint32_t kFloat16 = 0, kFloat32 = 1, kSubgroup = 3;

/// Whether subgroups multiply the matrices of shaders/matmul_half.glsl.
bool has_matrices(const Instance& instance, VkPhysicalDevice handle) {
  const auto list = reinterpret_cast<VkResult (*)(VkPhysicalDevice, uint32_t*, MatrixSize*)>(
      instance.find("vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
  uint32_t count = 0;
  if (!list || list(handle, &count, nullptr) != VK_SUCCESS) return false;
  std::vector<MatrixSize> sizes(count);
  for (MatrixSize& size : sizes) size.type = kMatrixSizeType;
  if (list(handle, &count, sizes.data()) < 0) return false;
  return std::any_of(sizes.begin(), sizes.end(), [](const MatrixSize& s) {
    return s.rows == 16 && s.columns == 16 && s.inner == 16 && s.a == kFloat16 && s.b == kFloat16 &&
           s.c == kFloat32 && s.result == kFloat32 && s.scope == kSubgroup;
  });
}
#endif

GpuKind kind_of(VkPhysicalDeviceType type) {
  switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
      return GpuKind::Discrete;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
      return GpuKind::Integrated;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
      return GpuKind::Virtual;
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
      return GpuKind::Cpu;
    default:
      return GpuKind::Other;
  }
}

std::set<std::string> extensions_of(const InstanceFunctions& vk, VkPhysicalDevice handle) {
  uint32_t count = 0;
  vk.vkEnumerateDeviceExtensionProperties(handle, nullptr, &count, nullptr);
  std::vector<VkExtensionProperties> list(count);
  vk.vkEnumerateDeviceExtensionProperties(handle, nullptr, &count, list.data());
  std::set<std::string> names;
  for (const VkExtensionProperties& e : list) names.insert(e.extensionName);
  return names;
}

/// The first family that computes, one without graphics if there is one.
bool find_compute_family(const InstanceFunctions& vk, VkPhysicalDevice handle, uint32_t& family) {
  uint32_t count = 0;
  vk.vkGetPhysicalDeviceQueueFamilyProperties(handle, &count, nullptr);
  std::vector<VkQueueFamilyProperties> list(count);
  vk.vkGetPhysicalDeviceQueueFamilyProperties(handle, &count, list.data());
  bool found = false;
  for (uint32_t i = 0; i < count; ++i) {
    if (!(list[i].queueFlags & VK_QUEUE_COMPUTE_BIT)) continue;
    const bool plain = !(list[i].queueFlags & VK_QUEUE_GRAPHICS_BIT);
    if (!found || plain) family = i;
    found = true;
    if (plain) break;
  }
  return found;
}

void read_properties(const InstanceFunctions& vk, Gpu& gpu) {
  VkPhysicalDeviceVulkan11Properties v11{};
  v11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES;
  VkPhysicalDeviceVulkan12Properties v12{};
  v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES;
  v12.pNext = &v11;
  VkPhysicalDeviceShaderIntegerDotProductProperties dot{};
  dot.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_PROPERTIES;
  VkPhysicalDeviceProperties2 all{};
  all.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
  all.pNext = &v12;
  VkPhysicalDeviceMaintenance4Properties buffers{};
  buffers.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES;
  if (gpu.features.integer_dot) v11.pNext = &dot;
  if (gpu.api >= VK_API_VERSION_1_3) buffers.pNext = v11.pNext, v11.pNext = &buffers;
  vk.vkGetPhysicalDeviceProperties2(gpu.handle, &all);

  const VkPhysicalDeviceLimits& limits = all.properties.limits;
  gpu.driver = std::string(v12.driverName) + (v12.driverInfo[0] ? std::string(" ") + v12.driverInfo : "");
  gpu.subgroup_size = v11.subgroupSize;
  if (gpu.subgroup_size > 64) gpu.features.cooperative_matrix = false;  // four make a workgroup
  gpu.fast.storage16 = gpu.features.storage16;
  gpu.fast.integer_dot = gpu.features.integer_dot && dot.integerDotProduct4x8BitPackedSignedAccelerated;
  gpu.max_group_size = limits.maxComputeWorkGroupInvocations;
  std::copy_n(limits.maxComputeWorkGroupCount, 3, gpu.max_group_count);
  gpu.max_shared_memory = limits.maxComputeSharedMemorySize;
  gpu.max_allocation = static_cast<size_t>(v11.maxMemoryAllocationSize);
  if (buffers.maxBufferSize)
    gpu.max_allocation = std::min(gpu.max_allocation, static_cast<size_t>(buffers.maxBufferSize));
  std::memcpy(gpu.cache_uuid, all.properties.pipelineCacheUUID, VK_UUID_SIZE);
}

void read_features(const Instance& instance, const std::set<std::string>& extensions, Gpu& gpu) {
  VkPhysicalDeviceVulkan11Features v11{};
  v11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES;
  VkPhysicalDeviceVulkan12Features v12{};
  v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
  v12.pNext = &v11;
  VkPhysicalDeviceShaderIntegerDotProductFeatures dot{};
  dot.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES;
  VkPhysicalDeviceSubgroupSizeControlFeatures sizes{};
  sizes.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES;
  gpu.dot_extension =
      gpu.api < VK_API_VERSION_1_3 && extensions.count(VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME) != 0;
  if (gpu.api >= VK_API_VERSION_1_3 || gpu.dot_extension) v11.pNext = &dot;
  if (gpu.api >= VK_API_VERSION_1_3) dot.pNext = &sizes;
  VkPhysicalDeviceFeatures2 all{};
  all.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  all.pNext = &v12;
  instance.vk().vkGetPhysicalDeviceFeatures2(gpu.handle, &all);
  gpu.features.integer_dot = dot.shaderIntegerDotProduct;
  gpu.features.storage16 = v11.storageBuffer16BitAccess;
  gpu.features.float16 = v12.shaderFloat16;
#ifdef VLLM_VULKAN_MATRIX
  gpu.features.cooperative_matrix = extensions.count(kMatrixExtension) != 0 && v12.shaderFloat16 &&
                                    v12.vulkanMemoryModel && sizes.subgroupSizeControl &&
                                    sizes.computeFullSubgroups && has_matrices(instance, gpu.handle);
#endif
  if (!v12.bufferDeviceAddress) gpu.unfit = "it has no buffer device addresses";
}

std::string text_of(const std::vector<Gpu>& gpus) {
  std::string out;
  for (size_t i = 0; i < gpus.size(); ++i)
    out += format("%s%zu: %s%s%s", i ? ", " : "", i, gpus[i].name.c_str(), gpus[i].unfit.empty() ? "" : " - ",
                  gpus[i].unfit.c_str());
  return out.empty() ? "none" : out;
}

}  // namespace

std::vector<Gpu> list_gpus(const Instance& instance) {
  const InstanceFunctions& vk = instance.vk();
  uint32_t count = 0;
  vk.vkEnumeratePhysicalDevices(instance.handle(), &count, nullptr);
  std::vector<VkPhysicalDevice> handles(count);
  vk.vkEnumeratePhysicalDevices(instance.handle(), &count, handles.data());
  handles.resize(count);
  std::vector<Gpu> out;
  for (const VkPhysicalDevice handle : handles) {
    Gpu gpu;
    gpu.handle = handle;
    VkPhysicalDeviceProperties2 properties{};
    properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
    vk.vkGetPhysicalDeviceProperties2(handle, &properties);
    gpu.name = properties.properties.deviceName;
    gpu.kind = kind_of(properties.properties.deviceType);
    gpu.api = std::min(properties.properties.apiVersion, instance.version());
    if (gpu.api < VK_API_VERSION_1_2) {
      gpu.unfit = format("it has Vulkan %u.%u, needed is 1.2", VK_API_VERSION_MAJOR(gpu.api),
                         VK_API_VERSION_MINOR(gpu.api));
    } else {
      const std::set<std::string> extensions = extensions_of(vk, handle);
      read_features(instance, extensions, gpu);
      read_properties(vk, gpu);
      gpu.memory_budget = extensions.count(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME) != 0;
      if (!find_compute_family(vk, handle, gpu.compute_family)) gpu.unfit = "it has no queue that computes";
    }
    VkPhysicalDeviceMemoryProperties2 memory{};
    memory.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2;
    vk.vkGetPhysicalDeviceMemoryProperties2(handle, &memory);
    gpu.memory = memory.memoryProperties;
    out.push_back(std::move(gpu));
  }
  sort_gpus(out);
  return out;
}

std::vector<std::string> device_names() {
  std::vector<std::string> out;
  try {
    const auto instance = Instance::open();
    for (const Gpu& gpu : list_gpus(*instance))
      out.push_back(gpu.name + (gpu.unfit.empty() ? "" : " (cannot be used: " + gpu.unfit + ")"));
  } catch (const Error&) {  // no loader or no driver
  }
  return out;
}

std::string first_gpu() {
  try {
    const auto instance = Instance::open();
    if (const auto found = first_usable(list_gpus(*instance), false)) return format("vulkan:%zu", *found);
  } catch (const Error&) {  // no loader or no driver
  }
  return {};
}

std::string feature_names(const Features& features) {
  std::string out;
  for (const NamedFeature& each : kFeatures)
    if (features.*each.on) out += std::string(out.empty() ? "" : ",") + each.name;
  return out;
}

Features choose_features(const Gpu& gpu, std::string_view names) {
  if (names.empty()) {
    const char* const set = std::getenv("VLLM_VULKAN_FEATURES");
    if (!set || !*set) return gpu.fast;
    names = set;
  }
  Features out;
  if (names == "none") return out;
  for (std::string_view rest = names; !rest.empty();) {
    const std::string_view name = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    bool known = false;
    for (const NamedFeature& each : kFeatures)
      if (name == each.name && gpu.features.*each.on) known = out.*each.on = true;
    if (known) continue;
    const std::string has = feature_names(gpu.features);
    fail_argument("The feature %s of Vulkan is not available; %s has %s.", quote(name).c_str(),
                  gpu.name.c_str(), has.empty() ? "none" : has.c_str());
  }
  return out;
}

Gpu choose_gpu(const Instance& instance, std::string_view name) {
  const std::vector<Gpu> gpus = list_gpus(instance);
  if (name == "vulkan") {
    if (const auto found = first_usable(gpus, true)) return gpus[*found];
    fail_load("No Vulkan device can be used; there are: %s.", text_of(gpus).c_str());
  }
  constexpr std::string_view kPrefix = "vulkan:";
  size_t index = 0;
  const std::string_view digits = name.substr(std::min(name.size(), kPrefix.size()));
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (!name.starts_with(kPrefix) || error != std::errc{} || end != digits.data() + digits.size())
    fail_load("The device %s is unknown, needed is vulkan or vulkan:N.", quote(name).c_str());
  if (index >= gpus.size())
    fail_load("There is no Vulkan device %zu; there are: %s.", index, text_of(gpus).c_str());
  if (!gpus[index].unfit.empty())
    fail_load("The Vulkan device %zu (%s) cannot be used: %s.", index, gpus[index].name.c_str(),
              gpus[index].unfit.c_str());
  return gpus[index];
}

}  // namespace vllm::vulkan

// The Vulkan devices of this machine: what they are and what they can do.
#pragma once
#include <string>
#include <vector>

#include "device/gpu_choice.h"
#include "device/vulkan/loader.h"

namespace vllm::vulkan {

/// What kernels may use where it is there. None is needed: all kernels have a form for the plainest device.
struct Features {
  bool integer_dot = false;         // dot products of four int8
  bool storage16 = false;           // 16-bit values in memory
  bool float16 = false;             // fp16 arithmetic
  bool cooperative_matrix = false;  // products of 16 x 16 matrices of fp16 with sums in f32, by a subgroup
};

inline constexpr const char* kMatrixExtension = "VK_KHR_cooperative_matrix";

struct Gpu : GpuDescription {
  VkPhysicalDevice handle = VK_NULL_HANDLE;
  std::string driver;  // "llvmpipe Mesa 22.3.6"
  uint32_t api = 0;
  uint32_t compute_family = 0;

  Features features;           // that it has; of a Context, that are used
  Features fast;               // of those, the ones to use unless told otherwise
  bool dot_extension = false;  // integer_dot is an extension, not a part of its Vulkan
  uint32_t subgroup_size = 0;
  uint32_t max_group_size = 0;       // invocations of a workgroup
  uint32_t max_group_count[3] = {};  // workgroups of a dispatch
  uint32_t max_shared_memory = 0;    // bytes of a workgroup
  size_t max_allocation = 0;         // bytes of one buffer
  bool memory_budget = false;        // VK_EXT_memory_budget
  VkPhysicalDeviceMemoryProperties memory{};
  uint8_t cache_uuid[VK_UUID_SIZE] = {};
};

/// All devices in the order of "vulkan:N": sorted by kind, in the loader's order among equals.
std::vector<Gpu> list_gpus(const Instance& instance);

/// Their names, none where there is no Vulkan.
std::vector<std::string> device_names();
/// "vulkan:N" of the first one that is a GPU and can be used; empty when there is none.
std::string first_gpu();

/// `names` of features that the device has, with commas between, or "none"; empty: VLLM_VULKAN_FEATURES of
/// the environment, else the fast ones. Throws Error(InvalidArgument) naming those there are.
Features choose_features(const Gpu& gpu, std::string_view names);
/// The names of the features that are on, with commas between.
std::string feature_names(const Features& features);

/// For `name` "vulkan" or "vulkan:N". Throws Error(ModelLoad) naming the devices there are.
Gpu choose_gpu(const Instance& instance, std::string_view name);

}  // namespace vllm::vulkan

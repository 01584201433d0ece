// Shaders made ready for the device. A pipeline is a shader and the values of its specialization constants;
// each is built when first used and kept, and what the driver made of it is kept on disk.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "device/vulkan/context.h"

namespace vllm::vulkan {

/// One for each file of shaders/*.comp, by its name.
enum class Shader : uint32_t {
#define VLLM_SHADER(name) name,
#include <vulkan_shader_list.inc>
#undef VLLM_SHADER
};

class Pipelines {
 public:
  explicit Pipelines(const Context& context);
  ~Pipelines();
  Pipelines(const Pipelines&) = delete;
  Pipelines& operator=(const Pipelines&) = delete;

  /// constants[i] is specialization constant i; number 0 is the size of a workgroup.
  VkPipeline get(Shader shader, std::span<const uint32_t> constants);
  /// Of all pipelines: push constants of kMaxParameterBytes and nothing else.
  VkPipelineLayout layout() const { return layout_; }

  static constexpr uint32_t kMaxParameterBytes = 128;  // what every device has

 private:
  VkShaderModule module(Shader shader);
  std::string cache_path() const;

  const Context& context_;
  VkPipelineLayout layout_ = VK_NULL_HANDLE;
  VkPipelineCache cache_ = VK_NULL_HANDLE;
  size_t saved_bytes_ = 0;  // of the file that was read
  std::map<Shader, VkShaderModule> modules_;
  std::map<std::vector<uint32_t>, VkPipeline> pipelines_;  // by shader and constants
  std::vector<uint32_t> key_;
};

}  // namespace vllm::vulkan

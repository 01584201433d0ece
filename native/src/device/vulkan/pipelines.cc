#include "device/vulkan/pipelines.h"

#define XXH_INLINE_ALL
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace vllm::vulkan {
namespace {

#include <vulkan_shader_code.inc>  // constexpr uint32_t k_NAME[] for each shader

struct Code {
  const char* name;
  const uint32_t* words;
  size_t bytes;
};

constexpr Code kCode[] = {
#define VLLM_SHADER(name) {#name, k_##name, sizeof k_##name},
#include <vulkan_shader_list.inc>
#undef VLLM_SHADER
};

/// The last bytes of the file: drivers check the header of what they get, not what is behind it.
std::string checksum(std::string_view data) {
  const XXH64_hash_t hash = XXH3_64bits(data.data(), data.size());
  return {reinterpret_cast<const char*>(&hash), sizeof hash};
}
constexpr size_t kChecksumBytes = sizeof(XXH64_hash_t);

}  // namespace

Pipelines::Pipelines(const Context& context) : context_(context) {
  const DeviceFunctions& vk = context.vk();
  VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0, kMaxParameterBytes};
  VkPipelineLayoutCreateInfo layout{};
  layout.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
  layout.pushConstantRangeCount = 1;
  layout.pPushConstantRanges = &range;
  context.check(vk.vkCreatePipelineLayout(context.device(), &layout, nullptr, &layout_),
                "making a pipeline layout");
  std::string saved;
  if (const std::string path = cache_path(); !path.empty()) {
    std::ifstream file(path, std::ios::binary);
    saved.assign(std::istreambuf_iterator<char>(file), {});
    const size_t bytes = saved.size() - std::min(saved.size(), kChecksumBytes);
    const bool whole = saved.substr(bytes) == checksum(std::string_view(saved).substr(0, bytes));
    saved.resize(whole ? bytes : 0);
  }
  // The driver checks the header, which names device and driver version, and starts empty when it is
  // another's.
  VkPipelineCacheCreateInfo cache{};
  cache.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO;
  cache.initialDataSize = saved.size();
  cache.pInitialData = saved.data();
  context.check(vk.vkCreatePipelineCache(context.device(), &cache, nullptr, &cache_),
                "making a pipeline cache");
  saved_bytes_ = saved.size();
}

Pipelines::~Pipelines() {
  const DeviceFunctions& vk = context_.vk();
  size_t bytes = 0;
  vk.vkGetPipelineCacheData(context_.device(), cache_, &bytes, nullptr);
  if (const std::string path = cache_path(); bytes != saved_bytes_ && !path.empty()) {
    std::string data(bytes, '\0');
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
    const std::string fresh = path + format(".%d", static_cast<int>(getpid()));
    const bool complete =
        vk.vkGetPipelineCacheData(context_.device(), cache_, &bytes, data.data()) == VK_SUCCESS;
    data.resize(bytes);
    if (complete && (std::ofstream(fresh, std::ios::binary) << data << checksum(data)).flush())
      std::filesystem::rename(fresh, path, error);
  }
  for (const auto& [key, pipeline] : pipelines_) vk.vkDestroyPipeline(context_.device(), pipeline, nullptr);
  for (const auto& [shader, module] : modules_) vk.vkDestroyShaderModule(context_.device(), module, nullptr);
  vk.vkDestroyPipelineCache(context_.device(), cache_, nullptr);
  vk.vkDestroyPipelineLayout(context_.device(), layout_, nullptr);
}

/// In the user's cache folder; empty when there is none.
std::string Pipelines::cache_path() const {
  std::string folder;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache) {
    folder = cache;
  } else if (const char* home = std::getenv("HOME"); home && *home) {
    folder = std::string(home) + "/.cache";
  } else {
    return {};
  }
  std::string id;
  for (const uint8_t byte : context_.gpu().cache_uuid) id += format("%02x", byte);
  return folder + "/vllm/vulkan-" + id;
}

VkShaderModule Pipelines::module(Shader shader) {
  VkShaderModule& module = modules_[shader];
  if (module) return module;
  const Code& code = kCode[static_cast<size_t>(shader)];
  VkShaderModuleCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
  info.codeSize = code.bytes;
  info.pCode = code.words;
  context_.check(context_.vk().vkCreateShaderModule(context_.device(), &info, nullptr, &module),
                 "reading a shader");
  return module;
}

VkPipeline Pipelines::get(Shader shader, std::span<const uint32_t> constants) {
  key_.assign(1, static_cast<uint32_t>(shader));
  key_.insert(key_.end(), constants.begin(), constants.end());
  if (const auto known = pipelines_.find(key_); known != pipelines_.end()) return known->second;
  std::vector<VkSpecializationMapEntry> entries;
  for (uint32_t i = 0; i < constants.size(); ++i) entries.push_back({i, i * 4, 4});
  const VkSpecializationInfo special{static_cast<uint32_t>(entries.size()), entries.data(),
                                     constants.size_bytes(), constants.data()};
  VkComputePipelineCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = module(shader);
  info.stage.pName = "main";
  info.stage.pSpecializationInfo = &special;
  info.layout = layout_;
#ifdef VLLM_VULKAN_MATRIX  // invocations count as whole subgroups of the size that constants name
  VkPipelineShaderStageRequiredSubgroupSizeCreateInfo subgroup{};
  subgroup.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO;
  subgroup.requiredSubgroupSize = context_.gpu().subgroup_size;
  if (shader == Shader::matmul_matrix) {
    info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
    info.stage.pNext = &subgroup;
  }
#endif
  VkPipeline pipeline = VK_NULL_HANDLE;
  const VkResult result =
      context_.vk().vkCreateComputePipelines(context_.device(), cache_, 1, &info, nullptr, &pipeline);
  if (result != VK_SUCCESS)
    fail_load("The Vulkan device %s cannot compile the shader %s (error %d).", context_.gpu().name.c_str(),
              kCode[static_cast<size_t>(shader)].name, result);
  return pipelines_[key_] = pipeline;
}

}  // namespace vllm::vulkan

// Weights in device memory: the rows of the file, each padded to whole words.
#pragma once
#include <vector>

#include "device/vulkan/vulkan_device.h"

namespace vllm::vulkan {

class VulkanWeight final : public DeviceWeight {
 public:
  explicit VulkanWeight(VulkanDevice& device) : device_(device) {}
  ~VulkanWeight() override { device_.forget_expert_tables(); }

  /// Rows that lie together; a weight that is larger than one buffer may be has several.
  struct Part {
    std::unique_ptr<VulkanBuffer> memory;
    int64_t first_row, rows;
  };
  std::vector<Part> parts;
  int32_t row_words = 0;                       // from one row to the next
  std::unique_ptr<VulkanBuffer> scale, order;  // f32, i32; null: none
  int32_t scale_kind = 0;                      // 0: none, 1: one for all rows, 2: one a row

  /// Whether the weight is whole numbers times scales, so that the *_dot kernels take it.
  bool has_codes() const {
    for (const Format plain : {Format::F32, Format::F16, Format::BF16, Format::F8_E4M3, Format::F8_E4M3_64})
      if (format == plain) return false;
    return true;
  }
  uint64_t scale_of(const Part& part) const {
    return scale ? scale->range.address + (scale_kind == 2 ? static_cast<uint64_t>(part.first_row) * 4 : 0)
                 : 0;
  }

 private:
  VulkanDevice& device_;
};

}  // namespace vllm::vulkan

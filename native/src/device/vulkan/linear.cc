// Table look-up and matrix products of the Vulkan device.
#include <algorithm>

#include "device/checks.h"
#include "device/vulkan/weights.h"

namespace vllm::vulkan {
namespace {

constexpr uint32_t kGroup = 128;
constexpr int64_t kOutputs = kGroup / 16;  // of a workgroup

/// ROWS of shaders/matmul.comp.
int64_t rows_together(int64_t rows) { return rows > 4 ? 8 : rows > 2 ? 4 : rows; }

}  // namespace

void VulkanDevice::embed(const DeviceWeight& table, float scale, const Tensor& out) {
  checks::embed(*batch_, table, out);
  const auto& weight = static_cast<const VulkanWeight&>(table);
  for (const VulkanWeight::Part& part : weight.parts) {
    const parameters::Embed p{part.memory->range.address, tables_.address,
                              weight.scale_of(part),      weight.order ? weight.order->range.address : 0,
                              inputs_.token_ids,          address(out),
                              int32_t(part.first_row),    int32_t(part.rows),
                              int32_t(weight.cols),       weight.row_words,
                              int32_t(out.stride),        weight.scale_kind,
                              weight.order != nullptr,    scale};
    const int64_t groups = (weight.cols + 8 * kGroup - 1) / (8 * kGroup);
    run(Shader::embed, {kGroup, static_cast<uint32_t>(weight.format)}, p, {groups, out.rows}, {writes(out)});
  }
}

void VulkanDevice::matmul(std::span<const DeviceWeight* const> weights, const Tensor& x, const Tensor* bias,
                          bool accumulate, const Tensor& out) {
  checks::matmul(weights, x, bias, out);
  int64_t column = 0;
  const int64_t together = rows_together(x.rows);
  for (const DeviceWeight* each : weights) {
    const auto& weight = static_cast<const VulkanWeight&>(*each);
    for (const VulkanWeight::Part& part : weight.parts) {
      const Tensor y = out.columns(column, part.rows);
      const Tensor added = bias ? bias->columns(column, part.rows) : Tensor{};
      const parameters::Matmul p{part.memory->range.address,
                                 tables_.address,
                                 weight.scale_of(part),
                                 weight.order ? weight.order->range.address : 0,
                                 address(x),
                                 address(added),
                                 address(y),
                                 int32_t(x.rows),
                                 int32_t(part.rows),
                                 int32_t(weight.cols),
                                 weight.row_words,
                                 int32_t(x.stride),
                                 int32_t(y.stride),
                                 weight.scale_kind,
                                 weight.order != nullptr,
                                 bias != nullptr,
                                 accumulate};
      run(Shader::matmul, {kGroup, static_cast<uint32_t>(weight.format), static_cast<uint32_t>(together)}, p,
          {(part.rows + kOutputs - 1) / kOutputs, (x.rows + together - 1) / together},
          {reads(x), bias ? reads(added) : Use{}, writes(y)});
      column += part.rows;
    }
  }
}

}  // namespace vllm::vulkan

// Table look-up and matrix products of the Vulkan device.
#include <initializer_list>

#include "device/checks.h"
#include "device/vulkan/product.h"
#include "device/vulkan/weights.h"

namespace vllm::vulkan {
namespace {

constexpr uint32_t kGroup = 128;
constexpr int64_t kFewRows = 8;         // up to which shaders/matmul.comp computes
constexpr int64_t kTileOutputs = 64;    // of a workgroup of shaders/matmul_tiles.comp
constexpr int64_t kEmbedElements = 32;  // of an invocation

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
    const int64_t groups = (weight.cols + kEmbedElements * kGroup - 1) / (kEmbedElements * kGroup);
    run(Shader::embed, {kGroup, static_cast<uint32_t>(weight.format)}, p, {groups, out.rows}, {writes(out)});
  }
}

void VulkanDevice::matmul(std::span<const DeviceWeight* const> weights, const Tensor& x, const Tensor* bias,
                          bool accumulate, const Tensor& out) {
  checks::matmul(weights, x, bias, out);
  int64_t column = 0;
  const uint32_t aligned = address(x) % 16 == 0 && x.stride % 4 == 0;
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
      const auto format = static_cast<uint32_t>(weight.format);
      const std::initializer_list<Use> uses = {reads(x), bias ? reads(added) : Use{}, writes(y)};
      if (x.rows <= kFewRows) {
        const ProductForm form(x.rows, 8, part.rows);
        run(Shader::matmul, {form.kGroup, format, form.rows, form.lanes, aligned}, p,
            {form.groups_x, form.groups_y}, uses);
      } else {
        const uint32_t tall = x.rows > 32 ? 8 : 4;  // eighths of a workgroup's rows
        run(Shader::matmul_tiles, {kGroup, format, tall, aligned}, p,
            {(part.rows + kTileOutputs - 1) / kTileOutputs, (x.rows + 8 * tall - 1) / (8 * tall)}, uses);
      }
      column += part.rows;
    }
  }
}

}  // namespace vllm::vulkan

// Table look-up and matrix products of the Vulkan device.
#include <initializer_list>

#include "device/checks.h"
#include "device/vulkan/product.h"
#include "device/vulkan/weights.h"

namespace vllm::vulkan {
namespace {

constexpr uint32_t kGroup = 128, kQuantiseGroup = 32;
constexpr int64_t kFewRows = 8;                   // up to which shaders/matmul.comp computes
constexpr int64_t kTileOutputs = 64;              // of a workgroup of the kernels for tiles
constexpr int64_t kSide = 16;                     // of the matrices of shaders/matmul_half.glsl
constexpr int64_t kEmbedElements = 32;            // of an invocation
constexpr int64_t kBlock = 32, kBlockBytes = 48;  // shaders/dot.glsl

Shader half_shader([[maybe_unused]] const Features& features) {
#ifdef VLLM_VULKAN_MATRIX
  if (features.cooperative_matrix) return Shader::matmul_matrix;
#endif
  return Shader::matmul_half;
}

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

size_t VulkanDevice::block_bytes(int64_t rows, int64_t cols) {
  return static_cast<size_t>(rows * (cols / kBlock) * kBlockBytes);
}

Use VulkanDevice::quantise(const Use& x, const VulkanBuffer* order, const Range& to) {
  const auto rows = static_cast<int64_t>(x.rows), cols = static_cast<int64_t>(x.width / 4),
             stride = static_cast<int64_t>(x.stride / 4), blocks = cols / kBlock;
  const parameters::Quantise p{x.address,       order ? order->range.address : 0,
                               to.address,      int32_t(cols),
                               int32_t(stride), int32_t(blocks),
                               order != nullptr};
  Use out{to.address, block_bytes(rows, cols), 1, 0, true};
  run(Shader::quantise, {kQuantiseGroup, is_aligned(x)}, p,
      {(blocks + kQuantiseGroup - 1) / kQuantiseGroup, rows}, {x, out});
  out.write = false;
  return out;
}

Use VulkanDevice::halve(const Tensor& x, const VulkanBuffer* order, uint64_t& undo) {
  const int64_t words = (x.cols + kBlock - 1) / kBlock * (kBlock / 2);
  const auto bytes = static_cast<uint64_t>(x.rows * words) * 4;
  const Range to = scratch(bytes + static_cast<uint64_t>(x.rows) * 4);
  undo = to.address + bytes;
  const parameters::Halve p{
      address(x),      order ? order->range.address : 0, to.address, undo, int32_t(x.cols), int32_t(x.stride),
      order != nullptr};
  Use out{to.address, bytes + static_cast<uint64_t>(x.rows) * 4, 1, 0, true};
  run(Shader::halve, {kGroup}, p, {1, x.rows}, {reads(x), out});
  out.write = false;
  return out;
}

void VulkanDevice::matmul(std::span<const DeviceWeight* const> weights, const Tensor& x, const Tensor* bias,
                          bool accumulate, const Tensor& out) {
  checks::matmul(weights, x, bias, out);
  const Features& use = gpu().features;
  const uint32_t aligned = is_aligned(reads(x));
  const bool few = x.rows <= kFewRows;
  const uint32_t tall = x.rows > 32 ? 8 : 4;          // eighths of the rows of a workgroup of the tiles
  const uint32_t row_tiles = x.rows > kSide ? 4 : 1;  // of a workgroup of fp16
  enum class Form { F32, Int8, Half } form = Form::F32;
  const VulkanBuffer* order = nullptr;
  Use in = reads(x);  // x in that form and order
  uint64_t undo = 0;
  int64_t column = 0;
  for (const DeviceWeight* each : weights) {
    const auto& weight = static_cast<const VulkanWeight&>(*each);
    const Form wanted = use.integer_dot && weight.has_codes()                                     ? Form::Int8
                        : (use.float16 || use.cooperative_matrix) && weight.format != Format::F32 ? Form::Half
                                                                                                  : Form::F32;
    if (form != wanted || (form != Form::F32 && order != weight.order.get())) {
      form = wanted;
      order = weight.order.get();
      in = form == Form::Int8   ? quantise(reads(x), order, scratch(block_bytes(x.rows, x.cols)))
           : form == Form::Half ? halve(x, order, undo)
                                : reads(x);
    }
    for (const VulkanWeight::Part& part : weight.parts) {
      const Tensor y = out.columns(column, part.rows);
      const Tensor added = bias ? bias->columns(column, part.rows) : Tensor{};
      const parameters::Matmul p{part.memory->range.address,
                                 tables_.address,
                                 weight.scale_of(part),
                                 weight.order ? weight.order->range.address : 0,
                                 in.address,
                                 address(added),
                                 address(y),
                                 undo,
                                 int32_t(x.rows),
                                 int32_t(part.rows),
                                 int32_t(weight.cols),
                                 weight.row_words,
                                 int32_t(form == Form::Int8 ? x.cols / kBlock : x.stride),
                                 int32_t(y.stride),
                                 weight.scale_kind,
                                 weight.order != nullptr,
                                 bias != nullptr,
                                 accumulate};
      const auto format = static_cast<uint32_t>(weight.format);
      const std::initializer_list<Use> uses = {in, bias ? reads(added) : Use{}, writes(y)};
      const auto tiles = [&](int64_t rows) {
        return Groups{(part.rows + kTileOutputs - 1) / kTileOutputs, (x.rows + rows - 1) / rows};
      };
      const ProductForm shape(x.rows, kFewRows, part.rows);
      const Groups groups{shape.groups_x, shape.groups_y};
      if (form == Form::Half) {
        const uint32_t subgroup = use.cooperative_matrix ? gpu().subgroup_size : 32;
        run(half_shader(use), {4 * subgroup, format, subgroup, row_tiles}, p, tiles(kSide * row_tiles), uses);
      } else if (few && form == Form::Int8) {
        run(Shader::matmul_dot, {shape.kGroup, format, shape.rows, shape.lanes}, p, groups, uses);
      } else if (few) {
        run(Shader::matmul, {shape.kGroup, format, shape.rows, shape.lanes, aligned}, p, groups, uses);
      } else if (form == Form::Int8) {
        run(Shader::matmul_tiles_dot, {kGroup, format, tall}, p, tiles(8 * tall), uses);
      } else {
        run(Shader::matmul_tiles, {kGroup, format, tall, aligned}, p, tiles(8 * tall), uses);
      }
      column += part.rows;
    }
  }
}

}  // namespace vllm::vulkan

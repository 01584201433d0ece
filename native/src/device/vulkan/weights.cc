#include "device/vulkan/weights.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/iq_grids.h"
#include "base/mapped_file.h"
#include "device/checks.h"

namespace vllm::vulkan {
namespace {

constexpr int64_t kPieceBytes = 4 << 20;  // uploaded at once
constexpr int64_t kSlackBytes = 128;      // shaders may read a little beyond a row

/// Of a row on the device: whole words.
int64_t padded_bytes(const WeightView& view) { return (row_bytes(view.format, view.cols) + 3) / 4 * 4; }

}  // namespace

int64_t VulkanDevice::part_rows(const WeightView& view) const {
  const int64_t padded = padded_bytes(view), most = most_part_bytes_ - kSlackBytes;
  if (padded > most)
    fail_load("A row of %lld bytes is more than the Vulkan device holds in one piece (%lld bytes).",
              static_cast<long long>(padded), static_cast<long long>(most));
  return std::min(view.rows, most / padded);
}

size_t VulkanDevice::packed_bytes(const WeightView& view, bool) const {
  const int64_t rows = part_rows(view), parts = (view.rows + rows - 1) / rows;
  const size_t scale = view.scale ? view.scale->size() : 0, order = view.order ? view.order->size() : 0;
  return static_cast<size_t>(view.rows * padded_bytes(view) + parts * kSlackBytes) + (scale + order) * 4;
}

/// Those of base/iq_grids.h, in the order of parameters.h.
void VulkanDevice::upload_grids() {
  const std::pair<int, std::span<const uint16_t>> grids[] = {
      {parameters::kGridIq1, kIq1Grid},       {parameters::kGridIq2Xxs, kIq2XxsGrid},
      {parameters::kGridIq2Xs, kIq2XsGrid},   {parameters::kGridIq2S, kIq2SGrid},
      {parameters::kGridIq3Xxs, kIq3XxsGrid}, {parameters::kGridIq3S, kIq3SGrid}};
  tables_ = memory_.allocate(parameters::kGridPoints * sizeof(uint16_t), MemoryKind::Device);
  const Range staged = recorder_.stage(tables_.bytes);
  for (const auto& [at, points] : grids)
    std::memcpy(reinterpret_cast<uint16_t*>(staged.host) + at, points.data(), points.size_bytes());
  recorder_.copy(staged, tables_);
}

std::unique_ptr<DeviceWeight> VulkanDevice::pack(const WeightView& view, bool) {
  checks::weight(view);
  const char* name = format_info(view.format).name;
  if (!tables_.buffer) upload_grids();
  auto weight = std::make_unique<VulkanWeight>(*this);
  weight->format = view.format;
  weight->rows = view.rows;
  weight->cols = view.cols;
  const int64_t bytes = row_bytes(view.format, view.cols), padded = padded_bytes(view);
  weight->row_words = static_cast<int32_t>(padded / 4);
  const int64_t part_rows = this->part_rows(view);
  if (view.rows > static_cast<int64_t>(context_.total_memory()) / padded)
    fail_load("A weight of %lld x %lld in %s is more than all memory of the Vulkan device (%.0f MB).",
              static_cast<long long>(view.rows), static_cast<long long>(view.cols), name,
              static_cast<double>(context_.total_memory()) / 1e6);
  std::vector<uint8_t> dense;
  for (int64_t first = 0; first < view.rows; first += part_rows) {
    const int64_t rows = std::min(part_rows, view.rows - first);
    weight->parts.push_back(
        {std::make_unique<VulkanBuffer>(*this, static_cast<size_t>(rows * padded + kSlackBytes)), first,
         rows});
    const Range& memory = weight->parts.back().memory->range;
    weight->bytes += memory.bytes;
    const int64_t piece = std::max<int64_t>(1, kPieceBytes / padded);
    for (int64_t at = 0; at < rows; at += piece) {
      const int64_t count = std::min(piece, rows - at);
      const Range staged = recorder_.stage(static_cast<size_t>(count * padded));
      const uint8_t* from = view.data ? view.data + (first + at) * bytes : nullptr;
      if (view.source) {
        dense.resize(static_cast<size_t>(count * bytes));
        view.source->read(first + at, count, dense.data());
        from = dense.data();
      } else if (view.format == Format::F8_E4M3) {
        checks::fp8_codes(view, first + at, count, from);
      }
      auto* to = reinterpret_cast<uint8_t*>(staged.host);
      if (bytes == padded) {
        std::memcpy(to, from, static_cast<size_t>(count * bytes));
      } else {
        for (int64_t r = 0; r < count; ++r) {
          std::memcpy(to + r * padded, from + r * bytes, static_cast<size_t>(bytes));
          std::memset(to + r * padded + bytes, 0, static_cast<size_t>(padded - bytes));
        }
      }
      recorder_.copy(staged, memory.part(static_cast<size_t>(at * padded), staged.bytes));
      if (view.source) {
        view.source->release(first + at, count);
      } else if (view.file) {
        view.file->release(from, static_cast<size_t>(count * bytes));
      }
    }
  }
  const auto upload = [&](const void* values, size_t count) {
    auto buffer = std::make_unique<VulkanBuffer>(*this, count * 4);
    const Range staged = recorder_.stage(count * 4);
    std::memcpy(staged.host, values, count * 4);
    recorder_.copy(staged, buffer->range);
    weight->bytes += count * 4;
    return buffer;
  };
  if (view.scale) {
    weight->scale = upload(view.scale->data(), view.scale->size());
    weight->scale_kind = view.scale->size() == 1 ? 1 : 2;
  }
  if (view.order) weight->order = upload(view.order->data(), view.order->size());
  recorder_.submit();  // whose end orders the copies before all that comes, so that no use names a weight
  return weight;
}

}  // namespace vllm::vulkan

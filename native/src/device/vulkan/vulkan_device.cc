// Memory and steps of the Vulkan device.
#include "device/vulkan/vulkan_device.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "device/checks.h"

namespace vllm::vulkan {
namespace {

constexpr size_t kMostPartBytes = (size_t{1} << 33) - 4096;  // shaders count 2^31 words

}  // namespace

VulkanDevice::VulkanDevice(std::string_view name, std::string_view features, size_t most_part_bytes)
    : context_(name, features),
      most_part_bytes_(static_cast<int64_t>(
          most_part_bytes ? most_part_bytes : std::min(gpu().max_allocation, kMostPartBytes))),
      memory_(context_),
      pipelines_(context_),
      arenas_{Arena(memory_), Arena(memory_)},
      recorder_(context_, memory_) {}

VulkanDevice::~VulkanDevice() {
  try {
    recorder_.finish();
  } catch (const Error&) {  // a lost device has nothing to wait for
  }
  forget_expert_tables();
  for (const Range* range : {&readback_, &scratch_, &tables_})
    if (range->buffer) memory_.free(*range);
}

std::string VulkanDevice::description() const {
  const std::string features = feature_names(gpu().features);
  return format("vulkan (%s, %s%s%s)", gpu().name.c_str(), gpu().driver.c_str(), features.empty() ? "" : ", ",
                features.c_str());
}

Range VulkanDevice::take(size_t bytes) {
  const Range range = memory_.allocate(bytes, MemoryKind::Device);
  recorder_.zero(range);
  return range;
}

void VulkanDevice::give_back(const Range& range) noexcept {
  try {
    if (!recorder_.idle()) recorder_.finish();
  } catch (const Error&) {  // a lost device uses nothing any more
  }
  memory_.free(range);
}

Range VulkanDevice::scratch(size_t bytes) {
  if (scratch_.bytes < bytes) {
    if (scratch_.buffer) give_back(scratch_);
    scratch_ = {};
    scratch_ = memory_.allocate(bytes + bytes / 2, MemoryKind::Device);
  }
  return scratch_;
}

size_t VulkanDevice::largest_buffer() const { return static_cast<size_t>(most_part_bytes_); }

std::unique_ptr<Buffer> VulkanDevice::allocate(size_t bytes) {
  return std::make_unique<VulkanBuffer>(*this, bytes);
}

uint64_t VulkanDevice::address(const Tensor& tensor) {
  if (!tensor.buffer) return 0;
  return static_cast<const VulkanBuffer*>(tensor.buffer)->range.address +
         static_cast<uint64_t>(tensor.offset) * sizeof(float);
}

Use VulkanDevice::reads(const Tensor& tensor) {
  return {address(tensor), static_cast<uint64_t>(tensor.cols) * 4, static_cast<uint64_t>(tensor.rows),
          static_cast<uint64_t>(tensor.stride) * 4, false};
}

Use VulkanDevice::writes(const Tensor& tensor) {
  Use use = reads(tensor);
  use.write = true;
  return use;
}

void VulkanDevice::write(const Tensor& dst, const float* src) {
  checks::tensor("write", "dst", dst, dst.rows, dst.cols);
  if (dst.rows == 0) return;
  const size_t width = static_cast<size_t>(dst.cols) * sizeof(float), rows = static_cast<size_t>(dst.rows);
  const Range staged = recorder_.stage(width * rows);
  std::memcpy(staged.host, src, width * rows);
  const Range& buffer = static_cast<VulkanBuffer*>(dst.buffer)->range;
  const size_t first = static_cast<size_t>(dst.offset) * sizeof(float);
  recorder_.copy_rows(staged, width, buffer.part(first, buffer.bytes - first),
                      static_cast<size_t>(dst.stride) * sizeof(float), rows, width);
}

void VulkanDevice::read(const Tensor& src, float* dst) {
  checks::tensor("read", "src", src, src.rows, src.cols);
  if (src.rows == 0) return;
  const Range& buffer = static_cast<VulkanBuffer*>(src.buffer)->range;
  const size_t first = static_cast<size_t>(src.offset) * sizeof(float);
  read_back(buffer.part(first, buffer.bytes - first), static_cast<size_t>(src.cols) * sizeof(float),
            static_cast<size_t>(src.rows), static_cast<size_t>(src.stride) * sizeof(float), dst);
}

void VulkanDevice::read_back(const Range& from, size_t width, size_t rows, size_t stride, void* dst) {
  if (readback_.bytes < width * rows) {
    if (readback_.buffer) memory_.free(readback_);  // nothing runs that writes to it
    readback_ = {};
    readback_ = memory_.allocate(width * rows, MemoryKind::Readback);
  }
  recorder_.copy_rows(from, stride, readback_, width, rows, width);
  recorder_.finish();
  std::memcpy(dst, readback_.host, width * rows);
}

uint64_t VulkanDevice::for_step(std::span<const int32_t> values) {
  const Range range = for_step(values.size_bytes());
  if (!values.empty()) std::memcpy(range.host, values.data(), values.size_bytes());
  return range.address;
}

void VulkanDevice::begin_step(const StepBatch& batch) {
  checks::batch(batch);
  last_use_[step_] = recorder_.submit();
  step_ ^= 1;
  recorder_.wait(last_use_[step_]);
  arenas_[step_].reset();
  batch_ = &batch;
  rope_tables_.clear();
  kv_slots_.clear();
  integers_.resize(static_cast<size_t>(batch.rows()));
  for (int s = 0; s < batch.sequences(); ++s)
    for (int t = batch.seq_start[s]; t < batch.seq_start[s + 1]; ++t) integers_[static_cast<size_t>(t)] = s;
  inputs_ = {for_step(batch.token_ids), for_step(batch.positions),   for_step(integers_),
             for_step(batch.seq_start), for_step(batch.block_table), for_step(batch.state_slots),
             for_step(batch.logit_rows)};
}

void VulkanDevice::end_step() {
  batch_ = nullptr;
  recorder_.submit();
}

/// Cosines and sines of the positions of the step: [rows][cos, sin][pairs].
uint64_t VulkanDevice::rope_table(const RopeSpec& rope) {
  for (const RopeTable& table : rope_tables_)
    if (table.magnitude == rope.magnitude && table.inv_freq == rope.inv_freq) return table.address;
  const size_t pairs = rope.inv_freq.size();
  const Range range = for_step(static_cast<size_t>(batch_->rows()) * 2 * pairs * sizeof(float));
  auto* values = reinterpret_cast<float*>(range.host);
  for (const int32_t position : batch_->positions) {
    for (size_t i = 0; i < pairs; ++i) {
      const float angle = static_cast<float>(position) * rope.inv_freq[i];
      values[i] = std::cos(angle) * rope.magnitude;
      values[pairs + i] = std::sin(angle) * rope.magnitude;
    }
    values += 2 * pairs;
  }
  rope_tables_.push_back({rope.inv_freq, rope.magnitude, range.address});
  return range.address;
}

uint64_t VulkanDevice::kv_slots(int block_size) {
  const auto [at, fresh] = kv_slots_.try_emplace(block_size, 0);
  if (!fresh) return at->second;
  for (int s = 0; s < batch_->sequences(); ++s) {
    for (int t = batch_->seq_start[s]; t < batch_->seq_start[s + 1]; ++t) {
      const int position = batch_->positions[static_cast<size_t>(t)];
      integers_[static_cast<size_t>(t)] =
          batch_->blocks_of(s)[position / block_size] * block_size + position % block_size;
    }
  }
  return at->second = for_step(integers_);
}

}  // namespace vllm::vulkan

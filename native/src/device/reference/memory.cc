// Buffers, weights and steps of the reference device.
#include <algorithm>
#include <cstring>

#include "device/checks.h"
#include "device/cpu/machine.h"
#include "device/host_memory.h"
#include "device/reference/reference_device.h"
#include "device/reference/reference_weight.h"

namespace vllm {

std::unique_ptr<Device> make_reference_device() { return std::make_unique<ReferenceDevice>(); }

std::string ReferenceDevice::description() const { return "reference"; }

size_t ReferenceDevice::available_memory() const { return cpu::available_memory(); }

std::unique_ptr<Buffer> ReferenceDevice::allocate(size_t bytes) {
  return std::make_unique<HostBuffer>(bytes);
}

void ReferenceDevice::write(const Tensor& dst, const float* src) {
  checks::tensor("write", "dst", dst, dst.rows, dst.cols);
  for (int64_t t = 0; t < dst.rows; ++t)
    std::memcpy(host_data(dst) + t * dst.stride, src + t * dst.cols, dst.cols * sizeof(float));
}

void ReferenceDevice::read(const Tensor& src, float* dst) {
  checks::tensor("read", "src", src, src.rows, src.cols);
  for (int64_t t = 0; t < src.rows; ++t)
    std::memcpy(dst + t * src.cols, host_data(src) + t * src.stride, src.cols * sizeof(float));
}

void ReferenceDevice::read_largest(const Tensor& src, int count, RankedValue* dst) {
  checks::read_largest(src, count);
  std::vector<RankedValue> row(static_cast<size_t>(src.cols));
  for (int64_t t = 0; t < src.rows; ++t) {
    for (int64_t c = 0; c < src.cols; ++c)
      row[static_cast<size_t>(c)] = {static_cast<int32_t>(c), host_data(src)[t * src.stride + c]};
    std::sort(row.begin(), row.end(), [](const RankedValue& a, const RankedValue& b) { return a.before(b); });
    dst = std::copy_n(row.begin(), count, dst);
  }
}

std::unique_ptr<DeviceWeight> ReferenceDevice::pack(const WeightView& view, bool) {
  checks::weight(view);
  auto weight = std::make_unique<ReferenceWeight>();
  weight->format = view.format;
  weight->rows = view.rows;
  weight->cols = view.cols;
  weight->view = view;
  return weight;
}

void ReferenceDevice::begin_step(const StepBatch& batch) {
  checks::batch(batch);
  batch_ = &batch;
}

void ReferenceDevice::end_step() { batch_ = nullptr; }

}  // namespace vllm

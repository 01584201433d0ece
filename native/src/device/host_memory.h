// Buffers in host memory.
#pragma once
#include "device/device.h"

namespace vllm {

/// Zeroed, aligned to 64 bytes. Large buffers are mappings that ask for huge pages and take memory when first
/// written.
class HostBuffer final : public Buffer {
 public:
  /// Throws Error(ModelLoad) with what was needed and what is there when memory is short.
  explicit HostBuffer(size_t bytes);
  ~HostBuffer() override;
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  std::byte* host() override { return data_; }
  size_t bytes() const override { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  bool mapped_ = false;
};

/// First element of a tensor whose buffer the host can address.
inline float* host_data(const Tensor& tensor) {
  return reinterpret_cast<float*>(tensor.buffer->host()) + tensor.offset;
}

}  // namespace vllm

// Memory of packed weights.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace vllm::cpu {

/// Zeroed memory, 64-byte aligned. Weights lie one after the other in shared regions of huge pages, for a
/// stream from 4 KiB pages reads at two thirds of the speed and most weights of a small model are smaller
/// than a huge page. A region is released with its last weight.
class PanelMemory {
 public:
  PanelMemory() = default;
  /// Throws Error(ModelLoad) with the bytes needed.
  explicit PanelMemory(size_t bytes);
  /// What bytes() is for so many bytes asked for.
  static size_t rounded(size_t bytes) { return (bytes + 63) / 64 * 64; }

  uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<void> region_;
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace vllm::cpu

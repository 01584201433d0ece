// A weight in the layout of pack_layout.h.
#pragma once
#include <cstdint>
#include <memory>

#include "device/device.h"

namespace vllm::cpu {

/// Zeroed memory for panels, 64-byte aligned and on huge pages where it is large. Throws Error(ModelLoad).
class PanelMemory {
 public:
  PanelMemory() = default;
  explicit PanelMemory(size_t bytes);
  ~PanelMemory();
  PanelMemory(const PanelMemory&) = delete;
  PanelMemory& operator=(const PanelMemory&) = delete;

  uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
};

class PackedWeight : public DeviceWeight {
 public:
  PackedWeight(const WeightView& view, size_t packed_bytes) : file_rows(view.data), keep_alive(view.keep_alive), memory(packed_bytes) {}

  const uint8_t* file_rows;  // as in the file, for lookups
  std::shared_ptr<const void> keep_alive;
  PanelMemory memory;
  int64_t panels = 0;        // 0: lookup only
  int64_t panel_stride = 0;  // bytes
};

}  // namespace vllm::cpu

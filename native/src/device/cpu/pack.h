// A weight in the layout of pack_layout.h.
#pragma once
#include <cstdint>
#include <memory>

#include "device/cpu/pack_memory.h"
#include "device/device.h"

namespace vllm::cpu {

class PackedWeight : public DeviceWeight {
 public:
  PackedWeight(const WeightView& view, size_t packed_bytes)
      : file_rows(view.data), keep_alive(view.keep_alive), memory(packed_bytes) {}

  const uint8_t* file_rows;  // as in the file, for lookups
  std::shared_ptr<const void> keep_alive;
  PanelMemory memory;
  int64_t panels = 0;        // 0: lookup only
  int64_t panel_stride = 0;  // bytes
};

}  // namespace vllm::cpu

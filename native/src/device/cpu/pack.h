// A weight in the layout of pack_layout.h.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "device/cpu/pack_memory.h"
#include "device/device.h"

namespace vllm::cpu {

class PackedWeight : public DeviceWeight {
 public:
  PackedWeight(const WeightView& weight, size_t packed_bytes) : view(weight), memory(packed_bytes) {}

  WeightView view;  // for lookups
  PanelMemory memory;
  std::vector<float> scale;  // of each output, panel_factor included; empty: 1
  int64_t panels = 0;        // 0: lookup only
  int64_t panel_stride = 0;  // bytes
};

}  // namespace vllm::cpu

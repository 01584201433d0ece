// A weight of the reference device: the bytes of the file, decoded row by row when used.
#pragma once
#include <vector>

#include "device/device.h"

namespace vllm {

class ReferenceWeight final : public DeviceWeight {
 public:
  WeightView view;

  std::vector<float> row(int64_t index) const {
    std::vector<float> values(cols);
    view.decode_row(index, values.data());
    return values;
  }
};

}  // namespace vllm

#include "device/device.h"

namespace vllm {

void WeightView::decode_row(int64_t index, float* out) const {
  const int64_t bytes = row_bytes(format, cols);
  std::vector<uint8_t> made;
  const uint8_t* row = nullptr;
  if (!source) {
    row = data + index * bytes;
  } else {
    made.resize(static_cast<size_t>(bytes));
    source->read(index, 1, made.data());
    row = made.data();
  }
  format_info(format).decode(row, cols, out);
  if (order) {
    const std::vector<float> stored(out, out + cols);
    for (int64_t c = 0; c < cols; ++c) out[(*order)[static_cast<size_t>(c)]] = stored[static_cast<size_t>(c)];
  }
  if (!scale) return;
  const float factor = (*scale)[scale->size() == 1 ? 0 : static_cast<size_t>(index)];
  for (int64_t c = 0; c < cols; ++c) out[c] *= factor;
}

size_t Device::packed_bytes(const WeightView& weight, bool) const {
  return static_cast<size_t>(weight.rows) * static_cast<size_t>(row_bytes(weight.format, weight.cols));
}

}  // namespace vllm

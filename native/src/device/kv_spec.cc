#include "device/device.h"

namespace vllm {

size_t KvCacheSpec::block_bytes() const {
  size_t values = 0;
  for (const KvLayerSpec& layer : layers) values += static_cast<size_t>(2) * layer.kv_heads * layer.head_dim;
  return values * static_cast<size_t>(block_size) * (format == KvFormat::BF16 ? 2 : 4);
}

size_t StateCacheSpec::slot_bytes() const {
  int64_t values = 0;
  for (const DeltaNetSpec& layer : layers)
    values += (layer.conv_kernel - 1) * layer.conv_cols() + layer.value_cols() * layer.key_dim;
  return static_cast<size_t>(values) * sizeof(float);
}

}  // namespace vllm

#include "device/device.h"

namespace vllm {

size_t KvCacheSpec::block_bytes() const {
  size_t of_token = 0;
  for (const KvLayerSpec& layer : layers) {
    const auto dim = static_cast<size_t>((layer.head_dim + 15) / 16 * 16);
    const size_t head = format == KvFormat::BF16  ? 2 * dim
                        : format == KvFormat::F32 ? 4 * dim
                                                  : (dim + 31) / 32 * 34;
    of_token += 2 * static_cast<size_t>(layer.kv_heads) * head;
  }
  return of_token * static_cast<size_t>(block_size);
}

size_t StateCacheSpec::slot_bytes() const {
  int64_t values = 0;
  for (const DeltaNetSpec& layer : layers)
    values += (layer.conv_kernel - 1) * layer.conv_cols() + layer.value_cols() * layer.key_dim;
  return static_cast<size_t>(values) * sizeof(float);
}

}  // namespace vllm

#include <algorithm>

#include "device/device.h"

namespace vllm {

namespace {

/// Bytes of the keys of a token.
size_t keys_bytes(const KvLayerSpec& layer, KvFormat format) {
  const auto dim = static_cast<size_t>((layer.head_dim + 15) / 16 * 16);
  const size_t head = format == KvFormat::BF16  ? 2 * dim
                      : format == KvFormat::F32 ? 4 * dim
                                                : (dim + 31) / 32 * 34;
  return static_cast<size_t>(layer.kv_heads) * head;
}

int64_t inputs_size(const DeltaNetSpec& layer) { return (layer.conv_kernel - 1) * layer.conv_cols(); }
int64_t matrices_size(const DeltaNetSpec& layer) { return layer.value_cols() * layer.key_dim; }

}  // namespace

size_t KvCacheSpec::block_bytes() const {
  size_t of_token = 0;
  for (const KvLayerSpec& layer : layers) of_token += 2 * keys_bytes(layer, format);
  return of_token * static_cast<size_t>(block_size);
}

size_t KvCacheSpec::largest_part_bytes() const {
  size_t most = 0;
  for (const KvLayerSpec& layer : layers) most = std::max(most, keys_bytes(layer, format));
  return most * static_cast<size_t>(block_size);
}

size_t StateCacheSpec::slot_bytes() const {
  int64_t values = 0;
  for (const DeltaNetSpec& layer : layers) values += inputs_size(layer) + matrices_size(layer);
  return static_cast<size_t>(values) * sizeof(float);
}

size_t StateCacheSpec::largest_part_bytes() const {
  int64_t most = 0;
  for (const DeltaNetSpec& layer : layers) most = std::max({most, inputs_size(layer), matrices_size(layer)});
  return static_cast<size_t>(most) * sizeof(float);
}

}  // namespace vllm

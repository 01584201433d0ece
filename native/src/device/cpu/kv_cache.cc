#include "device/cpu/kv_cache.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace vllm::cpu {
namespace {

constexpr int64_t kInlineRows = 8;  // fewer rows are not worth waking the other threads

uint16_t to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if (std::isnan(x)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// One token of one kv head at a slot of its block.
void store_token(const KvLayout& layout, int head_dim, int64_t slot, const float* k, const float* v,
                 uint16_t* block) {
  uint16_t* keys = block + layout.key(slot, 0);
  const int64_t key_step = 2 * layout.block_size;
  int d = 0;
  for (; d + 1 < head_dim; d += 2, keys += key_step) {
    const uint32_t pair = to_bf16(k[d]) | static_cast<uint32_t>(to_bf16(k[d + 1])) << 16;
    std::memcpy(keys, &pair, sizeof pair);
  }
  if (d < head_dim) *keys = to_bf16(k[d]);
  for (d = 0; d < head_dim; d += 64) {
    uint16_t* values = block + layout.value(slot, d);
    for (int i = 0; i < 64 && d + i < head_dim; ++i) values[2 * i] = to_bf16(v[d + i]);
  }
}

void store_token(const KvLayout& layout, int head_dim, int64_t slot, const float* k, const float* v,
                 float* block) {
  for (int d = 0; d < head_dim; ++d) block[layout.key(slot, d)] = k[d];
  for (int d = 0; d < head_dim; d += 64)
    std::memcpy(block + layout.value(slot, d), v + d, std::min(64, head_dim - d) * sizeof(float));
}

template <class Element>
void store_rows(const CpuKvCache::Layer& layer, const StepBatch& batch, Range rows, const float* k,
                int64_t ldk, const float* v, int64_t ldv) {
  const KvLayout& layout = layer.layout;
  auto* memory = reinterpret_cast<Element*>(layer.memory->host());
  int s = 0;
  for (int64_t t = rows.begin; t < rows.end; ++t) {
    while (batch.seq_start[s + 1] <= t) ++s;
    const int64_t position = batch.positions[t], slot = position % layout.block_size;
    Element* block = memory + batch.blocks_of(s)[position / layout.block_size] * layer.block_stride;
    for (int h = 0; h < layer.kv_heads; ++h, block += layout.head_elements()) {
      // A block that is taken into use may hold anything, and a weight of zero does not silence an infinity.
      if (slot == 0) std::memset(block + layout.values_at(), 0, layout.values_at() * sizeof(Element));
      store_token(layout, layer.head_dim, slot, k + t * ldk + h * layer.head_dim,
                  v + t * ldv + h * layer.head_dim, block);
    }
  }
}

}  // namespace

CpuKvCache::CpuKvCache(const KvCacheSpec& wanted) {
  spec = wanted;
  const bool bf16 = spec.format == KvFormat::BF16;
  for (const KvLayerSpec& l : spec.layers) {
    const KvLayout layout{spec.block_size, (l.head_dim + 15) / 16 * 16, bf16};
    const int64_t stride = l.kv_heads * layout.head_elements();
    const size_t size = static_cast<size_t>(spec.num_blocks) * stride * (bf16 ? 2 : 4);
    layers_.push_back({std::make_unique<HostBuffer>(size), layout, l.kv_heads, l.head_dim, stride});
    bytes += size;
  }
}

void CpuKvCache::write(ThreadPool& pool, const StepBatch& batch, int index, const float* k, int64_t ldk,
                       const float* v, int64_t ldv) {
  const Layer& layer = layers_[index];
  const auto store = [&](Range rows) {
    if (layer.layout.bf16) {
      store_rows<uint16_t>(layer, batch, rows, k, ldk, v, ldv);
    } else {
      store_rows<float>(layer, batch, rows, k, ldk, v, ldv);
    }
  };
  const int64_t rows = batch.rows();
  if (rows < kInlineRows || pool.threads() == 1) return store({0, rows});
  // Rows of one block stay with one thread: a cut moves on to the next row that starts a block or a sequence.
  const auto snapped = [&](int64_t t) {
    while (t > 0 && t < rows && batch.positions[t] == batch.positions[t - 1] + 1 &&
           batch.positions[t] % layer.layout.block_size != 0)
      ++t;
    return t;
  };
  pool.run([&](int thread) {
    const Range part = share(rows, thread, pool.threads());
    store({snapped(part.begin), snapped(part.end)});
  });
}

}  // namespace vllm::cpu

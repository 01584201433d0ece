#include "device/cpu/kv_cache.h"

#include <algorithm>
#include <cstring>

namespace vllm::cpu {
namespace {

constexpr int64_t kInlineRows = 8;  // fewer rows are not worth waking the other threads

void store_rows(const AttentionKernels& kernels, const CpuKvCache::Layer& layer, const StepBatch& batch,
                Range rows, const float* k, int64_t ldk, const float* v, int64_t ldv) {
  const KvLayout& layout = layer.layout;
  int s = 0;
  // Head by head of the rows that share a block, so that its lines stay in the cache.
  for (int64_t t = rows.begin, end; t < rows.end; t = end) {
    while (batch.seq_start[s + 1] <= t) ++s;
    const int64_t position = batch.positions[t], slot = position % layout.block_size;
    const int64_t last = std::min<int64_t>(rows.end, batch.seq_start[s + 1]);
    end = t + 1;
    while (end < last && batch.positions[end] == position + end - t && slot + end - t < layout.block_size)
      ++end;
    const int32_t block = batch.blocks_of(s)[position / layout.block_size];
    // A block that is taken into use may hold anything, and a weight of zero does not silence an infinity.
    if (slot == 0) std::memset(layer.values(block, 0), 0, layer.block_stride());
    for (int h = 0; h < layer.kv_heads; ++h) {
      const int64_t column = static_cast<int64_t>(h) * layer.head_dim;
      for (int64_t i = t; i < end; ++i)
        kernels.store(layout, layer.head_dim, slot + i - t, k + i * ldk + column, v + i * ldv + column,
                      layer.keys(block, h), layer.values(block, h));
    }
  }
}

/// Zeroes the values of the tokens from `first` on, of one head in one block: attention multiplies them by a
/// weight of zero, which silences no infinity.
void clear_values(const KvLayout& layout, std::byte* values, int64_t first) {
  const int64_t size = layout.element == KvElement::F32 ? 4 : 2;
  if (layout.element == KvElement::Q8) {
    for (int64_t d = 0; d < layout.dim; d += kQ8Dims)
      std::memset(values + layout.q8_chunk(d) + first * size, 0, (layout.block_size - first) * size);
    return;
  }
  for (int64_t token = first; token < layout.block_size; ++token)
    for (int64_t d = 0; d < layout.dim; ++d) std::memset(values + layout.value(token, d) * size, 0, size);
}

}  // namespace

KvElement element_of(KvFormat format) {
  return format == KvFormat::BF16  ? KvElement::BF16
         : format == KvFormat::F32 ? KvElement::F32
                                   : KvElement::Q8;
}

CpuKvCache::CpuKvCache(const KvCacheSpec& wanted) {
  spec = wanted;
  for (const KvLayerSpec& l : spec.layers) {
    const int granule = spec.format == KvFormat::Q8_0 ? kQ8Dims : 16;
    const KvLayout layout{spec.block_size, (l.head_dim + granule - 1) / granule * granule,
                          element_of(spec.format)};
    const size_t size = static_cast<size_t>(spec.num_blocks) * 2 * l.kv_heads * layout.bytes();
    layers_.push_back({std::make_unique<HostBuffer>(size), layout, l.kv_heads, l.head_dim});
    bytes += size;
  }
}

void CpuKvCache::copy(int64_t from, int64_t to, int tokens) {
  for (const Layer& layer : layers_) {
    const auto size = static_cast<size_t>(layer.block_stride());
    std::memmove(layer.keys(to, 0), layer.keys(from, 0), size);
    std::memmove(layer.values(to, 0), layer.values(from, 0), size);
    for (int h = 0; h < layer.kv_heads; ++h) clear_values(layer.layout, layer.values(to, h), tokens);
  }
}

void CpuKvCache::write(ThreadPool& pool, const AttentionKernels& kernels, const StepBatch& batch, int index,
                       const float* k, int64_t ldk, const float* v, int64_t ldv) {
  const Layer& layer = layers_[index];
  const auto store = [&](Range rows) { store_rows(kernels, layer, batch, rows, k, ldk, v, ldv); };
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

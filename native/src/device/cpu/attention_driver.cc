#include "device/cpu/attention_driver.h"

#include <algorithm>

namespace vllm::cpu {
namespace {

constexpr int kTilesPerThread = 8;  // with fewer, spans are handed out instead of tiles

/// Floats of the state of a tile: m and l take 16 each.
int64_t state_size(int rows, int64_t dim) { return 32 + rows * dim; }
AttentionState state_at(float* memory) { return {memory, memory + 16, memory + 32}; }

}  // namespace

float* AttentionDriver::Memory::reserve(int64_t floats) {
  const size_t bytes = static_cast<size_t>(floats) * sizeof(float);
  if (!buffer || buffer->bytes() < bytes) {
    buffer.reset();
    buffer = std::make_unique<HostBuffer>(bytes);
  }
  return reinterpret_cast<float*>(buffer->host());
}

void AttentionDriver::add_tiles(const AttentionKernels& kernels, const StepBatch& batch,
                                const AttentionSpec& spec, int sequence) {
  const int group = spec.heads / spec.kv_heads;
  const int row = batch.seq_start[sequence], position = batch.positions[row];
  const int rows = (batch.seq_start[sequence + 1] - row) * group;
  // A kv head after the other, so that its keys and values stay in the cache of a core; of each the last
  // rows, which see most keys, first.
  for (int head = 0; head < spec.kv_heads; ++head) {
    const size_t begin = tiles_.size();
    const int* size = kernels.tile_rows;
    for (int first = 0; first < rows; first += *size) {
      while (*size > rows - first) ++size;
      const int oldest = position + first / group, newest = position + (first + *size - 1) / group;
      const int seen_from = spec.window > 0 ? std::max(0, oldest - spec.window + 1) : 0;
      tiles_.push_back({sequence, head, first, *size, seen_from / kSpan, newest / kSpan + 1, 0});
    }
    std::reverse(tiles_.begin() + static_cast<int64_t>(begin), tiles_.end());
  }
}

void AttentionDriver::cut(const AttentionKernels& kernels, const StepBatch& batch, const AttentionSpec& spec,
                          int64_t dim) {
  order_.resize(batch.sequences());
  for (int s = 0; s < batch.sequences(); ++s) order_[s] = s;
  const auto work = [&](int s) {
    return static_cast<int64_t>(batch.context_len(s)) * (batch.seq_start[s + 1] - batch.seq_start[s]);
  };
  std::sort(order_.begin(), order_.end(),
            [&](int a, int b) { return work(a) != work(b) ? work(a) > work(b) : a < b; });

  tiles_.clear();
  items_.clear();
  for (int s : order_) add_tiles(kernels, batch, spec, s);
  const auto spans = [](const TileRef& tile) { return tile.span_end - tile.span_begin; };
  shared_ = pool_.threads() > 1 && tiles_.size() < static_cast<size_t>(kTilesPerThread * pool_.threads()) &&
            std::any_of(tiles_.begin(), tiles_.end(), [&](const TileRef& tile) { return spans(tile) > 1; });
  if (!shared_) {
    for (int i = 0; i < static_cast<int>(tiles_.size()); ++i) items_.push_back({i, -1});
    return;
  }

  if (spans_left_size_ < tiles_.size()) {
    spans_left_size_ = tiles_.size();
    spans_left_ = std::make_unique<std::atomic<int>[]>(spans_left_size_);
  }
  int64_t size = 0;
  for (size_t i = 0; i < tiles_.size(); ++i) {
    tiles_[i].partial = size;
    size += spans(tiles_[i]) * state_size(tiles_[i].rows, dim);
    spans_left_[i].store(spans(tiles_[i]), std::memory_order_relaxed);
  }
  partials_.reserve(size);
  // Span by span over all heads: the blocks of a span are read whole, by all threads at about the same time.
  for (size_t begin = 0, end; begin < tiles_.size(); begin = end) {
    int first = tiles_[begin].span_begin, last = tiles_[begin].span_end;
    for (end = begin; end < tiles_.size() && tiles_[end].sequence == tiles_[begin].sequence; ++end) {
      first = std::min(first, tiles_[end].span_begin);
      last = std::max(last, tiles_[end].span_end);
    }
    for (int span = first; span < last; ++span)
      for (size_t i = begin; i < end; ++i)
        if (span >= tiles_[i].span_begin && span < tiles_[i].span_end)
          items_.push_back({static_cast<int>(i), span});
  }
}

void AttentionDriver::run(const AttentionKernels& kernels, const StepBatch& batch,
                          const CpuKvCache::Layer& layer, const AttentionSpec& spec, const float* q,
                          int64_t ldq, float* out, int64_t ldo) {
  const int group = spec.heads / spec.kv_heads;
  const int64_t dim = layer.layout.dim, element = layer.layout.bf16 ? 2 : 4;
  cut(kernels, batch, spec, dim);

  const auto tile_of = [&](const TileRef& ref) {
    AttentionTile tile;
    tile.cache = layer.memory->host() + ref.head * layer.layout.head_elements() * element;
    tile.blocks = batch.blocks_of(ref.sequence);
    tile.block_stride = layer.block_stride;
    tile.block_size = static_cast<int>(layer.layout.block_size);
    tile.head_dim = spec.head_dim;
    tile.dim = static_cast<int>(dim);
    tile.rows = ref.rows;
    tile.window = spec.window;
    tile.scale = spec.scale;
    tile.softcap = spec.softcap;
    for (int r = 0; r < ref.rows; ++r) {
      const int64_t row = batch.seq_start[ref.sequence] + (ref.first + r) / group;
      const int64_t column =
          (ref.head * group + (ref.first + r) % group) * static_cast<int64_t>(spec.head_dim);
      tile.position[r] = batch.positions[row];
      tile.query[r] = q + row * ldq + column;
      tile.out[r] = out + row * ldo + column;
    }
    return tile;
  };

  const int64_t state_floats = state_size(kMaxTileRows, dim);
  const int64_t scratch_floats = (kernels.scratch_bytes(static_cast<int>(dim)) + 63) / 64 * 16;
  for (Memory& memory : threads_) memory.reserve(2 * state_floats + scratch_floats);
  float* partials = shared_ ? partials_.reserve(0) : nullptr;

  std::atomic<size_t> next{0};
  pool_.run([&](int thread) {
    float* memory = threads_[thread].reserve(0);
    const AttentionState total = state_at(memory), more = state_at(memory + state_floats);
    void* scratch = memory + 2 * state_floats;
    for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < items_.size();) {
      const TileRef& ref = tiles_[items_[i].tile];
      const AttentionTile tile = tile_of(ref);
      kernels.pack_queries(tile, scratch);
      if (!shared_) {
        for (int span = ref.span_begin; span < ref.span_end; ++span) {
          const AttentionState& state = span == ref.span_begin ? total : more;
          kernels.span(tile, span * kSpan, scratch, state);
          if (span > ref.span_begin) kernels.merge(ref.rows, tile.dim, total, more);
        }
        kernels.finish(tile, total);
        continue;
      }
      const auto partial = [&](int span) {
        return state_at(partials + ref.partial + (span - ref.span_begin) * state_size(ref.rows, dim));
      };
      kernels.span(tile, items_[i].span * kSpan, scratch, partial(items_[i].span));
      if (spans_left_[items_[i].tile].fetch_sub(1, std::memory_order_acq_rel) > 1) continue;
      const AttentionState merged = partial(ref.span_begin);
      for (int span = ref.span_begin + 1; span < ref.span_end; ++span)
        kernels.merge(ref.rows, tile.dim, merged, partial(span));
      kernels.finish(tile, merged);
    }
  });
}

}  // namespace vllm::cpu

#include "device/cpu/attention_driver.h"

#include <algorithm>

namespace vllm::cpu {
namespace {

constexpr int kTilesPerThread = 8;  // with fewer, spans are handed out instead of tiles
constexpr int kRunsPerThread = 2;   // with fewer, heads are handed out as well as spans
constexpr int kStreamedRows =
    16;  // a kv head's rows up to which reading the cache takes longer than computing

/// Floats of the state of a tile: m and l take 16 each.
int64_t state_size(int rows, int64_t dim) { return 32 + rows * dim; }
AttentionState state_at(float* memory) { return {memory, memory + 16, memory + 32}; }

}  // namespace

struct AttentionDriver::Step {
  const AttentionKernels& kernels;
  const StepBatch& batch;
  const CpuKvCache::Layer& layer;
  const AttentionSpec& spec;
  const float* q;
  int64_t ldq;
  float* out;
  int64_t ldo;

  int group() const { return spec.heads / spec.kv_heads; }
  int64_t dim() const { return layer.layout.dim; }
  int tokens(int s) const { return batch.seq_start[s + 1] - batch.seq_start[s]; }
};

float* AttentionDriver::Memory::reserve(int64_t floats) {
  const size_t bytes = static_cast<size_t>(floats) * sizeof(float);
  if (!buffer || buffer->bytes() < bytes) {
    buffer.reset();
    buffer = std::make_unique<HostBuffer>(bytes);
  }
  return reinterpret_cast<float*>(buffer->host());
}

void AttentionDriver::add_tiles(const Step& step, int sequence) {
  const int group = step.group(), position = step.batch.positions[step.batch.seq_start[sequence]];
  const int rows = step.tokens(sequence) * group, window = step.spec.window;
  // A kv head after the other, so that its keys and values stay in the cache of a core; of each the last
  // rows, which see most keys, first.
  for (int head = 0; head < step.spec.kv_heads; ++head) {
    const size_t begin = tiles_.size();
    const int* size = step.kernels.tile_rows;
    for (int first = 0; first < rows; first += *size) {
      while (*size > rows - first) ++size;
      const int oldest = position + first / group, newest = position + (first + *size - 1) / group;
      const int seen_from = window > 0 ? std::max(0, oldest - window + 1) : 0;
      tiles_.push_back({sequence, head, first, *size, seen_from / kSpan, newest / kSpan + 1, 0});
    }
    std::reverse(tiles_.begin() + static_cast<int64_t>(begin), tiles_.end());
  }
}

/// Items of neighbouring tiles of one sequence, one for each span or one for all.
void AttentionDriver::add_items(int tile_begin, int tile_end, bool stream, bool by_span) {
  int first = tiles_[tile_begin].span_begin, last = tiles_[tile_begin].span_end;
  for (int i = tile_begin; i < tile_end; ++i) {
    first = std::min(first, tiles_[i].span_begin);
    last = std::max(last, tiles_[i].span_end);
  }
  for (int i = tile_begin; i < tile_end; ++i) tiles_[i].span_begin = first, tiles_[i].span_end = last;
  if (!by_span) return items_.push_back({tile_begin, tile_end, first, last, stream});
  for (int span = first; span < last; ++span)
    items_.push_back({tile_begin, tile_end, span, span + 1, stream});
}

void AttentionDriver::cut(const Step& step) {
  const int sequences = step.batch.sequences(), kv_heads = step.spec.kv_heads;
  const auto streamed = [&](int s) { return step.tokens(s) * step.group() <= kStreamedRows; };
  const auto work = [&](int s) {
    return static_cast<int64_t>(step.batch.context_len(s)) * (streamed(s) ? 1 : step.tokens(s));
  };
  order_.resize(sequences);
  for (int s = 0; s < sequences; ++s) order_[s] = s;
  std::sort(order_.begin(), order_.end(), [&](int a, int b) {
    if (streamed(a) != streamed(b)) return streamed(b);
    return work(a) != work(b) ? work(a) > work(b) : a < b;
  });

  tiles_.clear();
  items_.clear();
  const bool shared = pool_.threads() > 1;
  size_t next = 0;
  for (; next < order_.size() && !streamed(order_[next]); ++next) add_tiles(step, order_[next]);
  const int computed = static_cast<int>(tiles_.size());
  // With few tiles their spans are handed out.
  const bool by_span = shared && computed < kTilesPerThread * pool_.threads();
  for (int i = 0; i < computed; ++i) add_items(i, i + 1, false, by_span);

  // A sequence of few rows: all heads together read whole blocks.
  int spans = 0;
  for (size_t i = next; i < order_.size(); ++i) {
    const int context = step.batch.context_len(order_[i]);
    const int seen = step.spec.window > 0 ? std::min(context, step.spec.window) : context;
    spans += (seen + kSpan - 1) / kSpan;
  }
  const int enough = shared ? kRunsPerThread * pool_.threads() : 0;
  const int parts = spans == 0 || spans >= enough ? 1 : std::min(kv_heads, (enough + spans - 1) / spans);
  for (; next < order_.size(); ++next) {
    const int begin = static_cast<int>(tiles_.size());
    add_tiles(step, order_[next]);
    const int each = (static_cast<int>(tiles_.size()) - begin) / kv_heads;  // tiles of a head
    for (int part = 0; part < parts; ++part) {
      const Range heads = share(kv_heads, part, parts);
      add_items(begin + static_cast<int>(heads.begin) * each, begin + static_cast<int>(heads.end) * each,
                true, shared);
    }
  }

  if (spans_left_size_ < tiles_.size()) {
    spans_left_size_ = tiles_.size();
    spans_left_ = std::make_unique<std::atomic<int>[]>(spans_left_size_);
  }
  int64_t size = 0;
  for (const Item& item : items_) {
    for (int i = item.tile_begin; i < item.tile_end; ++i) {
      TileRef& tile = tiles_[i];
      const int all = tile.span_end - tile.span_begin;
      if (item.span_end - item.span_begin == all || item.span_begin != tile.span_begin) continue;
      tile.partial = size;
      size += all * state_size(tile.rows, step.dim());
      spans_left_[i].store(all, std::memory_order_relaxed);
    }
  }
  partials_.reserve(size);
  reserve_threads(step);
}

/// Any thread may come to compute any item, also its first one, after many steps: none allocates then.
void AttentionDriver::reserve_threads(const Step& step) {
  const int dim = static_cast<int>(step.dim());
  int64_t scratch = 0, count = 0;
  for (Item& item : items_) {
    const int64_t tiles = item.tile_end - item.tile_begin;
    for (int i = item.tile_begin; i < item.tile_end; ++i)
      item.scratch = std::max(item.scratch, step.kernels.scratch_bytes(tiles_[i].rows, dim));
    count = std::max(count, tiles);
    scratch = std::max(scratch, tiles * item.scratch);
  }
  for (Thread& thread : threads_) {
    thread.scratch.reserve(scratch / 4);
    thread.states.reserve(2 * count * state_size(kMaxTileRows, dim));
    thread.tiles.reserve(static_cast<size_t>(count));
    thread.total.reserve(static_cast<size_t>(count));
    thread.more.reserve(static_cast<size_t>(count));
  }
}

AttentionTile AttentionDriver::tile_of(const Step& step, const TileRef& ref) const {
  const int group = step.group();
  AttentionTile tile;
  tile.keys = reinterpret_cast<const char*>(step.layer.keys(0, ref.head));
  tile.values = reinterpret_cast<const char*>(step.layer.values(0, ref.head));
  tile.blocks = step.batch.blocks_of(ref.sequence);
  tile.block_stride = step.layer.block_stride();
  tile.block_size = static_cast<int>(step.layer.layout.block_size);
  tile.head_dim = step.spec.head_dim;
  tile.dim = static_cast<int>(step.dim());
  tile.rows = ref.rows;
  tile.window = step.spec.window;
  tile.scale = step.spec.scale;
  tile.softcap = step.spec.softcap;
  for (int r = 0; r < ref.rows; ++r) {
    const int64_t row = step.batch.seq_start[ref.sequence] + (ref.first + r) / group;
    const int64_t column =
        (ref.head * group + (ref.first + r) % group) * static_cast<int64_t>(step.spec.head_dim);
    tile.position[r] = step.batch.positions[row];
    tile.query[r] = step.q + row * step.ldq + column;
    tile.out[r] = step.out + row * step.ldo + column;
  }
  return tile;
}

void AttentionDriver::run_item(const Step& step, const Item& item, Thread& thread) {
  const AttentionKernels& kernels = step.kernels;
  const int count = item.tile_end - item.tile_begin, dim = static_cast<int>(step.dim());
  const TileRef* refs = &tiles_[item.tile_begin];
  const bool whole = item.span_end - item.span_begin == refs->span_end - refs->span_begin;
  const auto partial = [&](const TileRef& ref, int span) {
    return state_at(partials_.reserve(0) + ref.partial + (span - ref.span_begin) * state_size(ref.rows, dim));
  };
  const int64_t stride = item.scratch, state = state_size(kMaxTileRows, dim);
  char* scratch = reinterpret_cast<char*>(thread.scratch.reserve(0));
  float* states = thread.states.reserve(0);
  thread.tiles.clear();
  thread.total.clear();
  thread.more.clear();
  for (int i = 0; i < count; ++i) {
    thread.tiles.push_back(tile_of(step, refs[i]));
    kernels.pack_queries(thread.tiles[i], scratch + i * stride);
    thread.total.push_back(whole ? state_at(states + 2 * i * state) : partial(refs[i], item.span_begin));
    if (whole) thread.more.push_back(state_at(states + (2 * i + 1) * state));
  }
  const AttentionTile* tiles = thread.tiles.data();
  for (int span = item.span_begin; span < item.span_end; ++span) {
    const auto& to = span == item.span_begin ? thread.total : thread.more;
    kernels.span(tiles, count, item.stream, span * kSpan, scratch, stride, to.data());
    if (span == item.span_begin) continue;
    for (int i = 0; i < count; ++i) kernels.merge(refs[i].rows, dim, thread.total[i], thread.more[i]);
  }
  for (int i = 0; i < count; ++i) {
    if (whole) {
      kernels.finish(tiles[i], thread.total[i]);
      continue;
    }
    if (spans_left_[item.tile_begin + i].fetch_sub(1, std::memory_order_acq_rel) > 1) continue;
    const AttentionState merged = partial(refs[i], refs[i].span_begin);
    for (int span = refs[i].span_begin + 1; span < refs[i].span_end; ++span)
      kernels.merge(refs[i].rows, dim, merged, partial(refs[i], span));
    kernels.finish(tiles[i], merged);
  }
}

void AttentionDriver::run(const AttentionKernels& kernels, const StepBatch& batch,
                          const CpuKvCache::Layer& layer, const AttentionSpec& spec, const float* q,
                          int64_t ldq, float* out, int64_t ldo) {
  const Step step{kernels, batch, layer, spec, q, ldq, out, ldo};
  cut(step);
  std::atomic<size_t> next{0};
  pool_.run([&](int thread) {
    for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < items_.size();)
      run_item(step, items_[i], threads_[thread]);
  });
}

}  // namespace vllm::cpu

// The bodies of AttentionKernels over the vectors of simd.h, for any way to multiply pairs. A `Pairs` type
// says how:
//   Stored       element of the cache
//   Operand      a pair of query values or weights as the product takes it
//   Loaded       vectors of pairs from the cache, one pair a lane
//   Broadcast    one operand for all lanes
//   key_units    units of 16 keys that one pass of scores holds in registers, by rows
//   kValueRows, kValueDims   rows and vectors of dims that one pass of outputs holds in registers
#pragma once
#include "device/cpu/attention.h"
#include "device/cpu/kv_layout.h"
#include "device/cpu/simd.h"

namespace vllm::cpu {
namespace {

constexpr int kUnit = 16;  // keys that lie together whatever the block size
constexpr int kUnitVectors = kUnit / kLanes;
constexpr int kUnits = kGroup / kUnit;                              // of a group
constexpr int kMostKeyUnits = 4;                                    // of one pass of scores
constexpr int kScoreStride = kGroup + (kMostKeyUnits - 1) * kUnit;  // room for a last pass in part
constexpr float kNone = -INFINITY;

/// Products with a cache that is widened to f32: both members of a pair are multiplied and added in turn.
struct FloatOperand {
  float a, b;
};
struct Float2 {
  F a, b;
};
struct WidenedPairs {
  using Operand = FloatOperand;
  using Loaded = Float2;
  using Broadcast = Float2;
#if defined(__AVX512F__)
  static constexpr int key_units(int rows) { return rows <= 4 ? 4 : 2; }
  static constexpr int kValueRows = 4, kValueDims = 4;
#elif defined(__AVX2__)
  static constexpr int key_units(int rows) { return rows == 1 ? 2 : 1; }
  static constexpr int kValueRows = 4, kValueDims = 2;
#else
  static constexpr int key_units(int) { return 1; }
  static constexpr int kValueRows = 2, kValueDims = 4;
#endif
  static Broadcast broadcast(const Operand* x) { return {splat(x->a), splat(x->b)}; }
  static F multiply_add(F sum, const Loaded& w, const Broadcast& x) {
    return fma(w.b, x.b, fma(w.a, x.a, sum));
  }
  static Operand operand(float a, float b) { return {a, b}; }
  /// Stores 16 weights as 8 operands and returns what their sum gains, as vectors.
  static F store_weights(Operand* to, const F* weights, F sum) {
#pragma GCC unroll 4
    for (int v = 0; v < kUnitVectors; ++v) {
      store(&to[0].a + v * kLanes, weights[v]);
      sum += weights[v];
    }
    return sum;
  }
};

struct Bf16Widened : WidenedPairs {
  using Stored = uint16_t;
  static constexpr bool kBf16 = true;
  static constexpr int kVectorElements = 2 * kLanes;
  static Loaded load_pairs(const Stored* p, int64_t) {
    I words;
    __builtin_memcpy(&words, p, sizeof words);
    return {bits_to_float(words << 16), bits_to_float(words & static_cast<int32_t>(0xffff0000))};
  }
};

struct F32Pairs : WidenedPairs {
  using Stored = float;
  static constexpr bool kBf16 = false;
  static constexpr int kVectorElements = kLanes;
  static Loaded load_pairs(const Stored* p, int64_t second) { return {load(p), load(p + second)}; }
};

template <class Pairs>
struct Scratch {
  float* scores;                     // [kMaxTileRows][kScoreStride]
  typename Pairs::Operand* weights;  // [kMaxTileRows][kGroup / 2]
  typename Pairs::Operand* queries;  // [dim / 2][rows]

  explicit Scratch(void* memory) {
    scores = static_cast<float*>(memory);
    weights = reinterpret_cast<typename Pairs::Operand*>(scores + kMaxTileRows * kScoreStride);
    queries = weights + kMaxTileRows * kGroup / 2;
  }
  static int64_t bytes(int dim) {
    return kMaxTileRows * (kScoreStride * static_cast<int64_t>(sizeof(float)) +
                           (kGroup / 2 + dim / 2) * static_cast<int64_t>(sizeof(typename Pairs::Operand)));
  }
};

template <class Pairs>
void pack_queries(const AttentionTile& tile, void* memory) {
  typename Pairs::Operand* to = Scratch<Pairs>(memory).queries;
  for (int k = 0; k < tile.dim / 2; ++k) {
    for (int r = 0; r < tile.rows; ++r) {
      const float* q = tile.query[r];
      *to++ = Pairs::operand(2 * k < tile.head_dim ? q[2 * k] * tile.scale : 0.0f,
                             2 * k + 1 < tile.head_dim ? q[2 * k + 1] * tile.scale : 0.0f);
    }
  }
}

/// Keys first .. end - 1 are visible to a row.
struct Visible {
  int first, end;
};
inline Visible visible(const AttentionTile& tile, int row) {
  const int position = tile.position[row];
  return {tile.window > 0 && position >= tile.window ? position - tile.window + 1 : 0, position + 1};
}

/// Scores of R rows with kUnits_ units of keys; `keys` are the units' first elements.
template <class Pairs, int R, int kUnits_>
inline void score_units(const typename Pairs::Stored* const* keys, int64_t block_size, int dim,
                        const typename Pairs::Operand* queries, float* scores) {
  constexpr int kVectors = kUnits_ * kUnitVectors;
  F sums[R][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sums[r][v] = F{};
  const typename Pairs::Stored* at[kUnits_];
#pragma GCC unroll 4
  for (int u = 0; u < kUnits_; ++u) at[u] = keys[u];
  for (int k = 0; k < dim / 2; ++k) {
    typename Pairs::Loaded w[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v)
      w[v] = Pairs::load_pairs(at[v / kUnitVectors] + v % kUnitVectors * Pairs::kVectorElements, block_size);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const typename Pairs::Broadcast x = Pairs::broadcast(queries + k * R + r);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums[r][v] = Pairs::multiply_add(sums[r][v], w[v], x);
    }
#pragma GCC unroll 4
    for (int u = 0; u < kUnits_; ++u) at[u] += 2 * block_size;
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) store(scores + r * kScoreStride + v * kLanes, sums[r][v]);
}

/// Turns a row's scores of units begin .. end - 1 of the group into weights and updates its m, l and o.
template <class Pairs>
inline void softmax(const AttentionTile& tile, int row, int group, int begin, int end, float* scores,
                    typename Pairs::Operand* weights, const AttentionState& state) {
  const Visible seen = visible(tile, row);
  const F none = splat(kNone);
  F top = none;
  for (int u = begin; u < end; ++u) {
    const int key = group + u * kUnit;
    const bool all = seen.first <= key && seen.end >= key + kUnit;
#pragma GCC unroll 4
    for (int v = 0; v < kUnitVectors; ++v) {
      float* at = scores + u * kUnit + v * kLanes;
      F s = load(at);
      if (tile.softcap > 0.0f) s = tile.softcap * tanh(s / tile.softcap);
      if (!all) {
        const I number = lane_numbers() + (key + v * kLanes);
        s = number >= seen.first ? s : none;
        s = number < seen.end ? s : none;
      }
      if (!all || tile.softcap > 0.0f) store(at, s);
      top = max(top, s);
    }
  }
  const float highest_here = highest(top), before = state.m[row];
  const float m = highest_here > before ? highest_here : before;
  if (m == kNone) {
    for (int u = begin; u < end; ++u)
      for (int j = 0; j < kUnit / 2; ++j) weights[u * kUnit / 2 + j] = typename Pairs::Operand{};
    return;
  }
  if (m > before) {
    const float factor = expf(before - m);
    state.m[row] = m;
    state.l[row] *= factor;
    float* o = state.o + row * tile.dim;
    for (int d = 0; d < tile.dim; d += kLanes) store(o + d, load(o + d) * factor);
  }
  F total = {};
  for (int u = begin; u < end; ++u) {
    F w[kUnitVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kUnitVectors; ++v) w[v] = exp_nonpositive(load(scores + u * kUnit + v * kLanes) - m);
    total = Pairs::store_weights(weights + u * kUnit / 2, w, total);
  }
  state.l[row] += sum(total);
}

/// Adds weights x values of units begin .. end - 1 to kRows rows of o, kVectors vectors of dims wide.
template <class Pairs, int kRows, int kVectors>
inline void add_values(const typename Pairs::Stored* const* values, int64_t offset, int64_t width, int begin,
                       int end, const typename Pairs::Operand* weights, int dim, float* o) {
  F sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sums[r][v] = load(o + r * dim + v * kLanes);
  for (int u = begin; u < end; ++u) {
    const typename Pairs::Stored* at = values[u] + offset;
    const typename Pairs::Operand* x = weights + u * kUnit / 2;
    for (int j = 0; j < kUnit / 2; ++j) {
      typename Pairs::Loaded w[kVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) w[v] = Pairs::load_pairs(at + v * Pairs::kVectorElements, width);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const typename Pairs::Broadcast b = Pairs::broadcast(x + r * (kGroup / 2) + j);
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) sums[r][v] = Pairs::multiply_add(sums[r][v], w[v], b);
      }
      at += 2 * width;
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) store(o + r * dim + v * kLanes, sums[r][v]);
}

/// The largest divisor of n that is at most `most`.
constexpr int divisor_up_to(int n, int most) {
  int d = n < most ? n : most;
  while (n % d != 0) --d;
  return d;
}

/// add_values over all rows of the tile for dims chunk .. chunk + width - 1.
template <class Pairs, int R, int kVectors>
inline void add_chunk(const typename Pairs::Stored* const* values, int64_t width, int64_t column, int begin,
                      int end, const typename Pairs::Operand* weights, int dim, float* o) {
  constexpr int kRows = divisor_up_to(R, Pairs::kValueRows);
  if constexpr (kVectors > 0) {
    for (; column + kVectors * kLanes <= width; column += kVectors * kLanes)
      for (int r = 0; r < R; r += kRows)
        add_values<Pairs, kRows, kVectors>(values, column / kLanes * Pairs::kVectorElements, width, begin,
                                           end, weights + r * (kGroup / 2), dim, o + r * dim + column);
    if (column < width) add_chunk<Pairs, R, kVectors - 1>(values, width, column, begin, end, weights, dim, o);
  }
}

template <class Pairs, int R>
void span_of(const AttentionTile& tile, int first, void* memory, const AttentionState& state) {
  using Stored = typename Pairs::Stored;
  constexpr int kPass = Pairs::key_units(R);
  const Scratch<Pairs> scratch(memory);
  const KvLayout layout{tile.block_size, tile.dim, Pairs::kBf16};
  for (int r = 0; r < R; ++r) {
    state.m[r] = kNone;
    state.l[r] = 0.0f;
  }
  for (int i = 0; i < R * tile.dim; i += kLanes) store(state.o + i, F{});

  const int seen_first = visible(tile, 0).first, seen_end = visible(tile, R - 1).end;
  for (int group = first; group < first + kSpan; group += kGroup) {
    // Units that at least one row sees.
    const int begin = seen_first > group ? (seen_first - group) / kUnit : 0;
    const int end = seen_end - group >= kGroup ? kUnits : (seen_end - group + kUnit - 1) / kUnit;
    if (begin >= end) continue;

    const Stored *keys[kUnits + kMostKeyUnits], *blocks[kUnits], *values[kUnits];
    int slots[kUnits];
    int block = (group + begin * kUnit) / tile.block_size, slot = (group + begin * kUnit) % tile.block_size;
    for (int u = begin; u < end; ++u) {
      blocks[u] = static_cast<const Stored*>(tile.cache) + tile.blocks[block] * tile.block_stride;
      keys[u] = blocks[u] + layout.key(slot, 0);
      slots[u] = slot;
      slot += kUnit;
      if (slot == tile.block_size) {
        slot = 0;
        ++block;
      }
    }
    for (int u = 0; u < kMostKeyUnits; ++u)
      keys[end + u] = keys[end - 1];  // a last pass in part repeats a unit

    for (int u = begin; u < end; u += kPass)
      score_units<Pairs, R, kPass>(keys + u, tile.block_size, tile.dim, scratch.queries,
                                   scratch.scores + u * kUnit);
    for (int r = 0; r < R; ++r)
      softmax<Pairs>(tile, r, group, begin, end, scratch.scores + r * kScoreStride,
                     scratch.weights + r * (kGroup / 2), state);
    for (int chunk = 0; chunk < tile.dim; chunk += 64) {
      const int64_t width = tile.dim - chunk < 64 ? tile.dim - chunk : 64;
      for (int u = begin; u < end; ++u)
        values[u] = blocks[u] + layout.values_at() + chunk * layout.block_size + slots[u] * width;
      add_chunk<Pairs, R, Pairs::kValueDims>(values, width, 0, begin, end, scratch.weights, tile.dim,
                                             state.o + chunk);
    }
  }
}

void merge(int rows, int dim, const AttentionState& total, const AttentionState& next) {
  for (int r = 0; r < rows; ++r) {
    if (next.m[r] == kNone) continue;
    const float m = total.m[r] > next.m[r] ? total.m[r] : next.m[r];
    const float keep = total.m[r] == m ? 1.0f : expf(total.m[r] - m),
                add = next.m[r] == m ? 1.0f : expf(next.m[r] - m);
    total.m[r] = m;
    total.l[r] = total.l[r] * keep + next.l[r] * add;
    float* o = total.o + r * dim;
    for (int d = 0; d < dim; d += kLanes) store(o + d, load(o + d) * keep + load(next.o + r * dim + d) * add);
  }
}

void finish(const AttentionTile& tile, const AttentionState& total) {
  for (int r = 0; r < tile.rows; ++r) {
    const float* o = total.o + r * tile.dim;
    const F l = splat(total.l[r]);
    int d = 0;
    for (; d + kLanes <= tile.head_dim; d += kLanes) store(tile.out[r] + d, load(o + d) / l);
    if (d < tile.head_dim) store_first(tile.out[r] + d, load(o + d) / l, tile.head_dim - d);
  }
}

template <class Pairs>
void span(const AttentionTile& tile, int first, void* scratch, const AttentionState& state) {
  switch (tile.rows) {
    case 1:
      return span_of<Pairs, 1>(tile, first, scratch, state);
    case 2:
      return span_of<Pairs, 2>(tile, first, scratch, state);
#if defined(__AVX2__)
    case 3:
      return span_of<Pairs, 3>(tile, first, scratch, state);
    case 4:
      return span_of<Pairs, 4>(tile, first, scratch, state);
#endif
#if defined(__AVX512F__)
    case 6:
      return span_of<Pairs, 6>(tile, first, scratch, state);
    case 8:
      return span_of<Pairs, 8>(tile, first, scratch, state);
    case 12:
      return span_of<Pairs, 12>(tile, first, scratch, state);
#endif
  }
}

template <class Pairs>
constexpr AttentionKernels kAttentionKernels = {
#if defined(__AVX512F__)
    {12, 8, 6, 4, 3, 2, 1},
#elif defined(__AVX2__)
    {4, 3, 2, 1},
#else
    {2, 1},
#endif
    Scratch<Pairs>::bytes,  pack_queries<Pairs>, span<Pairs>, merge, finish};

}  // namespace
}  // namespace vllm::cpu

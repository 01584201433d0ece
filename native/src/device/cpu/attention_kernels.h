// The bodies of AttentionKernels over the vectors of simd.h, for any cache. A `Cache` type says how a cache
// is written and multiplied:
//   store        puts a token of a head into its block
//   Scratch      the memory of a tile
//   pack_query   lays a query out
//   scores       scores of some units of keys
//   store_weights, no_weights   takes the softmax weights of a unit
//   values       adds weights x values of some units
//   done         ends what a thread's products began
// PairCache is that of bf16 and f32, in which two neighbours are multiplied at a time. Its `Pairs` type says
// how:
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
constexpr int kMostKeyUnits = 2;                                    // of one pass of scores
constexpr int kScoreStride = kGroup + (kMostKeyUnits - 1) * kUnit;  // room for a last pass in part
constexpr float kNone = -INFINITY;
constexpr int32_t kUpperHalf = INT32_MIN >> 15;  // 0xffff0000

/// The first n lanes, which may be none or more than there are; the others are zero.
inline F load_some(const float* p, int n) { return n >= kLanes ? load(p) : n > 0 ? load_first(p, n) : F{}; }
inline void store_int(uint32_t* p, I v) { __builtin_memcpy(p, &v, sizeof v); }

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
  static constexpr int key_units(int) { return 2; }
  static constexpr int kValueRows = 4, kValueDims = 4;
#elif defined(__AVX2__)
  static constexpr int key_units(int rows) { return rows == 1 ? 2 : 1; }
  static constexpr int kValueRows = 4, kValueDims = 2;
#elif defined(__aarch64__)
  static constexpr int key_units(int rows) { return rows <= 2 ? 2 : 1; }
  static constexpr int kValueRows = 4, kValueDims = 4;
#else
  static constexpr int key_units(int) { return 1; }
  static constexpr int kValueRows = 2, kValueDims = 4;
#endif
  static Broadcast broadcast(const Operand* x) { return {splat(x->a), splat(x->b)}; }
  static F multiply_add(F sum, const Loaded& w, const Broadcast& x) {
    return fma(w.b, x.b, fma(w.a, x.a, sum));
  }
  /// Stores 16 numbers as 8 operands and adds them, as stored, to the lanes of `sum`.
  static F store_operands(Operand* to, const F* weights, F sum) {
#pragma GCC unroll 4
    for (int v = 0; v < kUnitVectors; ++v) {
      store(&to[0].a + v * kLanes, weights[v]);
      sum += weights[v];
    }
    return sum;
  }
};

/// Rounds to nearest even, as bits in the upper half; the lower half is whatever it is.
inline I to_bf16(F x) {
  const I bits = float_to_bits(x);
  const I rounded = bits + 0x7fff + ((bits >> 16) & 1);
  return x == x ? rounded : bits | 0x400000;
}

struct Bf16Storage {
  using Stored = uint16_t;
  static void store_token(const KvLayout& layout, int head_dim, int64_t slot, const float* k, const float* v,
                          uint16_t* keys, uint16_t* values) {
    uint32_t bits[kLanes];
    uint16_t* to = keys + layout.key(slot, 0);
    for (int d = 0; d < head_dim; d += kLanes) {
      store_int(bits, to_bf16(load_some(k + d, head_dim - d)));
#pragma GCC unroll 8
      for (int i = 0; i < kLanes; i += 2, to += 2 * layout.block_size) {
        const uint32_t pair = bits[i] >> 16 | (bits[i + 1] & 0xffff0000);
        __builtin_memcpy(to, &pair, sizeof pair);
      }
    }
    // The other token of a pair keeps its half of each word.
    const bool odd = slot % 2 != 0;
    for (int d = 0; d < head_dim; d += kLanes) {
      const I rounded = to_bf16(load_some(v + d, head_dim - d));
      uint16_t* at = values + layout.value(slot - odd, d);
      I words;
      __builtin_memcpy(&words, at, sizeof words);
      words =
          odd ? (words & 0xffff) | (rounded & kUpperHalf) : (words & kUpperHalf) | ((rounded >> 16) & 0xffff);
      __builtin_memcpy(at, &words, sizeof words);
    }
  }
};

struct Bf16Widened : WidenedPairs, Bf16Storage {
  static constexpr KvElement kElement = KvElement::BF16;
  static constexpr int kVectorElements = 2 * kLanes;
  static Loaded load_pairs(const Stored* p, int64_t) {
    I words;
    __builtin_memcpy(&words, p, sizeof words);
    return {bits_to_float(words << 16), bits_to_float(words & kUpperHalf)};
  }
};

struct F32Pairs : WidenedPairs {
  using Stored = float;
  static constexpr KvElement kElement = KvElement::F32;
  static constexpr int kVectorElements = kLanes;
  static Loaded load_pairs(const Stored* p, int64_t second) { return {load(p), load(p + second)}; }
  static void store_token(const KvLayout& layout, int head_dim, int64_t slot, const float* k, const float* v,
                          float* keys, float* values) {
    for (int d = 0; d < head_dim; ++d) keys[layout.key(slot, d)] = k[d];
    for (int d = 0; d < head_dim; d += 64)
      __builtin_memcpy(values + layout.value(slot, d), v + d,
                       static_cast<size_t>(head_dim - d < 64 ? head_dim - d : 64) * sizeof(float));
  }
};

constexpr int64_t whole_lines(int64_t bytes) { return (bytes + 63) / 64 * 64; }

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
template <class Cache>
inline void softmax(const AttentionTile& tile, int row, int group, int begin, int end,
                    const typename Cache::Scratch& scratch, const AttentionState& state) {
  float* scores = scratch.scores + row * kScoreStride;
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
  if (m == kNone) return Cache::no_weights(scratch, row, begin, end);
  state.m[row] = m;
  if (m > before && before != kNone) {
    const float factor = expf(before - m);
    state.l[row] *= factor;
    float* o = state.o + row * tile.dim;
    for (int d = 0; d < tile.dim; d += kLanes) store(o + d, load(o + d) * factor);
  }
  F total = {};
  for (int u = begin; u < end; ++u) {
    F w[kUnitVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kUnitVectors; ++v) w[v] = exp_nonpositive(load(scores + u * kUnit + v * kLanes) - m);
    total = Cache::store_weights(scratch, row, u, w, total);
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

/// Where the units of a group lie.
struct Units {
  int begin, end;                         // those that a row of the tiles sees
  int64_t block[kUnits + kMostKeyUnits];  // bytes from block 0 to the unit's; past the end the last one again
  int slot[kUnits + kMostKeyUnits];       // of its first key in the block
};

inline Units units_of(const AttentionTile& tile, int group, int seen_first, int seen_end) {
  Units units;
  units.begin = seen_first > group ? (seen_first - group) / kUnit : 0;
  units.end = seen_end - group >= kGroup ? kUnits : (seen_end - group + kUnit - 1) / kUnit;
  const int first = group + units.begin * kUnit;
  int block = first / tile.block_size, slot = first % tile.block_size;
  for (int u = units.begin; u < units.end; ++u) {
    units.block[u] = tile.blocks[block] * tile.block_stride;
    units.slot[u] = slot;
    slot += kUnit;
    if (slot == tile.block_size) {
      slot = 0;
      ++block;
    }
  }
  for (int u = units.end > 0 ? units.end : 0; u < units.end + kMostKeyUnits && units.begin < units.end; ++u) {
    units.block[u] = units.block[units.end - 1];
    units.slot[u] = units.slot[units.end - 1];
  }
  return units;
}

/// What caches share whose products take a pair of query values or weights at a time.
template <class Pairs>
struct OperandCache {
  using Stored = typename Pairs::Stored;
  using Operand = typename Pairs::Operand;

  struct Scratch {
    float* scores;     // [rows][kScoreStride]
    Operand* weights;  // [rows][kGroup / 2]
    Operand* queries;  // [dim / 2][rows], or as pack_query of the cache lays them out

    Scratch(void* memory, int rows) {
      scores = static_cast<float*>(memory);
      weights = reinterpret_cast<Operand*>(scores + rows * kScoreStride);
      queries = weights + rows * kGroup / 2;
    }
  };
  static int64_t scratch_bytes(int rows, int dim) {
    return whole_lines(rows * (kScoreStride * static_cast<int64_t>(sizeof(float)) +
                               (kGroup / 2 + dim / 2) * static_cast<int64_t>(sizeof(Operand))));
  }

  static void store(const KvLayout& layout, int head_dim, int64_t slot, const float* k, const float* v,
                    void* keys, void* values) {
    Pairs::store_token(layout, head_dim, slot, k, v, static_cast<Stored*>(keys),
                       static_cast<Stored*>(values));
  }

  static F store_weights(const Scratch& scratch, int row, int unit, const F* weights, F sum) {
    return Pairs::store_operands(scratch.weights + row * (kGroup / 2) + unit * (kUnit / 2), weights, sum);
  }
  static void no_weights(const Scratch& scratch, int row, int begin, int end) {
    Operand* weights = scratch.weights + row * (kGroup / 2);
    for (int j = begin * kUnit / 2; j < end * kUnit / 2; ++j) weights[j] = Operand{};
  }

  static void done() {}
};

template <class Pairs>
struct PairCache : OperandCache<Pairs> {
  using typename OperandCache<Pairs>::Stored;
  using typename OperandCache<Pairs>::Operand;
  using typename OperandCache<Pairs>::Scratch;

  static void pack_query(const AttentionTile& tile, int row, const Scratch& scratch) {
    Operand pairs[kUnit / 2];
    for (int d = 0; d < tile.dim; d += kUnit) {
      F q[kUnitVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kUnitVectors; ++v)
        q[v] = load_some(tile.query[row] + d + v * kLanes, tile.head_dim - d - v * kLanes) * tile.scale;
      Pairs::store_operands(pairs, q, F{});
      Operand* to = scratch.queries + d / 2 * tile.rows + row;
#pragma GCC unroll 8
      for (int j = 0; j < kUnit / 2; ++j) to[j * tile.rows] = pairs[j];
    }
  }

  template <int R>
  static void scores(const AttentionTile& tile, const Units& units, int begin, int end,
                     const Scratch& scratch) {
    constexpr int kPass = Pairs::key_units(R);
    const KvLayout layout{tile.block_size, tile.dim, Pairs::kElement};
    for (int u = begin; u < end; u += kPass) {
      const Stored* keys[kPass];
#pragma GCC unroll 4
      for (int i = 0; i < kPass; ++i)
        keys[i] = reinterpret_cast<const Stored*>(tile.keys + units.block[u + i]) +
                  layout.key(units.slot[u + i], 0);
      score_units<Pairs, R, kPass>(keys, tile.block_size, tile.dim, scratch.queries,
                                   scratch.scores + u * kUnit);
    }
  }

  template <int R>
  static void values(const AttentionTile& tile, const Units& units, int begin, int end,
                     const Scratch& scratch, float* o) {
    for (int chunk = 0; chunk < tile.dim; chunk += 64) {
      const int64_t width = tile.dim - chunk < 64 ? tile.dim - chunk : 64;
      const Stored* values[kUnits];
      for (int u = begin; u < end; ++u)
        values[u] = reinterpret_cast<const Stored*>(tile.values + units.block[u]) +
                    chunk * static_cast<int64_t>(tile.block_size) + units.slot[u] * width;
      add_chunk<Pairs, R, Pairs::kValueDims>(values, width, 0, begin, end, scratch.weights, tile.dim,
                                             o + chunk);
    }
  }
};

/// body.operator()<rows>() for the sizes of a tile.
template <class Body>
inline void with_rows(int rows, Body body) {
  switch (rows) {
    case 1:
      return body.template operator()<1>();
    case 2:
      return body.template operator()<2>();
#if defined(__AVX2__) || defined(__aarch64__)
    case 3:
      return body.template operator()<3>();
    case 4:
      return body.template operator()<4>();
#endif
#if defined(__AVX512F__)
    case 6:
      return body.template operator()<6>();
    case 8:
      return body.template operator()<8>();
    case 12:
      return body.template operator()<12>();
#endif
#if defined(__AMX_TILE__)
    case 16:
      return body.template operator()<16>();
#endif
  }
}

template <class Cache>
void pack_queries(const AttentionTile& tile, void* memory) {
  const typename Cache::Scratch scratch(memory, tile.rows);
  for (int r = 0; r < tile.rows; ++r) Cache::pack_query(tile, r, scratch);
}

template <class Cache>
void span(const AttentionTile* tiles, int count, bool stream, int first, char* memory, int64_t stride,
          const AttentionState* states) {
  using Scratch = typename Cache::Scratch;
  int seen_first = INT32_MAX, seen_end = 0;
  for (int i = 0; i < count; ++i) {
    const AttentionTile& tile = tiles[i];
    for (int r = 0; r < tile.rows; ++r) {
      states[i].m[r] = kNone;
      states[i].l[r] = 0.0f;
    }
    for (int d = 0; d < tile.rows * tile.dim; d += kLanes) store(states[i].o + d, F{});
    const int tile_first = visible(tile, 0).first, tile_end = visible(tile, tile.rows - 1).end;
    if (tile_first < seen_first) seen_first = tile_first;
    if (tile_end > seen_end) seen_end = tile_end;
  }
  // Tiles that stream take turns block by block, so that memory is read in one run. Others keep their sums in
  // registers.
  const int block_units = tiles->block_size / kUnit;
  const int step = !stream || block_units > kUnits ? kUnits : block_units < 2 ? 2 : block_units;
  const int last = first + kSpan < seen_end ? first + kSpan : seen_end;
  for (int group = first; group < last; group += kGroup) {
    if (seen_first >= group + kGroup) continue;
    const Units units = units_of(*tiles, group, seen_first, seen_end);
    /// body<rows>(tile, scratch, begin, end of its units) for all units and tiles.
    const auto by_steps = [&](auto body) {
      for (int u = units.begin, next; u < units.end; u = next) {
        next = (u / step + 1) * step;
        if (next > units.end) next = units.end;
        for (int i = 0; i < count; ++i)
          with_rows(tiles[i].rows, [&]<int R>() {
            body.template operator()<R>(i, Scratch(memory + i * stride, R), u, next);
          });
      }
    };
    by_steps([&]<int R>(int i, const Scratch& scratch, int begin, int end) {
      Cache::template scores<R>(tiles[i], units, begin, end, scratch);
    });
    for (int i = 0; i < count; ++i) {
      const Scratch scratch(memory + i * stride, tiles[i].rows);
      for (int r = 0; r < tiles[i].rows; ++r)
        softmax<Cache>(tiles[i], r, group, units.begin, units.end, scratch, states[i]);
    }
    by_steps([&]<int R>(int i, const Scratch& scratch, int begin, int end) {
      Cache::template values<R>(tiles[i], units, begin, end, scratch, states[i].o);
    });
  }
  Cache::done();
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

template <class Cache>
constexpr AttentionKernels kAttentionKernels = {
#if defined(__AMX_TILE__)
    {16, 12, 8, 6, 4, 3, 2, 1},
#elif defined(__AVX512F__)
    {12, 8, 6, 4, 3, 2, 1},
#elif defined(__AVX2__) || defined(__aarch64__)
    {4, 3, 2, 1},
#else
    {2, 1},
#endif
    Cache::scratch_bytes,       Cache::store, pack_queries<Cache>, span<Cache>, merge, finish};

}  // namespace
}  // namespace vllm::cpu

// Attention over a cache of int8 with a scale for 32 dims of a token. What is stored is widened in registers
// and multiplied by queries and weights in f32, on every instruction set.
#pragma once
#include "device/cpu/attention_kernels.h"

namespace vllm::cpu {
namespace {

using Bytes [[gnu::vector_size(kLanes)]] = int8_t;

/// 32 numbers as bytes times a scale. The scale is a bf16, rounded up so that no byte goes beyond 127, and
/// zero where the numbers are too small for a normal one.
struct QuantisedDims {
  int8_t bytes[kQ8Dims];
  uint16_t scale;

  QuantisedDims(const float* x, int count) {
    constexpr int kVectors = kQ8Dims / kLanes;
    F v[kVectors], top = {};
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      v[i] = load_some(x + i * kLanes, count - i * kLanes);
      top = max(top, bits_to_float(float_to_bits(v[i]) & INT32_MAX));
    }
    float step = highest(top) / 127.0f;
    uint32_t bits;
    __builtin_memcpy(&bits, &step, sizeof bits);
    bits = (bits + 0xffff) & 0xffff0000u;
    __builtin_memcpy(&step, &bits, sizeof bits);
    if (!(step >= kQ8SmallestStep)) step = 0.0f, bits = 0;
    scale = static_cast<uint16_t>(bits >> 16);
    const float inverse = step > 0.0f ? 1.0f / step : 0.0f;
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      const Bytes b = __builtin_convertvector(round_to_int(v[i] * inverse).integer, Bytes);
      __builtin_memcpy(bytes + i * kLanes, &b, sizeof b);
    }
  }
};

struct Q8Cache {
  struct Scratch {
    float* scores;   // [rows][kScoreStride]; weights take their place
    float* queries;  // [dim][rows]

    Scratch(void* memory, int rows) {
      scores = static_cast<float*>(memory);
      queries = scores + rows * kScoreStride;
    }
  };
  static int64_t scratch_bytes(int rows, int dim) {
    return whole_lines(static_cast<int64_t>(sizeof(float)) * rows * (kScoreStride + dim));
  }

  static void store(const KvLayout& layout, int head_dim, int64_t slot, const float* k, const float* v,
                    void* keys, void* values) {
    for (int d = 0; d < head_dim; d += kQ8Dims) {
      const QuantisedDims key(k + d, head_dim - d), value(v + d, head_dim - d);
      int8_t* key_chunk = static_cast<int8_t*>(keys) + layout.q8_chunk(d);
      int8_t* value_chunk = static_cast<int8_t*>(values) + layout.q8_chunk(d);
      __builtin_memcpy(key_chunk + 2 * slot, &key.scale, sizeof key.scale);
      __builtin_memcpy(value_chunk + 2 * slot, &value.scale, sizeof value.scale);
      int8_t* to = key_chunk + layout.q8_bytes() + slot;
      for (int i = 0; i < kQ8Dims; ++i) to[i * layout.block_size] = key.bytes[i];
      __builtin_memcpy(value_chunk + layout.q8_bytes() + slot * kQ8Dims, value.bytes, kQ8Dims);
    }
  }

  static void pack_query(const AttentionTile& tile, int row, const Scratch& scratch) {
    float* to = scratch.queries + row;
    for (int d = 0; d < tile.dim; ++d, to += tile.rows)
      *to = d < tile.head_dim ? tile.query[row][d] * tile.scale : 0.0f;
  }

  template <int R>
  static void scores(const AttentionTile& tile, const Units& units, int begin, int end,
                     const Scratch& scratch) {
    constexpr int kPass = kLanes == 16 || (kLanes == 8 && R == 1) ? 2 : 1;
    constexpr int kVectors = kPass * kUnitVectors;
    const KvLayout layout{tile.block_size, tile.dim, KvElement::Q8};
    for (int u = begin; u < end; u += kPass) {
      for (int d = 0; d < tile.dim; d += kQ8Dims) {
        const int8_t *scales[kPass], *at[kPass];
#pragma GCC unroll 2
        for (int i = 0; i < kPass; ++i) {
          const char* chunk = tile.keys + units.block[u + i] + layout.q8_chunk(d);
          scales[i] = reinterpret_cast<const int8_t*>(chunk) + 2 * units.slot[u + i];
          at[i] = reinterpret_cast<const int8_t*>(chunk) + layout.q8_bytes() + units.slot[u + i];
        }
        F sums[R][kVectors];
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
          for (int v = 0; v < kVectors; ++v) sums[r][v] = F{};
        const float* q = scratch.queries + d * R;
        for (int i = 0; i < kQ8Dims; ++i, q += R) {
          F w[kVectors];
#pragma GCC unroll 16
          for (int v = 0; v < kVectors; ++v)
            w[v] = load_int8(at[v / kUnitVectors] + i * layout.block_size + v % kUnitVectors * kLanes);
#pragma GCC unroll 16
          for (int r = 0; r < R; ++r) {
            const F x = splat(q[r]);
#pragma GCC unroll 16
            for (int v = 0; v < kVectors; ++v) sums[r][v] = fma(w[v], x, sums[r][v]);
          }
        }
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) {
          const F scale = load_bf16(scales[v / kUnitVectors] + 2 * (v % kUnitVectors) * kLanes);
#pragma GCC unroll 16
          for (int r = 0; r < R; ++r) {
            float* to = scratch.scores + r * kScoreStride + u * kUnit + v * kLanes;
            cpu::store(to, d == 0 ? sums[r][v] * scale : fma(sums[r][v], scale, load(to)));
          }
        }
      }
    }
  }

  static F store_weights(const Scratch& scratch, int row, int unit, const F* weights, F sum) {
#pragma GCC unroll 4
    for (int v = 0; v < kUnitVectors; ++v) {
      cpu::store(scratch.scores + row * kScoreStride + unit * kUnit + v * kLanes, weights[v]);
      sum += weights[v];
    }
    return sum;
  }
  static void done() {}
  static void no_weights(const Scratch& scratch, int row, int begin, int end) {
    for (int i = begin * kUnit; i < end * kUnit; ++i) scratch.scores[row * kScoreStride + i] = 0.0f;
  }

  /// Adds weights x values of 32 dims of one chunk to kRows rows of o.
  template <int kRows>
  static void add_values(const AttentionTile& tile, const Units& units, int begin, int end, int d,
                         const float* weights, float* o) {
    constexpr int kVectors = kQ8Dims / kLanes;
    const KvLayout layout{tile.block_size, tile.dim, KvElement::Q8};
    F sums[kRows][kVectors];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums[r][v] = load(o + r * tile.dim + v * kLanes);
    for (int u = begin; u < end; ++u) {
      const auto* chunk = reinterpret_cast<const int8_t*>(tile.values + units.block[u] + layout.q8_chunk(d));
      const int8_t* at = chunk + layout.q8_bytes() + units.slot[u] * kQ8Dims;
      float scaled[kRows][kUnit];  // weight times the scale of the value
#pragma GCC unroll 4
      for (int v = 0; v < kUnitVectors; ++v) {
        const F scale = load_bf16(chunk + 2 * (units.slot[u] + v * kLanes));
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r)
          cpu::store(scaled[r] + v * kLanes,
                     scale * load(weights + r * kScoreStride + u * kUnit + v * kLanes));
      }
      for (int t = 0; t < kUnit; ++t, at += kQ8Dims) {
        F w[kVectors];
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) w[v] = load_int8(at + v * kLanes);
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          const F x = splat(scaled[r][t]);
#pragma GCC unroll 16
          for (int v = 0; v < kVectors; ++v) sums[r][v] = fma(w[v], x, sums[r][v]);
        }
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) cpu::store(o + r * tile.dim + v * kLanes, sums[r][v]);
  }

  template <int R>
  static void values(const AttentionTile& tile, const Units& units, int begin, int end,
                     const Scratch& scratch, float* o) {
    constexpr int kRows = divisor_up_to(R, kLanes == 16 ? 12 : kLanes == 8 ? 2 : 1);
    for (int d = 0; d < tile.dim; d += kQ8Dims)
      for (int r = 0; r < R; r += kRows)
        add_values<kRows>(tile, units, begin, end, d, scratch.scores + r * kScoreStride,
                          o + r * tile.dim + d);
  }
};

inline const AttentionKernels& kernels_of(KvElement element) {
  return element == KvElement::BF16  ? kAttentionKernels<PairCache<Bf16Widened>>
         : element == KvElement::F32 ? kAttentionKernels<PairCache<F32Pairs>>
                                     : kAttentionKernels<Q8Cache>;
}

}  // namespace
}  // namespace vllm::cpu

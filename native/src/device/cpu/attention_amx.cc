// Attention over a bf16 cache with AMX, whose tiles the cache's layout fits as it is: 16 keys times 32 dims,
// and 16 dims of 32 values.
#include "device/cpu/amx_tiles.h"
#include "device/cpu/attention_bf16dot.h"

namespace vllm::cpu {
namespace {

/// Few rows read the cache as it comes from memory. Prefetches the lines, `stride` apart, of a tile to come.
template <int R, int lines>
inline void read_ahead(const char* from, int64_t stride) {
  constexpr int kBytes = 4096;
  if constexpr (R <= 8) {
#pragma GCC unroll 16
    for (int i = 0; i < lines; ++i) __builtin_prefetch(from + kBytes + i * stride);
  }
}

struct Bf16Tiles : OperandCache<Bf16Operands> {
  /// As [rows][dim / 2].
  static void pack_query(const AttentionTile& tile, int row, const Scratch& scratch) {
    for (int d = 0; d < tile.dim; d += kUnit) {
      const F q = load_some(tile.query[row] + d, tile.head_dim - d) * tile.scale;
      Bf16Operands::store_operands(scratch.queries + (row * tile.dim + d) / 2, &q, F{});
    }
  }

  template <int R>
  static void scores(const AttentionTile& tile, const Units& units, int begin, int end,
                     const Scratch& scratch) {
    constexpr int kPass = 4;
    configure(R, kUnit);
    const KvLayout layout{tile.block_size, tile.dim, Bf16Operands::kElement};
    const int64_t row = 4 * layout.block_size;  // bytes from a pair of dims to the next
    for (int u = begin; u < end; u += kPass) {
      const char* keys[kPass];
      for (int i = 0; i < kPass; ++i) {
        const int unit = u + i < end ? u + i : u;
        keys[i] = tile.keys + units.block[unit] + 2 * layout.key(units.slot[unit], 0);
      }
      const int count = end - u;
      const auto with = [&](auto body) {
        body.template operator()<0>();
        if (count > 1) body.template operator()<1>();
        if (count > 2) body.template operator()<2>();
        if (count > 3) body.template operator()<3>();
      };
      with([&]<int i>() { zero_tile<i>(); });
      const Operand* query = scratch.queries;
      int d = 0;
      for (; d + kTileInputs <= tile.dim; d += kTileInputs, query += kTilePairs) {
        load_tile<4>(query, 2 * tile.dim);
        with([&]<int i>() {
          read_ahead<R, kTilePairs>(keys[i], row);
          load_tile<6>(keys[i], row);
          bf16_dots<i, 4, 6>();
          keys[i] += kTilePairs * row;
        });
      }
      if (d < tile.dim) {
        load_tile<5>(query, 2 * tile.dim);
        with([&]<int i>() {
          load_tile<7>(keys[i], row);
          bf16_dots<i, 5, 7>();
        });
      }
      with([&]<int i>() { store_tile<i>(scratch.scores + (u + i) * kUnit, 4 * kScoreStride); });
    }
  }

  template <int R>
  static void values(const AttentionTile& tile, const Units& units, int begin, int end,
                     const Scratch& scratch, float* o) {
    configure(R, kUnit);
    for (int chunk = 0; chunk < tile.dim; chunk += 64) {
      const int width = tile.dim - chunk < 64 ? tile.dim - chunk : 64;
      const auto with = [&](auto body) {
        body.template operator()<0>();
        if (width > 16) body.template operator()<1>();
        if (width > 32) body.template operator()<2>();
        if (width > 48) body.template operator()<3>();
      };
      with([&]<int i>() { load_tile<i>(o + chunk + 16 * i, 4 * tile.dim); });
      for (int u = begin; u < end; ++u) {
        load_tile<5>(scratch.weights + u * (kUnit / 2), 2 * kGroup);
        const char* const from = tile.values + units.block[u] +
                                 2 * (chunk * static_cast<int64_t>(tile.block_size) + units.slot[u] * width);
        with([&]<int i>() {
          read_ahead<R, kUnit / 2>(from + 64 * i, 4 * width);
          load_tile<7>(from + 64 * i, 4 * width);
          bf16_dots<i, 5, 7>();
        });
      }
      with([&]<int i>() { store_tile<i>(o + chunk + 16 * i, 4 * tile.dim); });
    }
  }

  static void done() { release(); }
};

}  // namespace

const AttentionKernels& attention_amx() { return kAttentionKernels<Bf16Tiles>; }

}  // namespace vllm::cpu

// What the products of quantised weights with AMX share. To be included after `struct Simd`, as
// matmul_tiles-inl.h.
#pragma once
#include <algorithm>

#include "device/cpu/amx_tiles.h"
#include "device/cpu/matmul_tiles-inl.h"

namespace vllm::cpu {
namespace {

constexpr int kTokens = 16;  // of a tile
constexpr int kTileSums = kTokens * 16;

/// What codes exceed their values by.
template <PanelLayout layout>
constexpr int kCodeOffset = layout.offset_bits < 0 ? 0 : 1 << std::max(layout.offset_bits, 0);

template <PanelLayout layout>
inline Word book_of(const TileProduct& product) {
  return layout.codebook ? Simd::table(product.codebook->bytes) : Word{};
}

/// A panel times tiles of 16 tokens. The inputs are cut into stretches: `unpack(s)` makes the weights of one
/// ready, `multiply(s, tile, two)` their sums with a tile, or with two neighbours, and `add(s, tile, second,
/// rows)` adds those of the tile, as the first or the second of a pair, to its rows, [16 tokens][16].
template <class Unpack, class Multiply, class Add>
inline void by_stretches(const TileProduct& product, int64_t stretches, Unpack unpack, Multiply multiply,
                         Add add) {
  constexpr int kMostTiles = 32;  // that share what was unpacked
  alignas(64) float total[kMostTiles * kTileSums];
  TileProduct part = product;
  for (int begin = 0; begin < product.tiles; begin += kMostTiles) {
    const int end = std::min(product.tiles, begin + kMostTiles);
    std::memset(total, 0, static_cast<size_t>(end - begin) * kTileSums * sizeof(float));
    for (int64_t s = 0; s < stretches; s++) {
      unpack(s);
      for (int tile = begin; tile < end; tile += 2) {
        const bool two = tile + 1 < end, last = s + 1 == stretches;
        if (last && two) prefetch_outputs<2 * kTokens, 16>(part);
        if (last && !two) prefetch_outputs<kTokens, 16>(part);
        multiply(s, tile, two);
        for (int second = 0; second < 1 + two; second++) {
          float* const rows = total + (tile + second - begin) * kTileSums;
          add(s, tile + second, second, rows);
          if (!last) continue;
          finish(part, rows, kTokens, 16);
          part.out += kTokens * part.ldo;
        }
      }
    }
  }
}

}  // namespace
}  // namespace vllm::cpu

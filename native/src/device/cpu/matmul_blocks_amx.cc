// matmul with AMX for formats whose scales are of blocks of 32 inputs, in tiles of many tokens: the sums of a
// block leave the tiles and are added as without AMX, so that all shapes agree.
#include "device/cpu/matmul_vectors_avx512.h"

namespace vllm::cpu {
namespace {

struct Simd : VnniVectors {};

}  // namespace
}  // namespace vllm::cpu

#include "device/cpu/matmul_amx-inl.h"

namespace vllm::cpu {
namespace {

constexpr int kStretch = 8;  // blocks that are unpacked, multiplied and added at a time

template <PanelLayout layout>
constexpr int kBlockSums = (layout.halves() ? 2 : 1) * kTileSums;

/// Sets the sums of a block, or of its halves, [16 tokens][16 rows] each, of a tile, and `apart` behind them
/// those of the next one: x, [16][32], times weights, [8][16][4]. Tiles of x are `next` bytes apart; 0: there
/// is just one.
template <bool halves>
inline void block_sums(const uint8_t* weights, const uint8_t* x, int64_t next, int32_t* sums, int apart) {
#pragma GCC unroll 2
  for (int half = 0; half < (halves ? 2 : 1); half++, weights += 256, x += 16, sums += kTileSums) {
    load_tile<7>(weights, 64);
    load_tile<5>(x, 32);
    zero_tile<0>();
    int8_dots<0, 5, 7, true>();
    if (next) {
      load_tile<5>(x + next, 32);
      zero_tile<1>();
      int8_dots<1, 5, 7, true>();
      store_tile<1>(sums + apart, 64);
    }
    store_tile<0>(sums, 64);
  }
}

/// Adds the sums of a stretch of blocks to the rows of a tile, [16 tokens][16]. The numbers of the
/// activations are of the tile and the first block.
template <PanelLayout layout>
inline void add_stretch(const int32_t* sums, int blocks, const BlockScales* scales,
                        const ActivationTile& tile, float* rows) {
  Float acc[kTokens];
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; t++) acc[t] = load_floats(rows + 16 * t);
  for (int b = 0; b < blocks; b++, sums += kBlockSums<layout>) {
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; t++) {
      const int at = b * kTokens + t;
      const Int high = layout.halves() ? (Int)load_words(sums + kTileSums + 16 * t) : Int{};
      acc[t] = add_sums<layout, false>(acc[t], (Int)load_words(sums + 16 * t), high, scales[b],
                                       tile.scale + at, tile.sum + at, tile.start + 3 * at);
    }
  }
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; t++) store_floats(rows + 16 * t, acc[t]);
}

/// The tiles one after the other, with VNNI.
template <PanelLayout layout>
void one_by_one(const TileProduct& product) {
  const int64_t next = product.cols / 32 * kTokens;
  TileProduct one = product;
  for (int i = 0; i < product.tiles; i++, one.out += kTokens * one.ldo) {
    quantised_product<layout, kTokens, kPrefetchBytes>(one);
    const ActivationTile& x = one.tile;
    one.tile = {static_cast<int8_t*>(x.x) + 32 * next, x.scale + next, x.start + 3 * next, x.sum + next};
  }
}

template <PanelLayout layout>
__attribute__((noinline)) void tile_product(const TileProduct& product) {
  if (product.tiles == 1) return one_by_one<layout>(product);
  constexpr int kGroup = layout.group_inputs / 32;
  configure(kTokens, layout.halves() ? 8 : 16);
  const Word book = book_of<layout>(product);
  const __m512i offset = _mm512_set1_epi8(static_cast<char>(kCodeOffset<layout>));
  alignas(64) uint8_t weights[kStretch * 512];
  alignas(64) int32_t sums[2][kStretch * kBlockSums<layout>];
  BlockScales scales[kStretch];
  GroupScales group_scales{};
  const ActivationTile& x = product.tile;
  const int64_t blocks = product.cols / 32;
  const auto count = [&](int64_t s) {
    return static_cast<int>(std::min<int64_t>(kStretch, blocks - kStretch * s));
  };
  const auto unpack = [&](int64_t s) {
    for (int b = 0; b < count(s); b++) {
      const int64_t of_row = kStretch * s + b;
      const int g = static_cast<int>(of_row % kGroup);
      const uint8_t* const group = product.panel + of_row / kGroup * layout.group_bytes;
      Word w[8];
      load_block<layout, false>(group, group + layout.data + g * layout.block_bytes, g, 0, book, w);
#pragma GCC unroll 8
      for (int i = 0; i < 8; i++)
        _mm512_store_si512(weights + 512 * b + 64 * i, _mm512_sub_epi8((__m512i)w[i], offset));
      if (g == 0) group_scales = load_group_scales<layout>(group, 0);
      scales[b] = load_scales<layout>(group, group_scales, g, 0);
    }
  };
  const auto multiply = [&](int64_t s, int tile, bool two) {
    const uint8_t* const in =
        static_cast<const uint8_t*>(x.x) + (tile * blocks + kStretch * s) * 32 * kTokens;
    for (int b = 0; b < count(s); b++) {
      block_sums<layout.halves()>(weights + 512 * b, in + b * 32 * kTokens, two ? blocks * 32 * kTokens : 0,
                                  sums[0] + b * kBlockSums<layout>, kStretch * kBlockSums<layout>);
    }
  };
  const auto add = [&](int64_t s, int tile, int second, float* rows) {
    const int64_t at = (tile * blocks + kStretch * s) * kTokens;
    add_stretch<layout>(sums[second], count(s), scales, {nullptr, x.scale + at, x.start + 3 * at, x.sum + at},
                        rows);
  };
  by_stretches(product, (blocks + kStretch - 1) / kStretch, unpack, multiply, add);
}

template <Format... formats>
void set_blocks(Kernels& kernels) {
  ((kernels.product[static_cast<int>(formats)][kTile16] = tile_product<panel_layout(formats)>), ...);
}

}  // namespace

void add_amx_blocks(Kernels& kernels) {
  using enum Format;
  set_blocks<Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4, NVFP4, Q4_Z>(kernels);
  kernels.product[static_cast<int>(Q1_0)][kTile16] = one_by_one<panel_layout(Q1_0)>;  // d_last()
  kernels.by_16[static_cast<int>(Scheme::Int8x32)] = true;
}

}  // namespace vllm::cpu

// matmul with AMX: all products of bf16 weights, so that they do not depend on the number of tokens.
// Of the quantised weights see matmul_groups_amx.cc and matmul_blocks_amx.cc.
#include "device/cpu/matmul_vectors_avx512.h"

namespace vllm::cpu {
namespace {

struct Simd : Avx512Vectors {
  static constexpr bool kSignedBytes = false;
};

}  // namespace
}  // namespace vllm::cpu

#include "device/cpu/amx_tiles.h"
#include "device/cpu/matmul_blocks-inl.h"

namespace vllm::cpu {
namespace {

constexpr int kPrefetchBytes = 4 * kTileBytes;

/// Sets the sums c, [T][32], of `kTiles` neighbouring tiles.
template <int T, int kTiles>
inline void bf16_tiles(const uint8_t* weights, int64_t cols, const uint8_t* x, float* c) {
  const int64_t chunks = (cols + kTileInputs - 1) / kTileInputs;
  const int64_t next = chunks * T * 64;  // bytes from tile to tile
  alignas(64) uint8_t last[2 * kTileBytes];
  zero_tile<0>();
  zero_tile<1>();
  if (kTiles == 2) zero_tile<2>(), zero_tile<3>();
  for (int64_t k = 0; k < chunks; k++, weights += sizeof last, x += 64 * T) {
    if (const int64_t inputs = cols - k * kTileInputs; inputs < kTileInputs) {
      const size_t bytes = static_cast<size_t>((inputs + 1) / 2 * 128);
      std::memcpy(last, weights, bytes);
      std::memset(last + bytes, 0, sizeof last - bytes);
      weights = last;
    }
    if (kTiles == 1) {
#pragma GCC unroll 32
      for (int i = 0; i < 32; i++) __builtin_prefetch(weights + kPrefetchBytes + 64 * i);
    }
    load_tile<4>(x, 64);
    load_tile<6>(weights, 128);
    load_tile<7>(weights + 64, 128);
    bf16_dots<0, 4, 6>();
    bf16_dots<1, 4, 7>();
    if (kTiles == 2) {
      load_tile<5>(x + next, 64);
      bf16_dots<2, 5, 6>();
      bf16_dots<3, 5, 7>();
    }
  }
  store_tile<0>(c, 128);
  store_tile<1>(c + 16, 128);
  if (kTiles == 2) {
    store_tile<2>(c + T * 32, 128);
    store_tile<3>(c + T * 32 + 16, 128);
  }
}

template <int T>
__attribute__((noinline)) void bf16_product(const TileProduct& product) {
  configure(T, kTileInputs);
  const int64_t bytes = (product.cols + kTileInputs - 1) / kTileInputs * T * 64;  // of a tile
  const uint8_t* x = static_cast<const uint8_t*>(product.tile.x);
  TileProduct part = product;
  const auto next = [&]<int kTiles>() {
    alignas(64) float c[kTiles * T * 32];
    prefetch_outputs<kTiles * T, 32>(part);
    bf16_tiles<T, kTiles>(product.panel, product.cols, x, c);
    finish(part, c, kTiles * T, 32);
    x += kTiles * bytes;
    part.out += kTiles * T * product.ldo;
  };
  int left = product.tiles;
  if constexpr (T == 16) {
    for (; left >= 2; left -= 2) next.template operator()<2>();
  }
  for (; left > 0; left--) next.template operator()<1>();
}

/// [K/32][T][32] bf16, rounded to nearest even; K is padded by zeros.
void prepare_bf16(const float* x, int64_t ldx, int tokens, int64_t cols, const ActivationTile& tile) {
  const auto mask = [&](int64_t k) {
    return static_cast<__mmask16>(cols - k >= 16 ? 0xffff : cols > k ? (1 << (cols - k)) - 1 : 0);
  };
  for (int t = 0; t < tokens; t++) {
    const float* const row = x + t * ldx;
    uint8_t* out = static_cast<uint8_t*>(tile.x) + 64 * t;
    for (int64_t k = 0; k < cols; k += kTileInputs, out += 64 * tokens) {
      const __m512 low = _mm512_maskz_loadu_ps(mask(k), row + k);
      const __m512 high = _mm512_maskz_loadu_ps(mask(k + 16), row + k + 16);
      _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    }
  }
}

}  // namespace

constinit thread_local int configured_tiles = 0;

void add_amx(Kernels& kernels) {
  auto& product = kernels.product[static_cast<int>(Format::BF16)];
  product[kTile1] = product[kTile1Ahead] = bf16_product<1>;
  product[kTile2] = product[kTile2Ahead] = bf16_product<2>;
  product[kTile4] = product[kTile4Ahead] = bf16_product<4>;
  product[kTile8] = product[kTile8Ahead] = bf16_product<8>;
  product[kTile16] = bf16_product<16>;
  kernels.prepare[static_cast<int>(Scheme::BF16)] = prepare_bf16;
  kernels.by_16[static_cast<int>(Scheme::BF16)] = true;
  kernels.release = release;
}

}  // namespace vllm::cpu

// What the instruction sets implement for matmul: activations into tiles, a panel of weights times a tile.
#pragma once
#include <cstdint>

#include "base/formats.h"
#include "device/cpu/pack_layout.h"

namespace vllm::cpu {

/// Forms that activations take. A tile is T neighbouring tokens over all K inputs.
///   F32       [K (+ 1 zero when odd)][T] f32
///   BF16      [K/2][T][2] bf16, an odd K padded by a zero; with AMX [K/32][T][32], padded likewise
///   Int8x32   [K/32][T][32] int8 q, or, with kTokenPairs of matmul_tiles-inl.h and T > 1, of two tokens in
///             turn, 8 inputs each: [K/32][T/2][4][2][8]. For each block of 32 of a token a scale: f32
///             max|x| / 127, the starts of its sums: int32 {-sum of q, -sum of the first 16 q, -sum of the
///             last 16}, and f32 scale * sum of q
///   Int8x256  the same with one scale for 8 blocks, and the plain sum of q
///   Int8Tiles  Int8x256 as AMX reads it: q as [K/64][T][64], and instead of the plain sums the sums of q of
///             blocks 2k and 2k + 1 side by side, int16 [K/64][T][2]
/// A block of 32 (256) with an infinite or NaN input has a NaN scale and zero q.
enum class Scheme : uint8_t { F32, BF16, Int8x32, Int8x256, Int8Tiles };
static constexpr int kSchemes = 5;

struct ActivationTile {
  void* x;
  float* scale;    // [blocks][T]
  int32_t* start;  // [blocks][T][3]
  float* sum;      // [blocks][T]
};

/// One panel times neighbouring tiles: out[t * ldo + r] (+)= scale[r] * sum over k + bias[r], for r < rows.
struct TileProduct {
  const uint8_t* panel;
  int64_t cols;
  ActivationTile tile;  // the first
  int tiles;            // more than one only with Kernels::by_16
  float* out;
  int64_t ldo;
  const float* bias;   // or null
  const float* scale;  // or null: 1
  bool accumulate;
  int rows;  // of the panel that exist
  const Codebook* codebook;
};

/// Tile shapes. Those called Ahead prefetch the weights to come, for when a panel meets few tiles.
static constexpr int kTileTokens[] = {1, 2, 4, 8, 12, 16, 1, 2, 4, 8};
enum TileShape : uint8_t {
  kTile1,
  kTile2,
  kTile4,
  kTile8,
  kTile12,
  kTile16,
  kTile1Ahead,
  kTile2Ahead,
  kTile4Ahead,
  kTile8Ahead,
  kTileShapes
};

struct Kernels {
  /// Fills a tile from `tokens` rows of x, ldx elements apart.
  void (*prepare[kSchemes])(const float* x, int64_t ldx, int tokens, int64_t cols,
                            const ActivationTile& tile);
  /// Float formats have all shapes but 16, the others all but 12.
  void (*product[kFormatCount][kTileShapes])(const TileProduct& product);
  Scheme scheme[kFormatCount];
  bool by_16[kSchemes];  // kTile16, for neighbouring tiles at once, is the shape for many tokens
  void (*release)();     // for a thread after its products; may be null
};

extern const Kernels kBaselineKernels;
#if defined(__x86_64__)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
// What these sets have better than the ones they build on.
void add_avxvnni(Kernels& kernels);     // AVX2
void add_avx512vnni(Kernels& kernels);  // AVX-512
void add_avx512bf16(Kernels& kernels);  // its VNNI
void add_amx(Kernels& kernels);         // its BF16
// What has just its bf16 products.
void add_amx_groups(Kernels& kernels);
void add_amx_blocks(Kernels& kernels);
#elif defined(__aarch64__)
extern const Kernels kNeonDotprodKernels;
extern const Kernels kNeonBf16Kernels;
#endif

}  // namespace vllm::cpu

// The tiles of AMX. Each thread configures them before its products and releases them after: a release lets
// the system switch threads without saving them.
#pragma once
#include <stdint.h>

namespace vllm::cpu {

/// Rows and short_inputs of this thread's tiles; 0: it has none. In matmul_amx.cc.
extern constinit thread_local int configured_tiles;

namespace {

constexpr int kTilePairs = 16;  // rows of a tile of weights, keys or values
constexpr int kTileInputs = 2 * kTilePairs;
constexpr int kTileBytes = 16 * 64;

/// Tiles 0 to 3 are sums, [rows][16] f32; 4 are inputs, [rows][32] bf16, and 6 what they meet, [16][16][2]
/// bf16. 5 and 7 are the same for `short_inputs` inputs, an even number up to 32.
inline void configure(int rows, int short_inputs) {
  const int wanted = rows << 8 | short_inputs;
  if (configured_tiles == wanted) return;
  configured_tiles = wanted;
  struct {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
  } config;
  for (int i = 0; i < 8; i++) {
    config.row_bytes[i] = 64;
    config.rows[i] = static_cast<uint8_t>(i < 6 ? rows : kTilePairs);
  }
  config.row_bytes[5] = static_cast<uint16_t>(2 * short_inputs);
  config.rows[7] = static_cast<uint8_t>(short_inputs / 2);
  asm volatile("ldtilecfg %0" : : "m"(config));
}

inline void release() {
  if (configured_tiles != 0) asm volatile("tilerelease");
  configured_tiles = 0;
}

// The intrinsics of gcc 12 do not say that they read memory. Strides are in bytes.
template <int tile>
inline void load_tile(const void* p, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1),%%tmm%c2" : : "r"(p), "r"(stride), "i"(tile) : "memory");
}
template <int tile>
inline void store_tile(void* p, int64_t stride) {
  asm volatile("tilestored %%tmm%c2,(%0,%1,1)" : : "r"(p), "r"(stride), "i"(tile) : "memory");
}
template <int tile>
inline void zero_tile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(tile));
}
template <int sums, int inputs, int weights>
inline void bf16_dots() {
  asm volatile("tdpbf16ps %%tmm%c2,%%tmm%c1,%%tmm%c0" : : "i"(sums), "i"(inputs), "i"(weights));
}

/// Adds [rows][64] int8 inputs times weights [16][16][4], of bytes with or without a sign, to int32 sums.
template <int sums, int inputs, int weights, bool with_sign>
inline void int8_dots() {
  if (with_sign) {
    asm volatile("tdpbssd %%tmm%c2,%%tmm%c1,%%tmm%c0" : : "i"(sums), "i"(inputs), "i"(weights));
  } else {
    asm volatile("tdpbsud %%tmm%c2,%%tmm%c1,%%tmm%c0" : : "i"(sums), "i"(inputs), "i"(weights));
  }
}

}  // namespace
}  // namespace vllm::cpu

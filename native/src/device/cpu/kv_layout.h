// Where a key or value lies in the CPU device's cache. Plain C types only: see simd.h.
#pragma once
#include <stdint.h>

namespace vllm::cpu {

/// One block of one kv head: keys, then values, of `dim` = head_dim rounded up to 16 (the rest stays zero).
///   bf16  keys   [dim/2][block_size][2]          dims (2k, 2k+1) of a token are neighbours
///         values [dim/64][block_size/2][64][2]   tokens (2j, 2j+1) of a dim are neighbours; the last chunk
///         of dims
///                                                may be 16, 32 or 48 wide
///   f32   the same with [2] before the last axis, so both members of a pair are dense rows
/// Scores then come out with tokens, and outputs with dims, in the lanes of a vector, and both products read
/// the cache as a sequential stream. The blocks of the heads of one block id follow each other.
struct KvLayout {
  int64_t block_size;
  int64_t dim;
  bool bf16;

  int64_t head_elements() const { return 2 * block_size * dim; }  // keys and values
  int64_t values_at() const { return block_size * dim; }          // values from the start of the keys
  int64_t key(int64_t token, int64_t d) const {
    return bf16 ? (d / 2 * block_size + token) * 2 + d % 2 : d * block_size + token;
  }
  int64_t value(int64_t token, int64_t d) const {
    const int64_t chunk = d / 64 * 64, width = dim - chunk < 64 ? dim - chunk : 64;
    const int64_t inside = bf16 ? (token / 2 * width + d - chunk) * 2 + token % 2 : token * width + d - chunk;
    return values_at() + chunk * block_size + inside;
  }
};

}  // namespace vllm::cpu

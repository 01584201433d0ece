// Where a key or value lies in the CPU device's cache. Plain C types only: see simd.h.
#pragma once
#include <stdint.h>

namespace vllm::cpu {

enum class KvElement : uint8_t { BF16, F32, Q8 };

constexpr int kQ8Dims = 32;                // dims of a token that share a scale
constexpr float kQ8SmallestStep = 1e-30f;  // smaller scales are zero

/// The keys or the values of one head in one block, of `dim` = head_dim rounded up to 16, q8 to 32
/// (the rest stays zero).
///   bf16  keys   [dim/2][block_size][2]          dims (2k, 2k+1) of a token are neighbours
///         values [dim/64][block_size/2][64][2]   tokens (2j, 2j+1) of a dim are neighbours; the last chunk
///                                                of dims may be 16, 32 or 48 wide
///   f32   the same with [2] before the last axis, so both members of a pair are dense rows
///   q8    [dim/32] times the scales of the tokens, [block_size] bf16, and the bytes: of keys
///   [32][block_size],
///         of values [block_size][32]
/// Scores then come out with tokens, and outputs with dims, in the lanes of a vector, and both products read
/// the cache as a sequential stream.
struct KvLayout {
  int64_t block_size;
  int64_t dim;
  KvElement element;

  int64_t bytes() const {
    if (element == KvElement::Q8) return q8_chunk(dim);
    return block_size * dim * (element == KvElement::BF16 ? 2 : 4);
  }
  /// Bytes from the start of a head's keys or values to the chunk of dim d, and in it to the bytes.
  int64_t q8_chunk(int64_t d) const { return d / kQ8Dims * block_size * (kQ8Dims + 2); }
  int64_t q8_bytes() const { return 2 * block_size; }
  /// Elements from the start of the head's keys; not of q8.
  int64_t key(int64_t token, int64_t d) const {
    return element == KvElement::BF16 ? (d / 2 * block_size + token) * 2 + d % 2 : d * block_size + token;
  }
  /// Elements from the start of the head's values; not of q8.
  int64_t value(int64_t token, int64_t d) const {
    const int64_t chunk = d / 64 * 64, width = dim - chunk < 64 ? dim - chunk : 64;
    const int64_t inside = element == KvElement::BF16 ? (token / 2 * width + d - chunk) * 2 + token % 2
                                                      : token * width + d - chunk;
    return chunk * block_size + inside;
  }
};

}  // namespace vllm::cpu

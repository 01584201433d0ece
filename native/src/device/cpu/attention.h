// Attention kernels over the paged KV cache, one table an instruction set and cache format. Plain C types
// only: see simd.h.
//
// A row is one query token and head. What is computed of a row, and in which order, depends only on the
// absolute positions of its keys, so the result has the same bits whatever rows share its tile, batch or
// step:
//   - a score is one chain over the dims, an output element one chain over the tokens of a group;
//   - the running maximum is raised, and sums are rescaled, once a group of kGroup keys;
//   - each span of kSpan keys starts afresh, and the spans of a row are merged in order;
//   - keys a row does not see have weight zero and add exactly zero.
#pragma once
#include <stdint.h>

#include "device/cpu/kv_layout.h"

namespace vllm::cpu {

constexpr int kMaxTileRows = 16;
constexpr int kGroup = 256;  // keys of one softmax pass
constexpr int kSpan = 512;   // keys that one work item can take alone

/// Up to kMaxTileRows rows that read the same kv head of the same sequence, positions not falling.
struct AttentionTile {
  const char* keys;  // of the kv head in block 0
  const char* values;
  const int32_t* blocks;  // block ids of the sequence
  int64_t block_stride;   // bytes from a block id to the next
  int block_size;
  int head_dim;
  int dim;  // head_dim rounded up to 16
  int rows;
  int window;  // 0: all earlier keys
  float scale;
  float softcap;  // 0: off
  int position[kMaxTileRows];
  const float* query[kMaxTileRows];
  float* out[kMaxTileRows];
};

/// Softmax state of a tile over some keys: out = o / l.
struct AttentionState {
  float* m;  // [rows] highest score, -infinity when no key was visible
  float* l;  // [rows] sum of the weights exp(score - m)
  float* o;  // [rows][dim] sum of weight * value
};

struct AttentionKernels {
  int tile_rows[8];  // sizes of a tile that the kernel has, falling, the last one is 1
  /// Bytes of scratch for a tile, a multiple of 64; scratch is aligned to 64.
  int64_t (*scratch_bytes)(int rows, int dim);
  /// Writes a token of a kv head to a slot of its block, whose keys and values of the head are given.
  void (*store)(const KvLayout& layout, int head_dim, int64_t slot, const float* k, const float* v,
                void* keys, void* values);
  /// Lays the scaled queries of a tile out in scratch; before span().
  void (*pack_queries)(const AttentionTile& tile, void* scratch);
  /// States of some tiles of one sequence over keys first .. first + kSpan - 1, `first` a multiple of kSpan.
  /// With `stream` they take turns over each block, so that a block of many heads is read in one run. Scratch
  /// of a tile is `stride` bytes after that of the one before.
  void (*span)(const AttentionTile* tiles, int count, bool stream, int first, char* scratch, int64_t stride,
               const AttentionState* states);
  /// total := total merged with the state of the following span.
  void (*merge)(int rows, int dim, const AttentionState& total, const AttentionState& next);
  /// Writes the rows' results.
  void (*finish)(const AttentionTile& tile, const AttentionState& total);
};

const AttentionKernels& attention_baseline(KvElement element);
const AttentionKernels& attention_avx2(KvElement element);
const AttentionKernels& attention_avx512(KvElement element);
const AttentionKernels& attention_avx512bf16();  // of a bf16 cache
const AttentionKernels& attention_amx();         // of a bf16 cache
const AttentionKernels& attention_neonbf16();    // of a bf16 cache

}  // namespace vllm::cpu

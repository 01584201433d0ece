// Cuts the attention of a step into tiles and hands them to the threads.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "device/cpu/attention.h"
#include "device/cpu/kv_cache.h"

namespace vllm::cpu {

class AttentionDriver {
 public:
  explicit AttentionDriver(ThreadPool& pool) : pool_(pool), threads_(pool.threads()) {}

  /// Attention of all rows of the batch; q and out rows are ldq and ldo elements apart. Block ids have been
  /// checked.
  void run(const AttentionKernels& kernels, const StepBatch& batch, const CpuKvCache::Layer& layer,
           const AttentionSpec& spec, const float* q, int64_t ldq, float* out, int64_t ldo);

 private:
  /// Rows first .. first + rows - 1 of a sequence, counted token by token and head by head of one group.
  struct TileRef {
    int sequence, head, first, rows;
    int span_begin, span_end;  // spans of kSpan keys that its rows see
    int64_t partial;           // of its first state in partials_, when spans are shared out
  };
  struct Item {
    int tile;
    int span;  // -1: all
  };
  /// Memory that only grows, aligned to 64 bytes.
  struct Memory {
    std::unique_ptr<HostBuffer> buffer;
    float* reserve(int64_t floats);
  };

  void cut(const AttentionKernels& kernels, const StepBatch& batch, const AttentionSpec& spec, int64_t dim);
  void add_tiles(const AttentionKernels& kernels, const StepBatch& batch, const AttentionSpec& spec,
                 int sequence);

  ThreadPool& pool_;
  std::vector<Memory> threads_;
  Memory partials_;
  std::vector<int> order_;  // sequences, most work first
  std::vector<TileRef> tiles_;
  std::vector<Item> items_;
  std::unique_ptr<std::atomic<int>[]> spans_left_;  // of each tile
  size_t spans_left_size_ = 0;
  bool shared_ = false;  // spans of a tile are items of their own
};

}  // namespace vllm::cpu

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
    int64_t partial;           // of its first state in partials_, when its spans are items of their own
  };
  /// Some spans of neighbouring tiles of one sequence: all that the tiles have, or one.
  struct Item {
    int tile_begin, tile_end;
    int span_begin, span_end;
    bool stream;
    int64_t scratch = 0;  // bytes for each tile
  };
  /// Memory that only grows, aligned to 64 bytes.
  struct Memory {
    std::unique_ptr<HostBuffer> buffer;
    float* reserve(int64_t floats);
  };
  struct Thread {
    Memory states, scratch;
    std::vector<AttentionTile> tiles;
    std::vector<AttentionState> total, more;
  };
  struct Step;  // the arguments of run()

  void cut(const Step& step);
  void add_tiles(const Step& step, int sequence);
  void add_items(int tile_begin, int tile_end, bool stream, bool by_span);
  void reserve_threads(const Step& step);
  AttentionTile tile_of(const Step& step, const TileRef& ref) const;
  void run_item(const Step& step, const Item& item, Thread& thread);

  ThreadPool& pool_;
  std::vector<Thread> threads_;
  Memory partials_;
  std::vector<int> order_;  // sequences, most work first
  std::vector<TileRef> tiles_;
  std::vector<Item> items_;
  std::unique_ptr<std::atomic<int>[]> spans_left_;  // of each tile
  size_t spans_left_size_ = 0;
};

}  // namespace vllm::cpu

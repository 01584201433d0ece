// The CPU device's paged keys and values.
#pragma once
#include <memory>
#include <vector>

#include "device/cpu/kv_layout.h"
#include "device/cpu/pool.h"
#include "device/host_memory.h"

namespace vllm::cpu {

class CpuKvCache final : public KvCache {
 public:
  struct Layer {
    std::unique_ptr<HostBuffer> memory;
    KvLayout layout;
    int kv_heads;
    int head_dim;
    int64_t block_stride;  // elements of one block id: kv_heads * layout.head_elements()
  };

  explicit CpuKvCache(const KvCacheSpec& spec);
  const Layer& layer(int index) const { return layers_[index]; }
  /// Stores the rows of the batch; k and v rows are ldk and ldv elements apart. Block ids have been checked.
  void write(ThreadPool& pool, const StepBatch& batch, int layer, const float* k, int64_t ldk, const float* v,
             int64_t ldv);

 private:
  std::vector<Layer> layers_;
};

}  // namespace vllm::cpu

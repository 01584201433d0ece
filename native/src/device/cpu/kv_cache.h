// The CPU device's paged keys and values.
#pragma once
#include <memory>
#include <vector>

#include "device/cpu/attention.h"
#include "device/cpu/pool.h"
#include "device/host_memory.h"

namespace vllm::cpu {

KvElement element_of(KvFormat format);

class CpuKvCache final : public KvCache {
 public:
  struct Layer {
    std::unique_ptr<HostBuffer> memory;
    KvLayout layout;
    int kv_heads;
    int head_dim;

    /// Keys of all blocks and heads come first, then all values: neighbouring blocks are one run of memory,
    /// as reading keys, then values needs it.
    int64_t block_stride() const { return kv_heads * layout.bytes(); }
    std::byte* keys(int64_t block, int head) const {
      return memory->host() + block * block_stride() + head * layout.bytes();
    }
    std::byte* values(int64_t block, int head) const { return keys(block, head) + memory->bytes() / 2; }
  };

  explicit CpuKvCache(const KvCacheSpec& spec);
  const Layer& layer(int index) const { return layers_[index]; }
  /// See Device::copy_kv(). Block ids have been checked.
  void copy(int64_t from, int64_t to, int tokens);
  /// Stores the rows of the batch; k and v rows are ldk and ldv elements apart. Block ids have been checked.
  void write(ThreadPool& pool, const AttentionKernels& kernels, const StepBatch& batch, int layer,
             const float* k, int64_t ldk, const float* v, int64_t ldv);

 private:
  std::vector<Layer> layers_;
};

}  // namespace vllm::cpu

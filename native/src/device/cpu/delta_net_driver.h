// The CPU device's recurrent state, and the threads' shares of a DeltaNet layer.
#pragma once
#include <memory>
#include <vector>

#include "device/cpu/delta_net.h"
#include "device/cpu/pool.h"
#include "device/host_memory.h"

namespace vllm::cpu {

/// A slot holds layer after layer: the last inputs of the convolution [conv_kernel - 1, conv_cols], then for
/// each value head its S^T in stripes of kStateCols columns: [value_heads, stripes, key_dim, kStateCols].
class CpuStateCache final : public StateCache {
 public:
  explicit CpuStateCache(const StateCacheSpec& spec);

  static int64_t stripes(const DeltaNetSpec& spec) { return (spec.value_dim + kStateCols - 1) / kStateCols; }
  float* slot(int index) const { return reinterpret_cast<float*>(memory_->host()) + index * slot_floats_; }
  size_t slot_bytes() const { return static_cast<size_t>(slot_floats_) * sizeof(float); }
  float* history(int layer, int index) const { return slot(index) + starts_[layer].history; }
  float* matrices(int layer, int index) const { return slot(index) + starts_[layer].matrices; }

 private:
  struct Starts {
    int64_t history, matrices;  // floats from the start of a slot
  };
  std::unique_ptr<HostBuffer> memory_;
  std::vector<Starts> starts_;
  int64_t slot_floats_ = 0;
};

/// The arguments of Device::causal_conv and Device::delta_rule, checked.
void causal_conv(ThreadPool& pool, const DeltaNetKernels& kernels, const StepBatch& batch,
                 CpuStateCache& cache, int layer, const Tensor& weight, const Tensor& x);
void delta_rule(ThreadPool& pool, const DeltaNetKernels& kernels, const StepBatch& batch,
                CpuStateCache& cache, int layer, const Tensor& qkv, const Tensor& a, const Tensor& b,
                const Tensor& decay, const Tensor& dt_bias, const Tensor& out);

}  // namespace vllm::cpu

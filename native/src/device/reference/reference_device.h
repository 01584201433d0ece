// The plain scalar device: every operation in its most obvious form, one file a group of operations. It is
// the oracle of all other devices, so nothing here is optimised; sums run in double.
#pragma once
#include "device/device.h"

namespace vllm {

class ReferenceDevice : public Device {
 public:
  std::string description() const override;
  size_t available_memory() const override;
  std::unique_ptr<Buffer> allocate(size_t bytes) override;
  void write(const Tensor& dst, const float* src) override;
  void read(const Tensor& src, float* dst) override;
  void read_largest(const Tensor& src, int count, RankedValue* dst) override;
  std::unique_ptr<DeviceWeight> pack(const WeightView& weight, bool lookup_only) override;
  std::unique_ptr<KvCache> make_kv_cache(const KvCacheSpec& spec) override;
  std::unique_ptr<StateCache> make_state_cache(const StateCacheSpec& spec) override;
  void copy_state(StateCache& cache, int from, int to) override;
  void begin_step(const StepBatch& batch) override;
  void end_step() override;

  void embed(const DeviceWeight& table, float scale, const Tensor& out) override;
  void rms_norm(const Tensor& x, const Tensor& weight, float eps, bool accumulate,
                const Tensor& out) override;
  void matmul(std::span<const DeviceWeight* const> weights, const Tensor& x, const Tensor* bias,
              bool accumulate, const Tensor& out) override;
  void norm_rope(const Tensor& x, int heads, const Tensor* norm, float eps, const RopeSpec& rope) override;
  void copy_kv(KvCache& cache, int from, int to, int tokens) override;
  void write_kv(KvCache& cache, int layer, const Tensor& k, const Tensor& v) override;
  void attention(const KvCache& cache, int layer, const Tensor& q, const AttentionSpec& spec,
                 const Tensor& out) override;
  void causal_conv(StateCache& cache, int layer, const Tensor& weight, const Tensor& x) override;
  void delta_rule(StateCache& cache, int layer, const Tensor& qkv, const Tensor& a, const Tensor& b,
                  const Tensor& decay, const Tensor& dt_bias, const Tensor& out) override;
  void gated(Activation act, const Tensor& gate, const Tensor& up, const Tensor& out) override;
  void experts(const RouterSpec& router, std::span<const ExpertWeights> experts, Activation act,
               const Tensor& x, const Tensor& logits, bool accumulate, const Tensor& out) override;
  void add_gated_rows(const Tensor& x, const Tensor& gate, const Tensor& out) override;
  void gather_logit_rows(const Tensor& x, const Tensor& out) override;
  void softcap(float cap, const Tensor& x) override;

 private:
  const StepBatch* batch_ = nullptr;
};

}  // namespace vllm

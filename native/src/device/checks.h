// What every device demands of the arguments of an operation. A fault here is one of ours (a wrong
// description of a model, a wrong batch), so all throw Error(Runtime) naming the operation, what was found
// and what is needed.
#pragma once
#include <span>

#include "device/device.h"

namespace vllm::checks {

void batch(const StepBatch& batch);
void kv_cache(const KvCacheSpec& spec);        // Error(ModelLoad)
void state_cache(const StateCacheSpec& spec);  // Error(ModelLoad)
void weight(const WeightView& view);           // Error(ModelLoad)
/// `codes`: rows [first, first + count) of a view of format F8_E4M3. Error(ModelLoad) if one of them is NaN.
void fp8_codes(const WeightView& view, int64_t first, int64_t count, const uint8_t* codes);

void tensor(const char* operation, const char* name, const Tensor& tensor, int64_t rows, int64_t cols);
void read_largest(const Tensor& src, int count);
void embed(const StepBatch& batch, const DeviceWeight& table, const Tensor& out);
void rms_norm(const Tensor& x, const Tensor& weight, const Tensor& out);
void matmul(std::span<const DeviceWeight* const> weights, const Tensor& x, const Tensor* bias,
            const Tensor& out);
void norm_rope(const StepBatch& batch, const Tensor& x, int heads, const Tensor* norm, const RopeSpec& rope);
void write_kv(const StepBatch& batch, const KvCache& cache, int layer, const Tensor& k, const Tensor& v);
void copy_kv(const KvCache& cache, int from, int to, int tokens);
void attention(const StepBatch& batch, const KvCache& cache, int layer, const Tensor& q,
               const AttentionSpec& spec, const Tensor& out);
void copy_state(const StateCache& cache, int from, int to);
void causal_conv(const StepBatch& batch, const StateCache& cache, int layer, const Tensor& weight,
                 const Tensor& x);
void delta_rule(const StepBatch& batch, const StateCache& cache, int layer, const Tensor& qkv,
                const Tensor& a, const Tensor& b, const Tensor& decay, const Tensor& dt_bias,
                const Tensor& out);
void gated(const Tensor& gate, const Tensor& up, const Tensor& out);
void experts(const RouterSpec& router, std::span<const ExpertWeights> experts, const Tensor& x,
             const Tensor& logits, const Tensor& out);
void add_gated_rows(const Tensor& x, const Tensor& gate, const Tensor& out);
void gather_logit_rows(const StepBatch& batch, const Tensor& x, const Tensor& out);

}  // namespace vllm::checks

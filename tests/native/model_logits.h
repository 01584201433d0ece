// One sequence through a model, step by step.
#pragma once
#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "device/device.h"
#include "model/model.h"

namespace vllm::test {

/// Null for a model without recurrent layers.
inline std::unique_ptr<StateCache> make_states(const Model& model, Device& device, int slots) {
  const StateCacheSpec spec{model.state_layers(), slots};
  return spec.layers.empty() ? nullptr : device.make_state_cache(spec);
}

/// Adds the logits of a batch that has run, [logit rows, vocab].
inline void append_logits(Model& model, const StepBatch& batch, std::vector<float>& out) {
  for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
    const auto row = model.logits(static_cast<int>(i));
    out.insert(out.end(), row.begin(), row.end());
  }
}

/// Logits, [rows, vocab], of the positions for which `wanted`, computed `step` tokens at a time, through a
/// cache whose blocks are in reverse.
template <class Wanted>
std::vector<float> logits_in_steps(Model& model, Device& device, const std::vector<int32_t>& tokens, int step,
                                   Wanted wanted, KvFormat format = KvFormat::BF16) {
  const int n = static_cast<int>(tokens.size());
  KvCacheSpec spec;
  spec.layers = model.kv_layers();
  spec.block_size = 16;
  spec.num_blocks = (n + 15) / 16;
  spec.format = format;
  const auto cache = device.make_kv_cache(spec);
  const auto states = make_states(model, device, 1);
  std::vector<float> out;
  for (int begin = 0; begin < n; begin += step) {
    const int end = std::min(n, begin + step);
    StepBatch batch;
    batch.token_ids.assign(tokens.begin() + begin, tokens.begin() + end);
    batch.positions.resize(batch.token_ids.size());
    std::iota(batch.positions.begin(), batch.positions.end(), begin);
    batch.seq_start = {0, end - begin};
    batch.max_blocks = spec.num_blocks;
    for (int b = spec.num_blocks; b-- > 0;) batch.block_table.push_back(b);
    batch.state_slots = {0};
    for (int p = begin; p < end; ++p) {
      if (wanted(p)) batch.logit_rows.push_back(p - begin);
    }
    model.forward(batch, *cache, states.get());
    append_logits(model, batch, out);
  }
  return out;
}

/// Those of all positions, through a cache of float32; `step` 0: at once.
inline std::vector<float> logits_of(Model& model, Device& device, const std::vector<int32_t>& tokens,
                                    int step = 0) {
  const int all = static_cast<int>(tokens.size());
  return logits_in_steps(
      model, device, tokens, step > 0 ? step : all, [](int) { return true; }, KvFormat::F32);
}

}  // namespace vllm::test

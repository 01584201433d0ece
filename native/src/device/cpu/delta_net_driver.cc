#include "device/cpu/delta_net_driver.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace vllm::cpu {
namespace {

constexpr int64_t kConvCols = 256;       // channels a thread convolves at a time
constexpr int64_t kInlineFlops = 65536;  // less work than this is not worth sharing

int64_t aligned(int64_t floats) { return (floats + 15) / 16 * 16; }

template <class Job>
void run_parts(ThreadPool& pool, int64_t work, int64_t parts, int64_t grain, Job job) {
  if (pool.threads() == 1 || work < kInlineFlops) return job(Range{0, parts});
  pool.run([&](int thread) { job(share(parts, thread, pool.threads(), grain)); });
}

/// Channels first .. first + n of one sequence: `history` and x start at the first of them.
void convolve(const DeltaNetKernels& kernels, int taps, int64_t history_stride, const Tensor& weight,
              int64_t first, int64_t n, int64_t rows, bool fresh, float* history, float* x, int64_t stride) {
  const int64_t kept = taps - 1;
  float next[(DeltaNetSpec::kMaxConvKernel - 1) * kConvCols];
  const float* inputs[DeltaNetSpec::kMaxConvKernel];
  const size_t bytes = static_cast<size_t>(n) * sizeof(float);
  if (fresh)
    for (int64_t j = 0; j < kept; ++j) std::memset(history + j * history_stride, 0, bytes);
  const auto input = [&](int64_t t) {
    return t < 0 ? history + (kept + t) * history_stride : x + t * stride;
  };
  for (int64_t j = 0; j < kept; ++j) std::memcpy(next + j * kConvCols, input(rows - kept + j), bytes);
  // From the last row to the first: a row is overwritten when no other needs it.
  for (int64_t t = rows - 1; t >= 0; --t) {
    for (int64_t j = 0; j < taps; ++j) inputs[j] = input(t - kept + j);
    kernels.conv_silu(inputs, host_data(weight) + first, weight.stride, taps, n, x + t * stride);
  }
  for (int64_t j = 0; j < kept; ++j) std::memcpy(history + j * history_stride, next + j * kConvCols, bytes);
}

/// a becomes exp(decay * softplus(a + dt_bias)), b its sigmoid.
void compute_gates(int heads, const float* decay, const float* dt_bias, float* a, float* b) {
  for (int h = 0; h < heads; ++h) {
    const float step = a[h] + dt_bias[h];
    const float softplus = step > 20.0f ? step : std::log1p(std::exp(step));
    a[h] = std::exp(decay[h] * softplus);
    b[h] = 1.0f / (1.0f + std::exp(-b[h]));
  }
}

}  // namespace

CpuStateCache::CpuStateCache(const StateCacheSpec& wanted) {
  spec = wanted;
  for (const DeltaNetSpec& l : spec.layers) {
    Starts starts;
    starts.history = slot_floats_;
    starts.matrices = starts.history + aligned((l.conv_kernel - 1) * l.conv_cols());
    slot_floats_ = starts.matrices + l.value_heads * stripes(l) * aligned(l.key_dim * kStateCols);
    starts_.push_back(starts);
  }
  memory_ = std::make_unique<HostBuffer>(slot_bytes() * static_cast<size_t>(spec.slots));
  bytes = memory_->bytes();
}

void causal_conv(ThreadPool& pool, const DeltaNetKernels& kernels, const StepBatch& batch,
                 CpuStateCache& cache, int layer, const Tensor& weight, const Tensor& x) {
  const int taps = cache.spec.layers[layer].conv_kernel;
  run_parts(pool, x.rows * x.cols * 2 * taps, x.cols, 16, [&](Range part) {
    for (int64_t first = part.begin; first < part.end; first += kConvCols) {
      for (int s = 0; s < batch.sequences(); ++s) {
        const int64_t row = batch.seq_start[s];
        convolve(kernels, taps, x.cols, weight, first, std::min(kConvCols, part.end - first),
                 batch.seq_start[s + 1] - row, batch.positions[row] == 0,
                 cache.history(layer, batch.state_slots[s]) + first, host_data(x) + row * x.stride + first,
                 x.stride);
      }
    }
  });
}

void delta_rule(ThreadPool& pool, const DeltaNetKernels& kernels, const StepBatch& batch,
                CpuStateCache& cache, int layer, const Tensor& qkv, const Tensor& a, const Tensor& b,
                const Tensor& decay, const Tensor& dt_bias, const Tensor& out) {
  const DeltaNetSpec& spec = cache.spec.layers[layer];
  const float query_scale = 1.0f / std::sqrt(static_cast<float>(spec.key_dim));
  const int64_t row_work = spec.value_cols() * spec.key_dim * 8;
  run_parts(pool, qkv.rows * (spec.conv_cols() + 64 * spec.value_heads), qkv.rows, 1, [&](Range part) {
    for (int64_t t = part.begin; t < part.end; ++t) {
      float* row = host_data(qkv) + t * qkv.stride;
      kernels.unit_length(row, spec.key_heads, spec.key_dim, query_scale);
      kernels.unit_length(row + spec.key_cols(), spec.key_heads, spec.key_dim, 1.0f);
      compute_gates(spec.value_heads, host_data(decay), host_data(dt_bias), host_data(a) + t * a.stride,
                    host_data(b) + t * b.stride);
    }
  });
  // Columns of S^T never meet: a thread takes its stripes through all tokens of all sequences.
  const int64_t stripes = CpuStateCache::stripes(spec), stripe_floats = aligned(spec.key_dim * kStateCols);
  run_parts(pool, qkv.rows * row_work, spec.value_heads * stripes, 1, [&](Range part) {
    for (int s = 0; s < batch.sequences(); ++s) {
      const int64_t first = batch.seq_start[s];
      float* matrices = cache.matrices(layer, batch.state_slots[s]);
      for (int64_t i = part.begin; i < part.end; ++i) {
        const auto head = static_cast<int>(i / stripes);
        const int64_t col = i % stripes * kStateCols,
                      value = static_cast<int64_t>(head) * spec.value_dim + col;
        const float* row = host_data(qkv) + first * qkv.stride;
        DeltaRuleRun run;
        run.q = row + static_cast<int64_t>(spec.key_head(head)) * spec.key_dim;
        run.k = run.q + spec.key_cols();
        run.v = row + 2 * spec.key_cols() + value;
        run.stride = qkv.stride;
        run.keep = host_data(a) + first * a.stride + head;
        run.beta = host_data(b) + first * b.stride + head;
        run.keep_stride = a.stride;
        run.beta_stride = b.stride;
        run.rows = batch.seq_start[s + 1] - first;
        run.key_dim = spec.key_dim;
        run.cols = std::min<int64_t>(kStateCols, spec.value_dim - col);
        run.state = matrices + i * stripe_floats;
        run.out = host_data(out) + first * out.stride + value;
        run.out_stride = out.stride;
        if (batch.positions[first] == 0)
          std::memset(run.state, 0, static_cast<size_t>(stripe_floats) * sizeof(float));
        kernels.delta_rule(run);
      }
    }
  });
}

}  // namespace vllm::cpu

// The bodies of DeltaNetKernels over the vectors of simd.h.
#pragma once
#include "device/cpu/delta_net.h"
#include "device/cpu/simd.h"

namespace vllm::cpu {
namespace {

inline F silu(F x) { return x / (1.0f + exp(-x)); }

void conv_silu(const float* const* inputs, const float* weights, int64_t stride, int taps, int64_t n,
               float* out) {
  int64_t c = 0;
  for (; c + kLanes <= n; c += kLanes) {
    F sum = {};
    for (int j = 0; j < taps; ++j) sum = fma(load(weights + j * stride + c), load(inputs[j] + c), sum);
    store(out + c, silu(sum));
  }
  if (c == n) return;
  F sum = {};
  for (int j = 0; j < taps; ++j)
    sum = fma(load_first(weights + j * stride + c, n - c), load_first(inputs[j] + c, n - c), sum);
  store_first(out + c, silu(sum), n - c);
}

void unit_length(float* x, int heads, int64_t dim, float scale) {
  for (int h = 0; h < heads; ++h, x += dim) {
    F squares = {};
    int64_t i = 0;
    for (; i + kLanes <= dim; i += kLanes) squares = fma(load(x + i), load(x + i), squares);
    const F rest = load_first(x + i, dim - i);
    squares = fma(rest, rest, squares);
    const float factor = scale / sqrtf(sum(squares) + 1e-6f);
    for (i = 0; i + kLanes <= dim; i += kLanes) store(x + i, load(x + i) * factor);
    store_first(x + i, load_first(x + i, dim - i) * factor, dim - i);
  }
}

constexpr int kVectors = kStateCols / kLanes;
constexpr int kChains =
    kVectors >= 8 ? 1 : 8 / kVectors;  // sums side by side hide the latency of the addition

/// sums[i] = sum over k of key[k] * state[k], kVectors at a time; the order is fixed by key_dim.
inline void read_state(const float* state, const float* key, int64_t key_dim, F* sums) {
  F part[kChains][kVectors] = {};
  int64_t k = 0;
  for (; k + kChains <= key_dim; k += kChains) {
#pragma GCC unroll 4
    for (int c = 0; c < kChains; ++c) {
      const F factor = splat(key[k + c]);
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i)
        part[c][i] = fma(factor, load(state + (k + c) * kStateCols + i * kLanes), part[c][i]);
    }
  }
  for (; k < key_dim; ++k)
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i)
      part[0][i] = fma(splat(key[k]), load(state + k * kStateCols + i * kLanes), part[0][i]);
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    F total = part[0][i];
#pragma GCC unroll 4
    for (int c = 1; c < kChains; ++c) total += part[c][i];
    sums[i] = total;
  }
}

/// state[k] = keep * state[k] + key[k] * u, and sums[i] = sum over k of query[k] * state[k].
inline void write_state(float* state, float keep, const float* key, const float* query, int64_t key_dim,
                        const F* u, F* sums) {
  F part[kChains][kVectors] = {};
  const auto update = [&](int64_t k, F* totals) {
    const F from = splat(key[k]), to = splat(query[k]);
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      float* place = state + k * kStateCols + i * kLanes;
      const F value = fma(from, u[i], load(place) * keep);
      store(place, value);
      totals[i] = fma(to, value, totals[i]);
    }
  };
  int64_t k = 0;
  for (; k + kChains <= key_dim; k += kChains)
#pragma GCC unroll 4
    for (int c = 0; c < kChains; ++c) update(k + c, part[c]);
  for (; k < key_dim; ++k) update(k, part[0]);
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    F total = part[0][i];
#pragma GCC unroll 4
    for (int c = 1; c < kChains; ++c) total += part[c][i];
    sums[i] = total;
  }
}

/// Lanes of the vector that starts at column c.
inline int64_t lanes_from(int64_t cols, int64_t c) {
  return cols <= c ? 0 : cols - c < kLanes ? cols - c : kLanes;
}

void delta_rule(const DeltaRuleRun& run) {
  for (int64_t t = 0; t < run.rows; ++t) {
    const float keep = run.keep[t * run.keep_stride], beta = run.beta[t * run.beta_stride];
    const float* v = run.v + t * run.stride;
    float* out = run.out + t * run.out_stride;
    F u[kVectors], result[kVectors];
    read_state(run.state, run.k + t * run.stride, run.key_dim, u);
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      const int64_t n = lanes_from(run.cols, i * kLanes);
      const F value = n == kLanes ? load(v + i * kLanes) : n > 0 ? load_first(v + i * kLanes, n) : F{};
      u[i] = (value - u[i] * keep) * beta;
    }
    write_state(run.state, keep, run.k + t * run.stride, run.q + t * run.stride, run.key_dim, u, result);
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      const int64_t n = lanes_from(run.cols, i * kLanes);
      if (n == kLanes)
        store(out + i * kLanes, result[i]);
      else if (n > 0)
        store_first(out + i * kLanes, result[i], n);
    }
  }
}

constexpr DeltaNetKernels kDeltaNetKernels = {conv_silu, unit_length, delta_rule};

}  // namespace
}  // namespace vllm::cpu

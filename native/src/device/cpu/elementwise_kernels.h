// The bodies of ElementwiseKernels over the vectors of simd.h.
#pragma once
#include "device/cpu/elementwise.h"
#include "device/cpu/simd.h"

namespace vllm::cpu {
namespace {

/// Calls body(index, load, store) for n elements, a vector at a time, the last one in part.
template <class Body>
inline void for_each_vector(int64_t n, Body body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    body(i, [](const float* p) { return load(p); }, [](float* p, F v) { store(p, v); });
  if (i < n)
    body(
        i, [=](const float* p) { return load_first(p, n - i); },
        [=](float* p, F v) { store_first(p, v, n - i); });
}

/// rsqrt(mean(x^2) + eps). Four running sums hide the latency of the addition; their order is fixed by n.
inline float inverse_rms(const float* x, int64_t n, float eps) {
  F s[4] = {};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const F v = load(x + i + j * kLanes);
      s[j] = fma(v, v, s[j]);
    }
  }
  for_each_vector(n - i, [&](int64_t j, auto get, auto) {
    const F v = get(x + i + j);
    s[0] = fma(v, v, s[0]);
  });
  const float mean = sum((s[0] + s[1]) + (s[2] + s[3])) / static_cast<float>(n);
  return 1.0f / sqrtf(mean + eps);
}

void rms_norm(const float* x, const float* weight, int64_t n, float eps, bool accumulate, float* out) {
  const float factor = inverse_rms(x, n, eps);
  if (accumulate) {
    for_each_vector(n, [&](int64_t i, auto get, auto put) {
      put(out + i, get(out + i) + get(x + i) * factor * get(weight + i));
    });
  } else {
    for_each_vector(
        n, [&](int64_t i, auto get, auto put) { put(out + i, get(x + i) * factor * get(weight + i)); });
  }
}

inline void rotate(float* x, const Rotation& r) {
  if (r.interleaved) {
    for (int64_t i = 0; i < r.pairs; ++i) {
      const float a = x[2 * i], b = x[2 * i + 1];
      x[2 * i] = a * r.cos[i] - b * r.sin[i];
      x[2 * i + 1] = b * r.cos[i] + a * r.sin[i];
    }
  } else {
    for_each_vector(r.pairs, [&](int64_t i, auto get, auto put) {
      const F a = get(x + i), b = get(x + r.pairs + i), c = get(r.cos + i), s = get(r.sin + i);
      put(x + i, a * c - b * s);
      put(x + r.pairs + i, b * c + a * s);
    });
  }
}

void norm_rope(float* x, int heads, int64_t head_dim, const float* norm, float eps,
               const Rotation& rotation) {
  for (int h = 0; h < heads; ++h) {
    if (norm) rms_norm(x, norm, head_dim, eps, false, x);
    rotate(x, rotation);
    x += head_dim;
  }
}

void silu_gated(const float* gate, const float* up, int64_t n, float* out) {
  for_each_vector(n, [&](int64_t i, auto get, auto put) {
    const F g = get(gate + i);
    put(out + i, g / (1.0f + exp(-g)) * get(up + i));
  });
}

/// x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3)
void gelu_gated(const float* gate, const float* up, int64_t n, float* out) {
  for_each_vector(n, [&](int64_t i, auto get, auto put) {
    const F g = get(gate + i);
    const F u = 0.797884561f * fma(0.044715f * g * g, g, g);
    put(out + i, g / (1.0f + exp(-2.0f * u)) * get(up + i));
  });
}

void sigmoid_gated(const float* gate, const float* up, int64_t n, float* out) {
  for_each_vector(n,
                  [&](int64_t i, auto get, auto put) { put(out + i, sigmoid(get(gate + i)) * get(up + i)); });
}

void softcap(float cap, float* x, int64_t n) {
  const F divisor = splat(cap);
  for_each_vector(n, [&](int64_t i, auto get, auto put) { put(x + i, cap * tanh(get(x + i) / divisor)); });
}

constexpr ElementwiseKernels kElementwiseKernels = {rms_norm,   norm_rope,     silu_gated,
                                                    gelu_gated, sigmoid_gated, softcap};

}  // namespace
}  // namespace vllm::cpu

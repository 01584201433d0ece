// What the machine itself can do just now: the limits that kernels are held against.
#pragma once
#include <chrono>
#include <cstdint>
#include <span>

#include "device/cpu/pool.h"

namespace vllm::cpu {

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// GB/s of all threads reading their share of a buffer larger than the caches.
inline double read_rate(ThreadPool& pool, std::span<const uint64_t> memory) {
  const double start = now();
  pool.run([&](int thread) {
    const Range part = share(static_cast<int64_t>(memory.size()), thread, pool.threads(), 32);
    typedef uint64_t V __attribute__((vector_size(64), aligned(8)));
    V a{}, b{}, c{}, d{};
    for (int64_t i = part.begin; i + 32 <= part.end; i += 32) {
      const V* p = reinterpret_cast<const V*>(memory.data() + i);
      a ^= p[0];
      b ^= p[1];
      c ^= p[2];
      d ^= p[3];
    }
    a ^= b ^ c ^ d;
    volatile uint64_t sink = a[0] ^ a[7];
    (void)sink;
  });
  return static_cast<double>(memory.size()) * 8 / (now() - start) / 1e9;
}

#if defined(__AVX512VNNI__) && defined(__AVX512BF16__)
#define VLLM_PEAK_LOOP(op)                                                                               \
  "1:\n" op " %%zmm30,%%zmm31,%%zmm0\n" op " %%zmm30,%%zmm31,%%zmm1\n" op " %%zmm30,%%zmm31,%%zmm2\n" op \
  " %%zmm30,%%zmm31,%%zmm3\n" op " %%zmm30,%%zmm31,%%zmm4\n" op " %%zmm30,%%zmm31,%%zmm5\n" op           \
  " %%zmm30,%%zmm31,%%zmm6\n" op " %%zmm30,%%zmm31,%%zmm7\n dec %0\n jnz 1b"
#define VLLM_PEAK_CLOBBERS \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm30", "xmm31", "cc"

template <typename Loop>
double peak(ThreadPool& pool, double operations, Loop loop) {
  constexpr int kRounds = 100000;
  const double start = now();
  pool.run([&](int) { loop(kRounds); });
  return pool.threads() * operations * 8 * kRounds / (now() - start) / 1e9;
}
#endif

/// G operations/s (a multiplication and an addition are two) of int8 dot products in registers; 0 where the
/// program is not built for them.
inline double int8_peak(ThreadPool& pool) {
#if defined(VLLM_PEAK_LOOP)
  return peak(pool, 128, [](int n) {
    asm volatile(VLLM_PEAK_LOOP("vpdpbusd") : "+r"(n) : : VLLM_PEAK_CLOBBERS);
  });
#else
  (void)pool;
  return 0;
#endif
}

/// The same of bfloat16 dot products.
inline double bf16_peak(ThreadPool& pool) {
#if defined(VLLM_PEAK_LOOP)
  return peak(pool, 64, [](int n) {
    asm volatile(VLLM_PEAK_LOOP("vdpbf16ps") : "+r"(n) : : VLLM_PEAK_CLOBBERS);
  });
#else
  (void)pool;
  return 0;
#endif
}

}  // namespace vllm::cpu

// What the machine itself can do just now: the limits that kernels are held against.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>

#include "device/cpu/isa.h"
#include "device/cpu/pool.h"
#if defined(__AMX_INT8__) && defined(__AMX_BF16__)
#include "device/cpu/amx_tiles.h"
#endif

namespace vllm::cpu {

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// GB/s of all threads reading their share of a buffer larger than the caches, with a prefetch for processors
/// whose own ends at a page.
inline double read_rate(ThreadPool& pool, std::span<const uint64_t> memory) {
  const double start = now();
  pool.run([&](int thread) {
    const Range part = share(static_cast<int64_t>(memory.size()), thread, pool.threads(), 32);
    typedef uint64_t V __attribute__((vector_size(64), aligned(8)));
    V a{}, b{}, c{}, d{};
    for (int64_t i = part.begin; i + 32 <= part.end; i += 32) {
      const V* p = reinterpret_cast<const V*>(memory.data() + i);
      for (int line = 0; line < 4; line++) __builtin_prefetch(memory.data() + i + 512 + 8 * line);
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

#if defined(__AMX_INT8__) && defined(__AMX_BF16__)
/// The same with the tiles of AMX: `operation` on four sums of 16 x 16. 0 where the system does not allow
/// them.
#define VLLM_TILE_LOOP(operation)                                                          \
  "1:\n" operation " %%tmm6,%%tmm4,%%tmm0\n" operation " %%tmm7,%%tmm4,%%tmm1\n" operation \
  " %%tmm6,%%tmm5,%%tmm2\n" operation " %%tmm7,%%tmm5,%%tmm3\n dec %0\n jnz 1b"

template <typename Loop>
double tile_peak(ThreadPool& pool, double operations, Loop loop) {
  if (best_isa() != Isa::Amx) return 0;
  constexpr int kRounds = 20000;
  const double start = now();
  pool.run([&](int) {
    configure(16, kTileInputs);
    alignas(64) static const uint8_t numbers[kTileBytes] = {1, 2, 3};
    load_tile<4>(numbers, 64), load_tile<5>(numbers, 64), load_tile<6>(numbers, 64),
        load_tile<7>(numbers, 64);
    loop(kRounds);
    release();
  });
  return pool.threads() * operations * 4 * kRounds / (now() - start) / 1e9;
}
#endif

/// G operations/s (a multiplication and an addition are two) of int8 dot products in registers; 0 where the
/// program is not built for them.
inline double int8_peak(ThreadPool& pool) {
  double best = 0;
#if defined(VLLM_PEAK_LOOP)
  best = peak(pool, 128, [](int n) {
    asm volatile(VLLM_PEAK_LOOP("vpdpbusd") : "+r"(n) : : VLLM_PEAK_CLOBBERS);
  });
#endif
#if defined(VLLM_TILE_LOOP)
  best = std::max(best, tile_peak(pool, 16 * 16 * 128, [](int n) {
                    asm volatile(VLLM_TILE_LOOP("tdpbssd") : "+r"(n) : : "cc");
                  }));
#endif
  (void)pool;
  return best;
}

/// The same of bfloat16 dot products.
inline double bf16_peak(ThreadPool& pool) {
  double best = 0;
#if defined(VLLM_PEAK_LOOP)
  best = peak(pool, 64, [](int n) {
    asm volatile(VLLM_PEAK_LOOP("vdpbf16ps") : "+r"(n) : : VLLM_PEAK_CLOBBERS);
  });
#endif
#if defined(VLLM_TILE_LOOP)
  best = std::max(best, tile_peak(pool, 16 * 16 * 64, [](int n) {
                    asm volatile(VLLM_TILE_LOOP("tdpbf16ps") : "+r"(n) : : "cc");
                  }));
#endif
  (void)pool;
  return best;
}

}  // namespace vllm::cpu

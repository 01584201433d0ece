// Vectors of floats, as wide as the including file's instruction set. Only for files that are compiled for
// one instruction set: everything has internal linkage and nothing of the standard library's C++ headers is
// used, so that no function compiled for a newer machine can be linked in for an older one.
#pragma once
#include <math.h>
#include <stdint.h>
#if defined(__AVX2__)
// The header of gcc 12 reads an undefined vector on purpose and is warned about it.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace vllm::cpu {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

using F [[gnu::vector_size(kLanes * 4)]] = float;
using I [[gnu::vector_size(kLanes * 4)]] = int32_t;

inline F splat(float x) { return F{} + x; }
inline I splat_int(int32_t x) { return I{} + x; }

inline F load(const float* p) {
  F v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
inline void store(float* p, F v) { __builtin_memcpy(p, &v, sizeof v); }

/// kLanes numbers of one byte.
inline F load_int8(const void* p) {
#if defined(__AVX512F__)
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))));
#elif defined(__AVX2__)
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p))));
#elif defined(__aarch64__)
  uint32_t four;
  __builtin_memcpy(&four, p, sizeof four);
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(four)))));
#else
  using Bytes [[gnu::vector_size(kLanes)]] = int8_t;
  Bytes bytes;
  __builtin_memcpy(&bytes, p, sizeof bytes);
  return __builtin_convertvector(bytes, F);
#endif
}
/// kLanes numbers in bf16.
inline F load_bf16(const void* p) {
#if defined(__AVX512F__)
  const __m256i bits = _mm256_loadu_si256(static_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
#elif defined(__AVX2__)
  const __m128i bits = _mm_loadu_si128(static_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
#elif defined(__aarch64__)
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(static_cast<const uint16_t*>(p)), 16));
#else
  using Shorts [[gnu::vector_size(kLanes * 2)]] = uint16_t;
  Shorts bits;
  __builtin_memcpy(&bits, p, sizeof bits);
  return reinterpret_cast<F>(__builtin_convertvector(bits, I) << 16);
#endif
}

inline F bits_to_float(I v) { return reinterpret_cast<F>(v); }
inline I float_to_bits(F v) { return reinterpret_cast<I>(v); }

/// 0, 1, 2, ...
inline I lane_numbers() {
  I v;
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) v[i] = i;
  return v;
}

#if defined(__AVX512F__)

inline F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
inline F max(F a, F b) { return _mm512_max_ps(a, b); }
inline F min(F a, F b) { return _mm512_min_ps(a, b); }
inline float sum(F v) { return _mm512_reduce_add_ps(v); }
inline float highest(F v) { return _mm512_reduce_max_ps(v); }
/// The first n lanes; the others are zero.
inline F load_first(const float* p, int64_t n) {
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p);
}
inline void store_first(float* p, F v, int64_t n) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), v);
}

#else

#if defined(__AVX2__)
inline F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
inline F max(F a, F b) { return _mm256_max_ps(a, b); }
inline F min(F a, F b) { return _mm256_min_ps(a, b); }
#else
#if defined(__aarch64__)
inline F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
#else
inline F fma(F a, F b, F c) { return a * b + c; }
#endif
inline F max(F a, F b) { return a > b ? a : b; }
inline F min(F a, F b) { return a < b ? a : b; }
#endif

inline float sum(F v) {
  float a[kLanes];
  store(a, v);
#pragma GCC unroll 4
  for (int half = kLanes / 2; half > 0; half /= 2)
#pragma GCC unroll 4
    for (int i = 0; i < half; ++i) a[i] += a[i + half];
  return a[0];
}
inline float highest(F v) {
  float a[kLanes];
  store(a, v);
#pragma GCC unroll 4
  for (int half = kLanes / 2; half > 0; half /= 2)
#pragma GCC unroll 4
    for (int i = 0; i < half; ++i) a[i] = a[i] > a[i + half] ? a[i] : a[i + half];
  return a[0];
}
inline F load_first(const float* p, int64_t n) {
  F v = {};
  __builtin_memcpy(&v, p, static_cast<size_t>(n) * sizeof(float));
  return v;
}
inline void store_first(float* p, F v, int64_t n) {
  __builtin_memcpy(p, &v, static_cast<size_t>(n) * sizeof(float));
}

#endif

/// x rounded to whole numbers, nearest even, for |x| < 2^22. Adding 1.5 * 2^23 leaves the number in the low
/// bits.
struct Rounded {
  F value;
  I integer;
};
inline Rounded round_to_int(F x) {
  const F magic = splat(12582912.0f), shifted = x + magic;
  return {shifted - magic, float_to_bits(shifted) - float_to_bits(magic)};
}

/// 2^n for n in -126 .. 127.
inline F power_of_two(I n) { return bits_to_float((n + 127) << 23); }

struct ExpParts {
  F mantissa;  // exp(x) = mantissa * 2^exponent, mantissa in about [0.7, 1.42]
  I exponent;
};
/// x = n ln2 + f with |f| <= ln2 / 2, ln2 in two parts so that f is exact to 1e-8; exp(f) by a least-squares
/// polynomial of degree 6, relative error 4e-9. Together with rounding: about 1e-7.
inline ExpParts exp_parts(F x) {
  const Rounded n = round_to_int(x * 1.44269504f);
  F f = fma(n.value, splat(-0.693359375f), x);
  f = fma(n.value, splat(2.12194440e-4f), f);
  F q = splat(1.37513821e-3f);
  q = fma(q, f, splat(8.36892343e-3f));
  q = fma(q, f, splat(4.16695342e-2f));
  q = fma(q, f, splat(1.66665184e-1f));
  q = fma(q, f, splat(4.99999886e-1f));
  return {fma(q * f, f, f) + 1.0f, n.integer};
}

/// exp(x) for x <= 0; exactly zero below -87, where results would come near the denormal numbers.
inline F exp_nonpositive(F x) {
  const F lowest = splat(-87.0f);
  const ExpParts e = exp_parts(max(x, lowest));
  return x > lowest ? e.mantissa * power_of_two(e.exponent) : F{};
}

/// exp(x) for all x; overflow gives infinity, NaN stays NaN.
inline F exp(F x) {
  const ExpParts e = exp_parts(min(splat(89.0f), max(splat(-104.0f), x)));
  const I half = e.exponent >> 1;
  const F y = e.mantissa * power_of_two(half) * power_of_two(e.exponent - half);
  return x == x ? y : x;
}

/// 1 / (1 + exp(-x))
inline F sigmoid(F x) { return 1.0f / (1.0f + exp(-x)); }

/// tanh(x) = x + x^3 q(x^2) below 0.625 (relative error 2e-8), else 1 - 2 / (exp(2x) + 1), odd.
inline F tanh(F x) {
  const F z = x * x;
  F q = splat(-5.77290198e-3f);
  q = fma(q, z, splat(2.07005169e-2f));
  q = fma(q, z, splat(-5.37586398e-2f));
  q = fma(q, z, splat(1.33316679e-1f));
  q = fma(q, z, splat(-3.33332901e-1f));
  const F small = fma(q * z, x, x);
  const I sign = float_to_bits(x) & INT32_MIN;
  const F size = bits_to_float(float_to_bits(x) & INT32_MAX);
  const F large = 1.0f - 2.0f / (exp(size + size) + 1.0f);
  return size < 0.625f ? small : bits_to_float(float_to_bits(large) | sign);
}

}  // namespace
}  // namespace vllm::cpu

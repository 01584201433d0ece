// The number format of a KV cache.
#ifndef KV_GLSL
#define KV_GLSL
#include "common.glsl"

layout(constant_id = 1) const int BF16 = 1;

int kv_words(int head_dim) { return BF16 != 0 ? (head_dim + 1) / 2 : head_dim; }

/// To the nearest, of two as near to the even one; NaN stays NaN.
uint bf16_bits(float x) {
  const uint bits = floatBitsToUint(x);
  if (is_nan(x)) return bits >> 16 | 0x40u;
  return bits + 0x7fffu + (bits >> 16 & 1u) >> 16;
}

#endif

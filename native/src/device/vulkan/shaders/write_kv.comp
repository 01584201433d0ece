// Stores keys and values of a row at its slot. One workgroup a kv head (x) and row (y).
//
// bf16: a word holds the dims (2i, 2i + 1) of a token, the last one half empty where head_dim is odd; f32: a
// word is a dim. Keys [block][head][word of dims][slot], values [block][head][slot][word of dims].
//
// Specialization constant 1: BF16, 1 or 0.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "kv.glsl"
PARAMETERS(WriteKv);

void main() {
  const int head = int(gl_WorkGroupID.x), row = int(gl_WorkGroupID.y), words = kv_words(p.head_dim);
  const int slot = p.slots.at[row], block = slot / p.block_size * p.heads + head, at = slot % p.block_size;
  for (int i = LANE; i < words; i += GROUP) {
    const int k = row * p.k_stride + head * p.head_dim, v = row * p.v_stride + head * p.head_dim;
    uint key, value;
    if (BF16 != 0) {
      const bool second = 2 * i + 1 < p.head_dim;
      key = bf16_bits(p.k.at[k + 2 * i]) | (second ? bf16_bits(p.k.at[k + 2 * i + 1]) << 16 : 0u);
      value = bf16_bits(p.v.at[v + 2 * i]) | (second ? bf16_bits(p.v.at[v + 2 * i + 1]) << 16 : 0u);
    } else {
      key = floatBitsToUint(p.k.at[k + i]);
      value = floatBitsToUint(p.v.at[v + i]);
    }
    p.keys.at[(block * words + i) * p.block_size + at] = key;
    p.values.at[(block * p.block_size + at) * words + i] = value;
  }
}

// The gated delta rule down the rows of a sequence (y), on what delta_prepare made: for each value head and
// GROUP of its dims (x)
//   S *= a,  u = b (v - S k),  S += u k^T,  out = S q.
// An invocation has one row of S in its registers while it walks; in memory S is [key_dim][value_dim].
//
// Specialization constant 1: KEY_DIM.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(constant_id = 1) const int KEY_DIM = 128;
PARAMETERS(DeltaRule);

const int kDeltaRows = 32;  // vulkan/delta_net.cc has it too

void main() {
  const int pieces = (p.value_dim + GROUP - 1) / GROUP, s = int(gl_WorkGroupID.y);
  const int head = int(gl_WorkGroupID.x) / pieces, d = int(gl_WorkGroupID.x) % pieces * GROUP + LANE;
  const int begin = p.seq_start.at[s] + p.first_row, end = min(begin + kDeltaRows, p.seq_start.at[s + 1]);
  if (d >= p.value_dim || begin >= end) return;
  const int key_head = p.tiled != 0 ? head % p.key_heads : head / (p.value_heads / p.key_heads);
  const int key_cols = p.key_heads * KEY_DIM;
  const int state = p.slots.at[s] * p.slot_stride + head * KEY_DIM * p.value_dim + d;
  const bool fresh = p.positions.at[begin] == 0;
  float row[KEY_DIM];
  for (int i = 0; i < KEY_DIM; ++i) row[i] = fresh ? 0.0 : p.state.at[state + i * p.value_dim];
  for (int t = begin; t < end; ++t) {
    const int q = t * p.qkv_stride + key_head * KEY_DIM, k = q + key_cols;
    const float keep = p.a.at[t * p.a_stride + head], beta = p.b.at[t * p.b_stride + head];
    precise float read = 0.0;
    for (int i = 0; i < KEY_DIM; ++i) {
      row[i] *= keep;
      read = fma(row[i], p.qkv.at[k + i], read);
    }
    precise const float u = (p.qkv.at[t * p.qkv_stride + 2 * key_cols + head * p.value_dim + d] - read) * beta;
    precise float result = 0.0;
    for (int i = 0; i < KEY_DIM; ++i) {
      row[i] = fma(u, p.qkv.at[k + i], row[i]);
      result = fma(row[i], p.qkv.at[q + i], result);
    }
    p.out_.at[t * p.out_stride + head * p.value_dim + d] = result;
  }
  for (int i = 0; i < KEY_DIM; ++i) p.state.at[state + i * p.value_dim] = row[i];
}

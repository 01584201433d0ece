// The gated delta rule down the rows of a sequence (y): for each value head and GROUP of its dims (x)
//   S *= exp(decay * softplus(a + dt_bias)),  u = sigmoid(b) (v - S k),  S += u k^T,  out = S q
// with q and k of length 1, q times key_dim^-1/2. An invocation has one row of S, which is stored
// [key_dim][value_dim].
#version 450
#extension GL_GOOGLE_include_directive : require
#include "math.glsl"
#include "reduce.glsl"
PARAMETERS(DeltaRule);

const int kMaxKeyDim = 512;  // vulkan/delta_net.cc has both too
const int kDeltaRows = 32;
shared float q[kMaxKeyDim], k[kMaxKeyDim];

/// Reads key_dim values at `from` of qkv into one of the two, scaled to length `size`.
#define LOAD_SCALED(to, from, size)                                              \
  {                                                                              \
    precise float sum = 0.0;                                                     \
    for (int i = LANE; i < p.key_dim; i += GROUP) {                              \
      to[i] = p.qkv.at[(from) + i];                                              \
      sum = fma(to[i], to[i], sum);                                              \
    }                                                                            \
    precise const float factor = (size) / sqrt(group_sum(sum) + 1e-6);           \
    for (int i = LANE; i < p.key_dim; i += GROUP) to[i] *= factor;               \
  }

void main() {
  const int pieces = (p.value_dim + GROUP - 1) / GROUP, s = int(gl_WorkGroupID.y);
  const int head = int(gl_WorkGroupID.x) / pieces, d = int(gl_WorkGroupID.x) % pieces * GROUP + LANE;
  const int key_head = p.tiled != 0 ? head % p.key_heads : head / (p.value_heads / p.key_heads);
  const int key_cols = p.key_heads * p.key_dim, row_size = p.value_dim;
  const int state = p.slots.at[s] * p.slot_stride + head * p.key_dim * p.value_dim + d;
  const int begin = p.seq_start.at[s] + p.first_row, end = min(begin + kDeltaRows, p.seq_start.at[s + 1]);
  const bool mine = d < p.value_dim;
  bool fresh = begin < end && p.positions.at[begin] == 0;
  for (int t = begin; t < end; ++t) {
    const int row = t * p.qkv_stride;
    barrier();
    LOAD_SCALED(q, row + key_head * p.key_dim, 1.0 / sqrt(float(p.key_dim)))
    LOAD_SCALED(k, row + key_cols + key_head * p.key_dim, 1.0)
    barrier();
    if (!mine) continue;
    const float step = p.a.at[t * p.a_stride + head] + p.dt_bias.at[head];
    const float keep = exp_(p.decay.at[head] * softplus(step)), beta = sigmoid(p.b.at[t * p.b_stride + head]);
    precise float read = 0.0;
    if (!fresh)
      for (int i = 0; i < p.key_dim; ++i) read = fma(keep * p.state.at[state + i * row_size], k[i], read);
    precise const float u = (p.qkv.at[row + 2 * key_cols + head * p.value_dim + d] - read) * beta;
    precise float result = 0.0;
    for (int i = 0; i < p.key_dim; ++i) {
      precise const float kept = fresh ? 0.0 : keep * p.state.at[state + i * row_size];
      precise const float value = fma(u, k[i], kept);
      p.state.at[state + i * row_size] = value;
      result = fma(value, q[i], result);
    }
    p.out_.at[t * p.out_stride + head * p.value_dim + d] = result;
    fresh = false;
  }
}

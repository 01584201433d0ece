// What the delta rule needs of each row (y), in place: for x below 2 * key_heads one head of q or k scaled to
// length 1, q by key_dim^-1/2 more; for the last x a and b become exp(decay * softplus(a + dt_bias)) and
// sigmoid(b).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "math.glsl"
#include "reduce.glsl"
PARAMETERS(DeltaPrepare);

void main() {
  const int row = int(gl_WorkGroupID.y), head = int(gl_WorkGroupID.x);
  if (head == 2 * p.key_heads) {
    for (int h = LANE; h < p.value_heads; h += GROUP) {
      const int a = row * p.a_stride + h, b = row * p.b_stride + h;
      p.a.at[a] = exp_(p.decay.at[h] * softplus(p.a.at[a] + p.dt_bias.at[h]));
      p.b.at[b] = sigmoid(p.b.at[b]);
    }
    return;
  }
  const int at = row * p.qkv_stride + head * p.key_dim;
  precise float sum = 0.0;
  for (int i = LANE; i < p.key_dim; i += GROUP) sum = fma(p.qkv.at[at + i], p.qkv.at[at + i], sum);
  const float size = head < p.key_heads ? 1.0 / sqrt(float(p.key_dim)) : 1.0;
  precise const float factor = size / sqrt(group_sum(sum) + 1e-6);
  for (int i = LANE; i < p.key_dim; i += GROUP) p.qkv.at[at + i] *= factor;
}

// In place for one head of a row: rms-norm, then the rotation of its first 2 * pairs values. One workgroup a
// head (x) and row (y).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "reduce.glsl"
PARAMETERS(NormRope);

void main() {
  const int row = int(gl_WorkGroupID.y), head = row * p.stride + int(gl_WorkGroupID.x) * p.head_dim;
  if (p.has_norm != 0) {
    precise float sum = 0.0;
    for (int d = LANE; d < p.head_dim; d += GROUP) sum = fma(p.x.at[head + d], p.x.at[head + d], sum);
    precise const float factor = 1.0 / sqrt(group_sum(sum) / float(p.head_dim) + p.eps);
    for (int d = LANE; d < p.head_dim; d += GROUP) {
      precise const float value = p.x.at[head + d] * factor * p.norm.at[d];
      p.x.at[head + d] = value;
    }
    memoryBarrierBuffer();
    barrier();
  }
  for (int i = LANE; i < p.pairs; i += GROUP) {
    const int a = head + (p.interleaved != 0 ? 2 * i : i);
    const int b = head + (p.interleaved != 0 ? 2 * i + 1 : i + p.pairs);
    const float cosine = p.table.at[2 * row * p.pairs + i], sine = p.table.at[(2 * row + 1) * p.pairs + i];
    const float x = p.x.at[a], y = p.x.at[b];
    precise const float turned_x = fma(x, cosine, -y * sine), turned_y = fma(y, cosine, x * sine);
    p.x.at[a] = turned_x;
    p.x.at[b] = turned_y;
  }
}

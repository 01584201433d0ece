// out (+)= x * rsqrt(mean(x^2) + eps) * weight. One workgroup a row.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "reduce.glsl"
PARAMETERS(RmsNorm);

void main() {
  const int row = int(gl_WorkGroupID.y), x = row * p.x_stride, y = row * p.out_stride;
  precise float sum = 0.0;
  for (int c = LANE; c < p.cols; c += GROUP) sum = fma(p.x.at[x + c], p.x.at[x + c], sum);
  precise const float factor = 1.0 / sqrt(group_sum(sum) / float(p.cols) + p.eps);
  for (int c = LANE; c < p.cols; c += GROUP) {
    precise float value = p.x.at[x + c] * factor * p.weight.at[c];
    if (p.accumulate != 0) value += p.out_.at[y + c];
    p.out_.at[y + c] = value;
  }
}

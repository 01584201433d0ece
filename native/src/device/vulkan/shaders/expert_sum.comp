// out[t] (+)= the sum over the choices of row t of weight * y, in their order; a weight of 0 takes no part.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
PARAMETERS(ExpertSum);

void main() {
  const int row = int(gl_WorkGroupID.y), c = int(gl_GlobalInvocationID.x);
  if (c >= p.cols) return;
  precise float sum = 0.0;
  for (int choice = row * p.used; choice < (row + 1) * p.used; ++choice) {
    const float weight = p.weights.at[choice];
    if (weight != 0.0) sum = fma(weight, p.y.at[choice * p.y_stride + c], sum);
  }
  const int at = row * p.out_stride + c;
  if (p.accumulate != 0) sum += p.out_.at[at];
  p.out_.at[at] = sum;
}

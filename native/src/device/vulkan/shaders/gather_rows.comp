// out[i] = x[rows[i]].
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
PARAMETERS(GatherRows);

void main() {
  const int i = int(gl_WorkGroupID.y), c = int(gl_GlobalInvocationID.x);
  if (c >= p.cols) return;
  p.out_.at[i * p.out_stride + c] = p.x.at[p.rows.at[i] * p.x_stride + c];
}

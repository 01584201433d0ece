// out += sigmoid(gate) * x, one gate a row.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "math.glsl"
PARAMETERS(AddGatedRows);

void main() {
  const int row = int(gl_WorkGroupID.y), c = int(gl_GlobalInvocationID.x);
  if (c >= p.cols) return;
  precise const float add = sigmoid(p.gate.at[row * p.gate_stride]) * p.x.at[row * p.x_stride + c];
  p.out_.at[row * p.out_stride + c] += add;
}

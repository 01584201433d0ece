// out = act(gate) * up.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "math.glsl"
PARAMETERS(Gated);

void main() {
  const int row = int(gl_WorkGroupID.y), c = int(gl_GlobalInvocationID.x);
  if (c >= p.cols) return;
  precise const float value =
      activate(p.activation, p.gate.at[row * p.gate_stride + c]) * p.up.at[row * p.up_stride + c];
  p.out_.at[row * p.out_stride + c] = value;
}

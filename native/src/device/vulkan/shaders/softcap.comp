// x = cap * tanh(x / cap).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "math.glsl"
PARAMETERS(Softcap);

void main() {
  const int row = int(gl_WorkGroupID.y), c = int(gl_GlobalInvocationID.x);
  if (c >= p.cols) return;
  const int at = row * p.stride + c;
  p.x.at[at] = p.cap * tanh_(p.x.at[at] / p.cap);
}

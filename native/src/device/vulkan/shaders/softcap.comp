// x = cap * tanh(x / cap).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "math.glsl"
PARAMETERS(Softcap);

void main() {
  const int row = int(gl_WorkGroupID.y), c = int(gl_GlobalInvocationID.x);
  if (c >= p.cols) return;
  const int at = row * p.stride + c;
  const float x = p.x.at[at];
  // tanh is its argument there to 1e-8, and x / cap may be too small for a number.
  if (!(abs(x) < 1e-4 * p.cap)) p.x.at[at] = p.cap * tanh_(x / p.cap);
}

// x[t] = silu(sum_j weight[j] * x[t - TAPS + 1 + j]) down the rows of a sequence, whose last TAPS - 1 inputs are
// its history, [TAPS - 1][cols]. One invocation a channel (x) of a sequence (y).
//
// Specialization constant 1: TAPS, at most 16.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "math.glsl"
layout(constant_id = 1) const int TAPS = 4;
PARAMETERS(CausalConv);

void main() {
  const int c = int(gl_GlobalInvocationID.x), s = int(gl_WorkGroupID.y);
  if (c >= p.cols) return;
  const int begin = p.seq_start.at[s], end = p.seq_start.at[s + 1];
  const int history = p.slots.at[s] * p.slot_stride + c;
  float window[16];
  [[unroll]] for (int j = 0; j + 1 < TAPS; ++j)
    window[j] = p.positions.at[begin] == 0 ? 0.0 : p.history.at[history + j * p.cols];
  for (int t = begin; t < end; ++t) {
    const int at = t * p.x_stride + c;
    window[TAPS - 1] = p.x.at[at];
    precise float sum = 0.0;
    [[unroll]] for (int j = 0; j < TAPS; ++j) sum = fma(p.weight.at[j * p.weight_stride + c], window[j], sum);
    p.x.at[at] = sum / (1.0 + exp_(-sum));
    [[unroll]] for (int j = 0; j + 1 < TAPS; ++j) window[j] = window[j + 1];
  }
  [[unroll]] for (int j = 0; j + 1 < TAPS; ++j) p.history.at[history + j * p.cols] = window[j];
}

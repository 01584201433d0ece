// out (+)= scale * (x W^T) + bias, in every format. A workgroup computes GROUP / 16 outputs of ROWS rows.
//
// The order of the sums, which all kernels of matmul keep: the columns in pieces of 32, piece i part of sum
// i % 16, within a sum in rising order with fma(); then the 16 sums one after the other.
//
// Specialization constants: 1 FORMAT, 2 ROWS (1, 2, 4 or 8).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "formats.glsl"
layout(constant_id = 2) const int ROWS = 1;
PARAMETERS(Matmul);

const int kSums = 16, kPiece = 32, kMaxRows = 8;
shared float sums[kMaxRows * kMaxGroup];

void main() {
  const int outputs = GROUP / kSums, first_row = int(gl_WorkGroupID.y) * ROWS;
  const int mine = int(gl_WorkGroupID.x) * outputs + LANE / kSums;
  const int output_ = min(mine, p.weight_rows - 1), row = output_ * p.row_words;
  precise float sum[kMaxRows];
  int x[kMaxRows];
  [[unroll]] for (int r = 0; r < ROWS; ++r) {
    sum[r] = 0.0;
    x[r] = min(first_row + r, p.rows - 1) * p.x_stride;
  }
  for (int piece = LANE % kSums * kPiece; piece < p.cols; piece += kSums * kPiece) {
    for (int k = piece; k < min(piece + kPiece, p.cols); k += 8) {
      float v[8];
      decode8(p.weight, p.tables, row, k, v);
      [[unroll]] for (int i = 0; i < 8; ++i) {
        if (k + i < p.cols) {
          const int c = p.has_order != 0 ? p.order.at[k + i] : k + i;
          [[unroll]] for (int r = 0; r < ROWS; ++r) sum[r] = fma(v[i], p.x.at[x[r] + c], sum[r]);
        }
      }
    }
  }
  [[unroll]] for (int r = 0; r < ROWS; ++r) sums[r * GROUP + LANE] = sum[r];
  barrier();
  for (int i = LANE; i < outputs * ROWS; i += GROUP) {
    const int r = i / outputs, o = int(gl_WorkGroupID.x) * outputs + i % outputs;
    if (first_row + r >= p.rows || o >= p.weight_rows) continue;
    const int at = r * GROUP + i % outputs * kSums;
    precise float total = sums[at];
    for (int s = 1; s < kSums; ++s) total += sums[at + s];
    if (p.scale_kind != 0) total *= p.scale.at[p.scale_kind == 1 ? 0 : o];
    if (p.has_bias != 0) total += p.bias.at[o];
    const int y = (first_row + r) * p.out_stride + o;
    if (p.accumulate != 0) total += p.out_.at[y];
    p.out_.at[y] = total;
  }
}

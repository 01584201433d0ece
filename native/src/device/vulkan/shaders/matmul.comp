// out (+)= scale * (x W^T) + bias, in every format, for a few rows; rows in y.
//
// Specialization constants: those of product.glsl.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "product.glsl"
PARAMETERS(Matmul);

void main() {
  const int first_row = int(gl_WorkGroupID.y) * ROWS, first_output = int(gl_WorkGroupID.x) * OUTPUTS;
  int x[kMaxRows];
  [[unroll]] for (int r = 0; r < ROWS; ++r) x[r] = min(first_row + r, p.rows - 1) * p.x_stride;
  const int mine = min(first_output + LANE / LANES, p.weight_rows - 1);
  precise float total =
      product(p.weight, p.tables, mine * p.row_words, p.x, x, p.has_order != 0, p.order, p.cols);
  const int row = first_row + result_row(), o = first_output + result_output();
  if (LANE >= ROWS * OUTPUTS || row >= p.rows || o >= p.weight_rows) return;
  if (p.scale_kind != 0) total *= p.scale.at[p.scale_kind == 1 ? 0 : o];
  if (p.has_bias != 0) total += p.bias.at[o];
  const int y = row * p.out_stride + o;
  if (p.accumulate != 0) total += p.out_.at[y];
  p.out_.at[y] = total;
}

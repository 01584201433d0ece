// The products of rows with the matrices of one format of the experts that they chose; y counts blocks of choices.
//
// Specialization constants: those of product.glsl.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "product.glsl"
#include "expert.glsl"

void main() {
  if (!is_mine()) return;
  int x[kMaxRows];
  [[unroll]] for (int r = 0; r < ROWS; ++r) x[r] = x_row(r) * p.x_stride;
  const int first_output = int(gl_WorkGroupID.x) * OUTPUTS;
  const int row = min(first_output + LANE / LANES, p.weight_rows - 1) * my_row_words();
  const float total = product(my_matrix(), p.tables, row, p.x, x, has_order(), my_order(), p.cols);
  if (LANE < ROWS * OUTPUTS) put(total, result_row(), first_output + result_output());
}

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
  put(product(my_matrix(), p.tables, my_matrix_row(), p.x, x, has_order(), my_order(), p.cols));
}

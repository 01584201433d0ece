// The product of a row with a matrix of one of the experts it chose; y counts rows and choices. Matrices of
// other formats than FORMAT are left to other dispatches.
//
// Specialization constants: those of product.glsl, ROWS is 1.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "product.glsl"
#include "expert.glsl"

void main() {
  if (!is_mine()) return;
  int x[kMaxRows];
  x[0] = x_row() * p.x_stride;
  put(product(my_matrix(), p.tables, my_matrix_row(), p.x, x, has_order(), my_order(), p.cols));
}

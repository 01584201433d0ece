// expert_matmul.comp with int8 activations, for matrices whose columns are in the order of the inputs.
//
// Specialization constants: those of product_dot.glsl.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "product_dot.glsl"
#include "expert.glsl"

void main() {
  if (!is_mine()) return;
  int x[kMaxRows];
  [[unroll]] for (int r = 0; r < ROWS; ++r) x[r] = x_row(r) * p.x_stride * kBlockQuads;
  put(product(my_matrix(), p.tables, my_matrix_row(), Quads(uvec2(p.x)), x, p.cols));
}

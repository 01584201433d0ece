// matmul.comp with int8 activations, whose columns are in the order of the weight's.
//
// Specialization constants: those of product_dot.glsl.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "product_dot.glsl"
#include "matmul_end.glsl"

void main() {
  const int first_row = int(gl_WorkGroupID.y) * ROWS, first_output = int(gl_WorkGroupID.x) * OUTPUTS;
  int x[kMaxRows];
  [[unroll]] for (int r = 0; r < ROWS; ++r) x[r] = min(first_row + r, p.rows - 1) * p.x_stride * kBlockQuads;
  const int mine = min(first_output + LANE / LANES, p.weight_rows - 1);
  const float total = product(p.weight, p.tables, mine * p.row_words, Quads(uvec2(p.x)), x, p.cols);
  if (LANE < ROWS * OUTPUTS) put(total, first_row + result_row(), first_output + result_output());
}

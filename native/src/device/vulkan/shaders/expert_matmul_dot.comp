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
  const int first_output = int(gl_WorkGroupID.x) * OUTPUTS;
  const int row = min(first_output + LANE / LANES, p.weight_rows - 1) * my_row_words();
  const float total = product(my_matrix(), p.tables, row, Quads(uvec2(p.x)), x, p.cols);
  if (LANE < ROWS * OUTPUTS) put(total, result_row(), first_output + result_output());
}

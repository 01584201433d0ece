// What expert_matmul.comp computes, with its bits, for blocks of many choices.
//
// Specialization constants: those of tiles.glsl.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "tiles.glsl"
#define ROWS (8 * TALL)
#include "expert.glsl"

int x_start(int r) { return x_row(r) * p.x_stride; }
void put_sum(float sum, int r, int output_) { put(sum, r, output_); }

void main() {
  if (!is_mine()) return;
  tile(my_matrix(), p.tables, p.weight_rows, my_row_words(), p.x, has_order(), my_order(), p.cols);
}

// What matmul.comp computes, with its bits, for many rows.
//
// Specialization constants: those of tiles.glsl.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "tiles.glsl"
#include "matmul_end.glsl"

int first_row() { return int(gl_WorkGroupID.y) * 8 * TALL; }
int x_start(int r) { return min(first_row() + r, p.rows - 1) * p.x_stride; }
void put_sum(float sum, int r, int output_) { put(sum, first_row() + r, output_); }

void main() { tile(p.weight, p.tables, p.weight_rows, p.row_words, p.x, p.has_order != 0, p.order, p.cols); }

// What matmul_dot.comp computes, with its bits, for many rows.
//
// Specialization constants: those of tiles_dot.glsl.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "tiles_dot.glsl"
#include "matmul_end.glsl"

int first_row() { return int(gl_WorkGroupID.y) * 8 * TALL; }
int x_start(int r) { return min(first_row() + r, p.rows - 1) * p.x_stride * kBlockQuads; }
void put_sum(float sum, int r, int output_) { put(sum, first_row() + r, output_); }

void main() { tile(p.weight, p.tables, p.weight_rows, p.row_words, Quads(uvec2(p.x)), p.cols); }

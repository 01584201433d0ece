// The product of a row with a matrix of one of the experts it chose; y counts rows and choices. Matrices of
// other formats than FORMAT are left to other dispatches.
//
// Specialization constants: those of product.glsl, ROWS is 1.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "product.glsl"
PARAMETERS(ExpertMatmul);

const int kExpertWords = 10;

uvec2 address(int at) { return uvec2(p.matrices.at[at], p.matrices.at[at + 1]); }

void main() {
  const int choice = int(gl_WorkGroupID.y), entry = p.ids.at[choice] * kExpertWords;
  if (int(p.matrices.at[entry + 8]) != FORMAT) return;
  const int first_output = int(gl_WorkGroupID.x) * OUTPUTS;
  const int mine = min(first_output + LANE / LANES, p.weight_rows - 1);
  int x[kMaxRows];
  x[0] = (p.rows_of_x != 0 ? choice / p.used : choice) * p.x_stride;
  precise float total = product(Words(address(entry)), p.tables, mine * int(p.matrices.at[entry + 9]), p.x, x,
                                p.matrices.at[entry + 7] != 0u, Ints(address(entry + 4)), p.cols);
  const int o = first_output + result_output(), scale_kind = int(p.matrices.at[entry + 6]);
  if (LANE >= OUTPUTS || o >= p.weight_rows) return;
  if (scale_kind != 0) total *= Floats(address(entry + 2)).at[scale_kind == 1 ? 0 : o];
  p.out_.at[choice * p.out_stride + o] = total;
}

// The product of a row with a matrix of one of the experts it chose; y counts rows and choices. Sums run in the
// order of matmul.comp. Matrices of other formats than FORMAT are left to other dispatches.
//
// Specialization constant 1: FORMAT.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_buffer_reference_uvec2 : require
#include "formats.glsl"
PARAMETERS(ExpertMatmul);

const int kSums = 16, kPiece = 32, kExpertWords = 10;
shared float sums[kMaxGroup];

uvec2 address(int at) { return uvec2(p.matrices.at[at], p.matrices.at[at + 1]); }

void main() {
  const int choice = int(gl_WorkGroupID.y), entry = p.ids.at[choice] * kExpertWords;
  if (int(p.matrices.at[entry + 8]) != FORMAT) return;
  Words weight = Words(address(entry));
  const int outputs = GROUP / kSums, scale_kind = int(p.matrices.at[entry + 6]);
  const bool has_order = p.matrices.at[entry + 7] != 0u;
  const int mine = min(int(gl_WorkGroupID.x) * outputs + LANE / kSums, p.weight_rows - 1);
  const int row = mine * int(p.matrices.at[entry + 9]);
  const int x = (p.rows_of_x != 0 ? choice / p.used : choice) * p.x_stride;
  precise float sum = 0.0;
  for (int piece = LANE % kSums * kPiece; piece < p.cols; piece += kSums * kPiece) {
    for (int k = piece; k < min(piece + kPiece, p.cols); k += 8) {
      float v[8];
      decode8(weight, p.tables, row, k, v);
      [[unroll]] for (int i = 0; i < 8; ++i) {
        if (k + i < p.cols) {
          const int c = has_order ? Ints(address(entry + 4)).at[k + i] : k + i;
          sum = fma(v[i], p.x.at[x + c], sum);
        }
      }
    }
  }
  sums[LANE] = sum;
  barrier();
  const int o = int(gl_WorkGroupID.x) * outputs + LANE;
  if (LANE >= outputs || o >= p.weight_rows) return;
  precise float total = sums[LANE * kSums];
  for (int s = 1; s < kSums; ++s) total += sums[LANE * kSums + s];
  if (scale_kind != 0) total *= Floats(address(entry + 2)).at[scale_kind == 1 ? 0 : o];
  p.out_.at[choice * p.out_stride + o] = total;
}

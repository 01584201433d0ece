// What matmul.comp computes, with its bits, for many rows: a workgroup computes kOutputs outputs of 8 * TALL rows,
// an invocation 4 of TALL. Pieces of W and x lie decoded in shared memory, columns apart, for all to use.
//
// Specialization constants: 0 must be 128; 1 FORMAT, 2 TALL (4 or 8), 3 ALIGNED as in product.glsl.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "formats.glsl"
layout(constant_id = 2) const int TALL = 8;
layout(constant_id = 3) const int ALIGNED = 0;
#include "matmul_end.glsl"

const int kOutputs = 64, kMaxTall = 8, kThreads = 128;
shared vec4 w_tile[kPiece * kOutputs / 4];      // [column][output]
shared vec4 x_tile[kPiece * 8 * kMaxTall / 4];  // [column][row]

void main() {
  const int rows = 8 * TALL, first_row = int(gl_WorkGroupID.y) * rows;
  const int first_output = int(gl_WorkGroupID.x) * kOutputs;
  const int my_rows = LANE / 16 * TALL, my_outputs = LANE % 16 * 4;
  // Each invocation decodes half a piece of one row of W.
  const int w_output = LANE % kOutputs, w_half = LANE / kOutputs;
  const int w_row = min(first_output + w_output, p.weight_rows - 1) * p.row_words;
  precise float total[kMaxTall * 4];
  [[unroll]] for (int i = 0; i < TALL * 4; ++i) total[i] = 0.0;
  for (int k = 0; k < p.cols; k += kPiece) {
    const Piece w = open_piece(p.weight, p.tables, w_row, k);
    [[unroll]] for (int part = 0; part < 4; ++part) {
      if (part / 2 != w_half) continue;
      float v[8];
      decode8(p.weight, w, part, p.cols - k, v);
      [[unroll]] for (int i = 0; i < 8; ++i) w_tile[((8 * part + i) * kOutputs + w_output) / 4][w_output % 4] = v[i];
    }
    for (int i = LANE; i < rows * (kPiece / 4); i += kThreads) {
      const int r = i % rows, c = i / rows * 4, at = min(first_row + r, p.rows - 1) * p.x_stride;
      vec4 four = vec4(0.0);
      if (ALIGNED != 0 && p.has_order == 0 && k + c + 4 <= p.cols) {
        four = Vectors(uvec2(p.x)).at[(at + k + c) / 4];
      } else {
        [[unroll]] for (int j = 0; j < 4; ++j)
          if (k + c + j < p.cols) four[j] = p.x.at[at + (p.has_order != 0 ? p.order.at[k + c + j] : k + c + j)];
      }
      [[unroll]] for (int j = 0; j < 4; ++j) x_tile[((c + j) * rows + r) / 4][r % 4] = four[j];
    }
    barrier();
    precise float sum[kMaxTall * 4];
    [[unroll]] for (int i = 0; i < TALL * 4; ++i) sum[i] = 0.0;
    for (int c = 0; c < kPiece; ++c) {
      const vec4 v = w_tile[(c * kOutputs + my_outputs) / 4];
      [[unroll]] for (int r = 0; r < TALL; r += 4) {
        const vec4 x = x_tile[(c * rows + my_rows + r) / 4];
        [[unroll]] for (int i = 0; i < 16; ++i)
          sum[4 * r + i] = fma(v[i % 4], x[i / 4], sum[4 * r + i]);
      }
    }
    [[unroll]] for (int i = 0; i < TALL * 4; ++i) total[i] += sum[i];
    barrier();
  }
  [[unroll]] for (int r = 0; r < TALL; ++r) {
    [[unroll]] for (int i = 0; i < 4; ++i)
      put(total[4 * r + i], first_row + my_rows + r, first_output + my_outputs + i);
  }
}

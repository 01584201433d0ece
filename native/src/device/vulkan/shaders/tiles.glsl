// What product.glsl computes, with its bits, for many rows: a workgroup computes kOutputs outputs of 8 * TALL rows,
// an invocation 4 of TALL. Pieces of W and x lie decoded in shared memory, columns apart, for all to use.
//
// Specialization constants: 0 must be 128; 1 FORMAT, 2 TALL (4 or 8), 3 ALIGNED as in product.glsl.
#ifndef TILES_GLSL
#define TILES_GLSL
#include "formats.glsl"
layout(constant_id = 2) const int TALL = 8;
layout(constant_id = 3) const int ALIGNED = 0;

const int kOutputs = 64, kMaxTall = 8, kThreads = 128;
shared vec4 w_tile[kPiece * kOutputs / 4];      // [column][output]
shared vec4 x_tile[kPiece * 8 * kMaxTall / 4];  // [column][row]

/// Of the includer: where row r of the tile starts in x, and what takes the sum of such a row and an output.
int x_start(int r);
void put_sum(float sum, int r, int output_);

/// Row i of the matrix starts at word i * row_words. Column c of x is that of input order[c] if there is an order. All
/// must call it.
void tile(Words weight, Words tables, int weight_rows, int row_words, Floats x, bool has_order, Ints order, int cols) {
  const int rows = 8 * TALL, first_output = int(gl_WorkGroupID.x) * kOutputs;
  const int my_rows = LANE / 16 * TALL, my_outputs = LANE % 16 * 4;
  // Each invocation decodes half a piece of one row of W.
  const int w_output = LANE % kOutputs, w_half = LANE / kOutputs;
  const int w_row = min(first_output + w_output, weight_rows - 1) * row_words;
  precise float total[kMaxTall * 4];
  [[unroll]] for (int i = 0; i < TALL * 4; ++i) total[i] = 0.0;
  for (int k = 0; k < cols; k += kPiece) {
    const Piece w = open_piece(weight, tables, w_row, k);
    [[unroll]] for (int part = 0; part < 4; ++part) {
      if (part / 2 != w_half) continue;
      float v[8];
      decode8(weight, w, part, cols - k, v);
      [[unroll]] for (int i = 0; i < 8; ++i) w_tile[((8 * part + i) * kOutputs + w_output) / 4][w_output % 4] = v[i];
    }
    for (int i = LANE; i < rows * (kPiece / 4); i += kThreads) {
      const int r = i % rows, c = i / rows * 4, at = x_start(r);
      vec4 four = vec4(0.0);
      if (ALIGNED != 0 && !has_order && k + c + 4 <= cols) {
        four = Vectors(uvec2(x)).at[(at + k + c) / 4];
      } else {
        [[unroll]] for (int j = 0; j < 4; ++j)
          if (k + c + j < cols) four[j] = x.at[at + (has_order ? order.at[k + c + j] : k + c + j)];
      }
      [[unroll]] for (int j = 0; j < 4; ++j) x_tile[((c + j) * rows + r) / 4][r % 4] = four[j];
    }
    barrier();
    precise float sum[kMaxTall * 4];
    [[unroll]] for (int i = 0; i < TALL * 4; ++i) sum[i] = 0.0;
    for (int c = 0; c < kPiece; ++c) {
      const vec4 v = w_tile[(c * kOutputs + my_outputs) / 4];
      [[unroll]] for (int r = 0; r < TALL; r += 4) {
        const vec4 four = x_tile[(c * rows + my_rows + r) / 4];
        [[unroll]] for (int i = 0; i < 16; ++i)
          sum[4 * r + i] = fma(v[i % 4], four[i / 4], sum[4 * r + i]);
      }
    }
    [[unroll]] for (int i = 0; i < TALL * 4; ++i) total[i] += sum[i];
    barrier();
  }
  [[unroll]] for (int r = 0; r < TALL; ++r) {
    [[unroll]] for (int i = 0; i < 4; ++i)
      put_sum(total[4 * r + i], my_rows + r, first_output + my_outputs + i);
  }
}

#endif

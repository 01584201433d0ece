// What product_dot.glsl computes, with its bits, for many rows: a workgroup computes kOutputs outputs of 8 * TALL rows,
// an invocation 4 of TALL. Two pieces of W and of x at a time lie in shared memory for all to use.
//
// Specialization constants: 0 must be 128; 1 FORMAT, 2 TALL (4 or 8).
#ifndef TILES_DOT_GLSL
#define TILES_DOT_GLSL
#include "dot.glsl"
layout(constant_id = 2) const int TALL = 8;

const int kOutputs = 64, kMaxTall = 8, kThreads = 128, kPieces = 2;
// [piece][first, second half][output] and [piece][output]
shared uvec4 w_codes[kPieces * 2 * kOutputs];
shared vec4 w_scales[kPieces * kOutputs];  // of both halves, then low
shared int w_zero[kPieces * kOutputs];
// The same by row.
shared uvec4 x_codes[kPieces * 2 * 8 * kMaxTall];
shared uvec2 x_rest[kPieces * 8 * kMaxTall];

/// Of the includer: where row r of the tile starts in x, and what takes the sum of such a row and an output.
int x_start(int r);
void put_sum(float sum, int r, int output_);

/// Row i of the matrix starts at word i * row_words. All must call it.
void tile(Words weight, Words tables, int weight_rows, int row_words, Quads x, int cols) {
  const int rows = 8 * TALL, first_output = int(gl_WorkGroupID.x) * kOutputs;
  const int my_rows = LANE / 16 * TALL, my_output = LANE % 16;  // and those 16, 32 and 48 further
  const int w_output = LANE % kOutputs, w_piece = LANE / kOutputs;
  const int w_row = min(first_output + w_output, weight_rows - 1) * row_words;
  precise float total[kMaxTall * 4];
  [[unroll]] for (int i = 0; i < TALL * 4; ++i) total[i] = 0.0;
  for (int k = 0; k < cols; k += kPieces * kPiece) {
    const int here = min(kPieces, (cols - k) / kPiece);
    if (w_piece < here) {
      Piece w = open_piece(weight, tables, w_row, k + w_piece * kPiece);
      numbers_for_codes(w);
      [[unroll]] for (int half_ = 0; half_ < 2; ++half_)
        w_codes[(2 * w_piece + half_) * kOutputs + w_output] = uvec4(
            w.codes[4 * half_], w.codes[4 * half_ + 1], w.codes[4 * half_ + 2], w.codes[4 * half_ + 3]);
      w_scales[LANE] = vec4(w.scale[0], w.scale[1], w.low[0], w.low[1]);
      w_zero[LANE] = w.zero;
    }
    for (int i = LANE; i < rows * here; i += kThreads) {
      const int r = i % rows, piece = i / rows;
      const int at = x_start(r) + (k / kPiece + piece) * kBlockQuads;
      x_codes[2 * piece * rows + r] = x.at[at];
      x_codes[(2 * piece + 1) * rows + r] = x.at[at + 1];
      x_rest[i] = x.at[at + 2].xy;
    }
    barrier();
    for (int piece = 0; piece < here; ++piece) {
      Piece w[4];
      [[unroll]] for (int o = 0; o < 4; ++o) {
        const int output_ = my_output + 16 * o;
        const uvec4 first = w_codes[2 * piece * kOutputs + output_],
                    second = w_codes[(2 * piece + 1) * kOutputs + output_];
        const vec4 scales = w_scales[piece * kOutputs + output_];
        w[o] = Piece(uint[8](first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w),
                     float[2](scales.x, scales.y), float[2](scales.z, scales.w),
                     w_zero[piece * kOutputs + output_], 0);
      }
      [[unroll]] for (int r = 0; r < TALL; ++r) {
        const int row = my_rows + r;
        const uvec4 first = x_codes[2 * piece * rows + row], second = x_codes[(2 * piece + 1) * rows + row];
        const uvec2 rest = x_rest[piece * rows + row];
        [[unroll]] for (int o = 0; o < 4; ++o) total[4 * r + o] += piece_product(w[o], first, second, rest);
      }
    }
    barrier();
  }
  [[unroll]] for (int r = 0; r < TALL; ++r) {
    [[unroll]] for (int o = 0; o < 4; ++o)
      put_sum(total[4 * r + o], my_rows + r, first_output + my_output + 16 * o);
  }
}

#endif

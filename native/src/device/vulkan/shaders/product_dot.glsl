// What product.glsl does, with activations as in dot.glsl. The columns in pieces of 32; the sums of the pieces
// one after the other, from 0.
//
// Specialization constants: 1 FORMAT, 2 ROWS and 3 LANES of outputs.glsl.
#ifndef PRODUCT_DOT_GLSL
#define PRODUCT_DOT_GLSL
#include "dot.glsl"
#include "outputs.glsl"

const int kRoundPieces = 128;
shared float piece_sums[kRoundPieces * (kMaxOutputs + 1)];

/// The row of the matrix that starts at word `row` is multiplied by this invocation and its neighbours; x[r] is
/// the first quad of row r of x. All must call it.
float product(Words weight, Words tables, int row, Quads x, int x_row[kMaxRows], int cols) {
  const int pairs = ROWS * OUTPUTS, round_ = kRoundPieces / ROWS, lane = LANE % LANES, output_ = LANE / LANES;
  const int pieces = cols / kPiece;
  precise float total = 0.0;
  for (int first = 0; first < pieces; first += round_) {
    const int here = min(round_, pieces - first);
    for (int piece = lane; piece < here; piece += LANES) {
      Piece w = open_piece(weight, tables, row, (first + piece) * kPiece);
      numbers_for_codes(w);
      [[unroll]] for (int r = 0; r < ROWS; ++r) {
        const int at = x_row[r] + kBlockQuads * (first + piece);
        piece_sums[piece * (pairs + 1) + r * OUTPUTS + output_] =
            piece_product(w, x.at[at], x.at[at + 1], x.at[at + 2].xy);
      }
    }
    barrier();
    if (LANE < pairs)
      for (int piece = 0; piece < here; ++piece) total += piece_sums[piece * (pairs + 1) + LANE];
    barrier();
  }
  return total;
}

#endif

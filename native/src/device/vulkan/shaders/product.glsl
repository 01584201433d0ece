// Products of a few rows with a matrix in any format: each element of the matrix is loaded and decoded once for
// all rows.
//
// The order of the sums, which all kernels of products keep, so that a row has the same bits in each: the
// columns in pieces of 32; within a piece in rising order with fma(), from 0; then the sums of the pieces one
// after the other, from 0.
//
// Rows of x and the pieces' sums lie in shared memory, kRound / ROWS columns at a time.
//
// Specialization constants: 1 FORMAT, 2 ROWS and 3 LANES of outputs.glsl, 4 ALIGNED (x starts and its rows are apart
// by multiples of 16 bytes).
#ifndef PRODUCT_GLSL
#define PRODUCT_GLSL
#include "formats.glsl"
#include "outputs.glsl"
layout(constant_id = 4) const int ALIGNED = 0;

const int kRound = 2048, kPieceVectors = 9;  // one more than needed, so that pieces start in different banks
#define COLUMNS (kRound / ROWS)
shared vec4 staged[kRound / kPiece * kPieceVectors];
shared float piece_sums[kRound / kPiece * (kMaxOutputs + 1)];

/// The row of the matrix that starts at word `row` is multiplied by this invocation and its neighbours; x[r] is
/// where row r of x starts. Column c is that of input order[c] if there is an order. All must call it.
float product(Words weight, Words tables, int row, Floats x, int x_row[kMaxRows], bool has_order, Ints order,
              int cols) {
  const int pairs = ROWS * OUTPUTS, pieces = COLUMNS / kPiece, lane = LANE % LANES, output_ = LANE / LANES;
  precise float total = 0.0;
  for (int first = 0; first < cols; first += COLUMNS) {
    [[unroll]] for (int r = 0; r < ROWS; ++r) {
      for (int i = LANE * 4; i < min(COLUMNS, (cols - first + 31) / 32 * 32); i += GROUP * 4) {
        const int k = first + i;
        vec4 four = vec4(0.0);
        if (ALIGNED != 0 && !has_order && k + 4 <= cols) {
          four = Vectors(uvec2(x)).at[(x_row[r] + k) / 4];
        } else {
          [[unroll]] for (int j = 0; j < 4; ++j)
            if (k + j < cols) four[j] = x.at[x_row[r] + (has_order ? order.at[k + j] : k + j)];
        }
        staged[(r * pieces + i / kPiece) * kPieceVectors + i % kPiece / 4] = four;
      }
    }
    barrier();
    const int here = min(pieces, (cols - first + kPiece - 1) / kPiece);
    for (int piece = lane; piece < here; piece += LANES) {
      const int k = first + piece * kPiece;
      const Piece w = open_piece(weight, tables, row, k);
      precise float sum[kMaxRows];
      [[unroll]] for (int r = 0; r < ROWS; ++r) sum[r] = 0.0;
      [[unroll]] for (int part = 0; part < 4; ++part) {
        float v[8];
        decode8(weight, w, part, cols - k, v);
        [[unroll]] for (int r = 0; r < ROWS; ++r) {
          const int at = (r * pieces + piece) * kPieceVectors + 2 * part;
          [[unroll]] for (int half_ = 0; half_ < 2; ++half_) {
            const vec4 four = staged[at + half_];
            [[unroll]] for (int i = 0; i < 4; ++i) sum[r] = fma(v[4 * half_ + i], four[i], sum[r]);
          }
        }
      }
      [[unroll]] for (int r = 0; r < ROWS; ++r) piece_sums[piece * (pairs + 1) + r * OUTPUTS + output_] = sum[r];
    }
    barrier();
    if (LANE < pairs)
      for (int piece = 0; piece < here; ++piece) total += piece_sums[piece * (pairs + 1) + LANE];
  }
  return total;
}

#endif

// out (+)= scale * (x W^T) + bias, in every format but f32, with x and W in fp16 and sums in f32: a workgroup of
// four subgroups computes 64 outputs of 16 * ROW_TILES rows, a subgroup 16 of them. With MATRIX_UNITS the device's
// cooperative matrices multiply, else 32 invocations that count as a subgroup.
//
// The order of the sums is the same for any number of rows, ROW_TILES and place in the batch: matrices of 16 x 16
// are added to the sums one after the other in rising columns; within one the device has an order of its own.
//
// Specialization constants: 0 is four times 2 SUBGROUP (32 without MATRIX_UNITS); 1 FORMAT, 3 ROW_TILES (1 to 4).
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#ifdef MATRIX_UNITS
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#pragma use_vulkan_memory_model
#endif
#include "formats.glsl"
layout(constant_id = 2) const int SUBGROUP = 32;
layout(constant_id = 3) const int ROW_TILES = 4;
#include "matmul_end.glsl"

const int kSide = 16, kMaxRowTiles = 4, kSubgroups = 4, kOutputs = kSubgroups * kSide;
const int kStride = kPiece + 8;  // halves from one row of a tile to the next
shared float16_t w_tile[kOutputs * kStride];              // [output][column]
shared float16_t x_tile[kMaxRowTiles * kSide * kStride];  // [row][column]
shared float out_tile[kSubgroups * kSide * kSide];        // of each subgroup, [row][output]

#ifdef MATRIX_UNITS
#define Sum coopmat<float, gl_ScopeSubgroup, kSide, kSide, gl_MatrixUseAccumulator>
#define ZERO Sum(0.0)

void add_product(inout Sum sum, int x, int w) {
  coopmat<float16_t, gl_ScopeSubgroup, kSide, kSide, gl_MatrixUseA> a;
  coopmat<float16_t, gl_ScopeSubgroup, kSide, kSide, gl_MatrixUseB> b;
  coopMatLoad(a, x_tile, x, kStride, gl_CooperativeMatrixLayoutRowMajor);
  coopMatLoad(b, w_tile, w, kStride, gl_CooperativeMatrixLayoutColumnMajor);
  sum = coopMatMulAdd(a, b, sum);
}
void store(Sum sum, int at) { coopMatStore(sum, out_tile, at, kSide, gl_CooperativeMatrixLayoutRowMajor); }
#else
const int kShare = kSide * kSide / 32;  // elements of an invocation, neighbours in a row
struct Sum { float at[kShare]; };
#define ZERO Sum(float[kShare](0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0))
int my_place() { return LANE % 32 * kShare; }

/// Adds the product of the tiles of x and W that start at `x` and `w`.
void add_product(inout Sum sum, int x, int w) {
  const int row = x + my_place() / kSide * kStride, output_ = w + my_place() % kSide * kStride;
  for (int k = 0; k < kSide; ++k) {
    [[unroll]] for (int i = 0; i < kShare; ++i) {
      precise const float value =
          fma(float(x_tile[row + k]), float(w_tile[output_ + i * kStride + k]), sum.at[i]);
      sum.at[i] = value;
    }
  }
}
void store(Sum sum, int at) {
  [[unroll]] for (int i = 0; i < kShare; ++i) out_tile[at + my_place() + i] = sum.at[i];
}
#endif

void main() {
  const int rows = kSide * ROW_TILES, first_row = int(gl_WorkGroupID.y) * rows;
  const int first_output = int(gl_WorkGroupID.x) * kOutputs;
#ifdef MATRIX_UNITS
  const int subgroup = int(gl_SubgroupID), lane = int(gl_SubgroupInvocationID);
#else
  const int subgroup = LANE / 32, lane = LANE % 32;
#endif
  const int x_pairs = (p.cols + kPiece - 1) / kPiece * kPiece / 2;
  Words x = Words(uvec2(p.x));
  Sum sums[kMaxRowTiles];
  [[unroll]] for (int t = 0; t < kMaxRowTiles; ++t) sums[t] = ZERO;
  for (int k = 0; k < p.cols; k += kPiece) {
    // Half a piece of one output at a time.
    for (int i = LANE; i < 2 * kOutputs; i += GROUP) {
      const int output_ = i % kOutputs, half_ = i / kOutputs;
      const Piece w =
          open_piece(p.weight, p.tables, min(first_output + output_, p.weight_rows - 1) * p.row_words, k);
      [[unroll]] for (int part = 0; part < 4; ++part) {
        if (part / 2 != half_) continue;
        float v[8];
        decode8(p.weight, w, part, p.cols - k, v);
        [[unroll]] for (int j = 0; j < 8; ++j) w_tile[output_ * kStride + 8 * part + j] = float16_t(v[j]);
      }
    }
    for (int i = LANE; i < rows * (kPiece / 2); i += GROUP) {
      const int r = i / (kPiece / 2), c = i % (kPiece / 2);
      const f16vec2 two = unpackFloat2x16(x.at[min(first_row + r, p.rows - 1) * x_pairs + k / 2 + c]);
      x_tile[r * kStride + 2 * c] = two.x;
      x_tile[r * kStride + 2 * c + 1] = two.y;
    }
    barrier();
    for (int step = 0; step < kPiece; step += kSide) {
      [[unroll]] for (int t = 0; t < kMaxRowTiles; ++t)
        if (t < ROW_TILES) add_product(sums[t], t * kSide * kStride + step, subgroup * kSide * kStride + step);
    }
    barrier();
  }
  [[unroll]] for (int t = 0; t < kMaxRowTiles; ++t) {
    if (t >= ROW_TILES) continue;
    store(sums[t], subgroup * kSide * kSide);
    barrier();
    for (int i = lane; i < kSide * kSide; i += SUBGROUP) {
      const int row = first_row + t * kSide + i / kSide;
      if (row < p.rows)
        put(out_tile[subgroup * kSide * kSide + i] * p.x_undo.at[row], row,
            first_output + subgroup * kSide + i % kSide);
    }
    barrier();
  }
}

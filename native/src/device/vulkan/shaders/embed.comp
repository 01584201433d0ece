// out[t] = factor * scale * weight[token_ids[t]], for the tokens whose row is in this part of the weight.
// 32 elements an invocation, rows in y.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "formats.glsl"
PARAMETERS(Embed);

void main() {
  const int t = int(gl_WorkGroupID.y), k = int(gl_GlobalInvocationID.x) * 32;
  const int row = p.token_ids.at[t] - p.first_row;
  if (k >= p.cols || row < 0 || row >= p.rows) return;
  const float scale = p.scale_kind == 0 ? 1.0 : p.scale.at[p.scale_kind == 1 ? 0 : row];
  const Piece w = open_piece(p.weight, p.tables, row * p.row_words, k);
  [[unroll]] for (int part = 0; part < 4; ++part) {
    float v[8];
    decode8(p.weight, w, part, p.cols - k, v);
    [[unroll]] for (int i = 0; i < 8; ++i) {
      const int at = k + 8 * part + i;
      if (at >= p.cols) continue;
      const int c = p.has_order != 0 ? p.order.at[at] : at;
      precise const float value = v[i] * scale;
      p.out_.at[t * p.out_stride + c] = value * p.factor;
    }
  }
}

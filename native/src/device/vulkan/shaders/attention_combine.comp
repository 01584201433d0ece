// Joins the splits that attention left in `partial`. One workgroup a query head (x) and row (y).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "split.glsl"
PARAMETERS(AttentionCombine);

void main() {
  const int head = int(gl_WorkGroupID.x), row = int(gl_WorkGroupID.y), size = p.head_dim + 2;
  const ivec2 range = splits_of(p.positions.at[row], p.window);
  const int count = range.y - range.x, first = (row * p.heads + head) * p.splits * size;
  for (int d = LANE; d < p.head_dim; d += GROUP) {
    Joined all = Joined(0.0, 0.0);
    precise float sum = 0.0;
    for (int i = 0; i < count; ++i) {
      const int at = first + i * size;
      Factors f;
      all = join(all, Joined(p.partial.at[at + p.head_dim], p.partial.at[at + p.head_dim + 1]), i == 0, f);
      sum = i == 0 ? p.partial.at[at + d] : fma(sum, f.before, p.partial.at[at + d] * f.next);
    }
    p.out_.at[row * p.out_stride + head * p.head_dim + d] = sum / all.total;
  }
}

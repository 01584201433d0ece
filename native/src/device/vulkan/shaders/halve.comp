// Activations as fp16 for matmul_half and matmul_matrix: each row times the power of two that takes its largest
// value to 2^14 or a little more, so that fp16 holds all that matters of it, and beside it what undoes that.
// Columns are padded to whole pieces of 32 by zeros; column c is input order[c] where there is an order. One
// workgroup a row.
//
// Specialization constants: GROUP must be a power of two.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "math.glsl"
#include "reduce.glsl"
PARAMETERS(Halve);

float value_at(int column) {
  if (column >= p.cols) return 0.0;
  return p.x.at[int(gl_WorkGroupID.y) * p.x_stride + (p.has_order != 0 ? p.order.at[column] : column)];
}

void main() {
  const int row = int(gl_WorkGroupID.y), pairs = (p.cols + 31) / 32 * 16;
  float top = 0.0;
  for (int c = LANE; c < p.cols; c += GROUP) {
    const float size = abs(value_at(c));
    if (is_finite(size)) top = max(top, size);
  }
  top = group_max(top);
  const int exponent = clamp(int(floatBitsToUint(top) >> 23) - 127, -112, 127);
  const float factor = power_of_two(min(14 - exponent, 126));
  for (int i = LANE; i < pairs; i += GROUP)
    p.out_.at[row * pairs + i] =
        packFloat2x16(f16vec2(float16_t(value_at(2 * i) * factor), float16_t(value_at(2 * i + 1) * factor)));
  if (LANE == 0) p.undo.at[row] = 1.0 / factor;
}

// Activations as blocks of dot.glsl: one invocation a block of 32 columns, rows in y. The scale is the largest
// magnitude / 127; a block with NaN or infinity gets the scale NaN, one of nearly zero the scale 0. Column c is
// input order[c] where there is an order.
//
// Specialization constant 1: ALIGNED as in product.glsl.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(constant_id = 1) const int ALIGNED = 0;
PARAMETERS(Quantise);

const float kSmallestTop = 1e-36;  // 127 / top overflows below

void main() {
  const int row = int(gl_WorkGroupID.y), block = int(gl_GlobalInvocationID.x);
  if (block * 32 >= p.cols) return;
  const int x = row * p.x_stride;
  vec4 values[8];
  uint top_bits = 0u;  // magnitudes are in the order of their bits, infinity and NaN above all numbers
  [[unroll]] for (int i = 0; i < 8; ++i) {
    const int k = 32 * block + 4 * i;
    if (ALIGNED != 0 && p.has_order == 0) {
      values[i] = Vectors(uvec2(p.x)).at[(x + k) / 4];
    } else {
      [[unroll]] for (int j = 0; j < 4; ++j)
        values[i][j] = p.x.at[x + (p.has_order != 0 ? p.order.at[k + j] : k + j)];
    }
    const uvec4 bits = floatBitsToUint(values[i]) & 0x7fffffffu;
    top_bits = max(top_bits, max(max(bits.x, bits.y), max(bits.z, bits.w)));
  }
  const float top = uintBitsToFloat(top_bits);
  float scale = 0.0, inverse = 0.0;
  const bool finite = is_finite(top);
  if (!finite) {
    scale = uintBitsToFloat(0x7fc00000u);
  } else if (top >= kSmallestTop) {
    scale = top / 127.0;
    inverse = 127.0 / top;
  }
  uint codes[8];
  int sums[2] = int[2](0, 0);
  [[unroll]] for (int i = 0; i < 8; ++i) {
    uint four = 0u;
    [[unroll]] for (int j = 0; j < 4; ++j) {
      const int code = finite ? clamp(int(roundEven(values[i][j] * inverse)), -127, 127) : 0;
      sums[i / 4] += code;
      four |= (uint(code) & 255u) << 8 * j;
    }
    codes[i] = four;
  }
  const int to = 3 * (row * p.out_stride + block);  // quads
  p.out_.at[to] = uvec4(codes[0], codes[1], codes[2], codes[3]);
  p.out_.at[to + 1] = uvec4(codes[4], codes[5], codes[6], codes[7]);
  p.out_.at[to + 2] =
      uvec4(floatBitsToUint(scale), uint(sums[0]) & 0xffffu | uint(sums[1]) << 16, 0u, 0u);
}

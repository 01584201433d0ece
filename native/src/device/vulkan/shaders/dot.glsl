// Products of weights and activations in whole numbers. Activations are blocks of 32 values as signed bytes times
// a scale (quantise.comp); the codes of a weight become signed bytes too, for all formats that have codes, and
// four products are one instruction.
//
// A block of activations is three quads: bytes 0 .. 15, bytes 16 .. 31, and (scale, sums of the first and of the
// second 16 bytes as two int16, 0, 0).
#ifndef DOT_GLSL
#define DOT_GLSL
#extension GL_EXT_spirv_intrinsics : require
#include "formats.glsl"

const int kBlockQuads = 3;

// OpSDot of SPV_KHR_integer_dot_product; `format` 0 is four signed bytes in a word.
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6019, 6018], id = 4450)
int signed_dot(uint a, uint b, spirv_literal int format);

/// The byte that a four-bit code stands for: of IQ4_NL, else twice that of E2M1. Without branches, which some
/// drivers multiply when they unroll.
uint number_for_code(uint code) {
  const bool iq4 = FORMAT == IQ4_NL || FORMAT == IQ4_XS, second = (code & 4u) != 0u;
  const uvec4 table = mix(uvec4(0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu),
                          uvec4(0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u), bvec4(iq4));
  const uint four = mix(mix(table.x, table.y, second), mix(table.z, table.w, second), (code & 8u) != 0u);
  return four >> 8u * (code & 3u) & 255u;
}

/// Codes that stand for numbers of a table become those numbers.
void numbers_for_codes(inout Piece p) {
  if (FORMAT == IQ4_NL || FORMAT == IQ4_XS || FORMAT == MXFP4 || FORMAT == NVFP4) {
    [[unroll]] for (int i = 0; i < 8; ++i) {
      const uint c = p.codes[i];
      p.codes[i] = number_for_code(c) | number_for_code(c >> 8) << 8 | number_for_code(c >> 16) << 16 |
                   number_for_code(c >> 24) << 24;
    }
  }
}

/// The product of 32 weights, whose codes are numbers, with a block of activations.
float piece_product(Piece w, uvec4 first, uvec4 second, uvec2 rest) {
  int dots[2] = int[2](0, 0);
  [[unroll]] for (int i = 0; i < 4; ++i) {
    dots[0] += signed_dot(w.codes[i], first[i], 0);
    dots[1] += signed_dot(w.codes[4 + i], second[i], 0);
  }
  const int sums[2] = int[2](bitfieldExtract(int(rest.y), 0, 16), int(rest.y) >> 16);
  precise float value;
  if (has_two_scales()) {
    value = w.scale[0] * float(dots[0] - w.zero * sums[0]) + w.scale[1] * float(dots[1] - w.zero * sums[1]);
    if (has_low()) value -= w.low[0] * float(sums[0]) + w.low[1] * float(sums[1]);
  } else {
    value = w.scale[0] * float(dots[0] + dots[1] - w.zero * (sums[0] + sums[1]));
    if (has_low()) value -= w.low[0] * float(sums[0] + sums[1]);
  }
  value *= uintBitsToFloat(rest.x);
  return value;
}

#endif

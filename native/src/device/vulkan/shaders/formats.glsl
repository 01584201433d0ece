// Weight formats, decoded from the bytes of their files. A row starts at a word; its blocks follow each other
// without gaps, in the layouts that base/formats.cc describes, so a block may start at any byte. Words are
// little-endian. A row may be read up to 32 words beyond its end.
//
// open_piece() loads 32 elements, each byte once, into codes and scales, or leaves it to decode8() where an
// element is a number of its own. Both must be called with constants for `part`, so that arrays become
// registers. Values are those of base/formats.cc to the last bit.
//
// A new format: its number, a branch in open_piece() and, where its codes are not plain, in decode8().
#ifndef FORMATS_GLSL
#define FORMATS_GLSL
#include "common.glsl"

layout(constant_id = 1) const int FORMAT = 0;  // enum Format of base/formats.h

const int F32 = 0, F16 = 1, BF16 = 2, Q4_0 = 3, Q4_1 = 4, Q5_0 = 5, Q5_1 = 6, Q8_0 = 7, Q4_K = 8, Q5_K = 9,
          Q6_K = 10, IQ4_NL = 11, MXFP4 = 12, NVFP4 = 13, Q2_K = 14, Q3_K = 15, IQ4_XS = 16, TQ1_0 = 17,
          TQ2_0 = 18, IQ2_XXS = 19, IQ2_XS = 20, IQ2_S = 21, IQ3_XXS = 22, IQ3_S = 23, IQ1_S = 24, IQ1_M = 25,
          Q1_0 = 26, F8_E4M3 = 27, F8_E4M3_64 = 28, Q4_Z = 29;

/// Bytes [byte, byte + 4) of a row, at any alignment.
uint load32(Words w, int row, int byte) {
  const int at = row + (byte >> 2), shift = (byte & 3) * 8;
  const uint low = w.at[at];
  return shift == 0 ? low : low >> shift | w.at[at + 1] << (32 - shift);
}
uint load8(Words w, int row, int byte) { return bitfieldExtract(w.at[row + (byte >> 2)], (byte & 3) * 8, 8); }
/// Two bytes from an even one on.
uint load16(Words w, int row, int byte) { return bitfieldExtract(w.at[row + (byte >> 2)], (byte & 2) * 8, 16); }

/// 16 bytes from any one on.
uvec4 load128(Words w, int row, int byte) {
  const int at = row + (byte >> 2), shift = (byte & 3) * 8;
  const uvec4 low = uvec4(w.at[at], w.at[at + 1], w.at[at + 2], w.at[at + 3]);
  if (shift == 0) return low;
  return low >> shift | uvec4(low.yzw, w.at[at + 4]) << (32 - shift);
}
/// 32 bytes.
void load256(Words w, int row, int byte, out uint bytes[8]) {
  const uvec4 low = load128(w, row, byte), high = load128(w, row, byte + 16);
  [[unroll]] for (int i = 0; i < 4; ++i) {
    bytes[i] = low[i];
    bytes[4 + i] = high[i];
  }
}

float half_value(uint bits) {
  const uint rest = bits & 0x7fffu;
  float value;
  if (rest < 0x400u) {
    value = float(rest) * 5.9604644775390625e-8;  // zero and subnormal: multiples of 2^-24
  } else {
    value = uintBitsToFloat(rest < 0x7c00u ? (rest << 13) + (112u << 23) : rest << 13 | 0x7f800000u);
  }
  return (bits & 0x8000u) != 0u ? -value : value;
}
float load_half(Words w, int row, int byte) { return half_value(load16(w, row, byte)); }

float e4m3_value(uint bits) {
  const uint rest = bits & 0x7fu;
  float value = rest < 8u ? float(rest) * 0.001953125 : uintBitsToFloat((rest << 20) + (120u << 23));
  if (rest == 0x7fu) value = uintBitsToFloat(0x7fc00000u);
  return (bits & 0x80u) != 0u ? -value : value;
}

/// Bits 0 .. 3 as the lowest bits of four bytes.
uint spread1(uint bits) { return (bits & 15u) * 0x00204081u & 0x01010101u; }
/// Four fields of two or three bits as four bytes.
uint spread2(uint bits) {
  return bits & 3u | (bits & 0xcu) << 6 | (bits & 0x30u) << 12 | (bits & 0xc0u) << 18;
}
uint spread3(uint bits) {
  return bits & 7u | (bits & 0x38u) << 5 | (bits & 0x1c0u) << 10 | (bits & 0xe00u) << 15;
}
/// Four bytes, none of them zero, of which those with a bit in `signs` become negative.
uint with_signs(uint bytes, uint signs) {
  const uint one = spread1(signs);
  return (bytes ^ one * 0xffu) + one;
}
/// Seven signs are stored; the eighth makes their number even.
uint eight_signs(uint seven) {
  seven &= 127u;
  return seven | (uint(bitCount(seven)) & 1u) << 7;
}
/// Four values of a grid point: 8, 25, 43 (IQ2); 4, 12 .. 52, 62 (IQ3_XXS); 1, 3 .. 15 (IQ3_S).
uint iq2_levels(uint point) {
  const uint code = spread2(point);
  return 0x08080808u + (code & 0x01010101u) * 17u + (code >> 1 & 0x01010101u) * 35u;
}
uint iq3_levels(uint point) {
  const uint code = spread3(point);
  if (FORMAT == IQ3_S) return code * 2u + 0x01010101u;
  return code * 8u + 0x04040404u + (code & code >> 1 & code >> 2 & 0x01010101u) * 2u;
}
/// Point i of a grid that starts at `grid` (parameters.h).
uint grid_point(Words tables, int grid, uint i) {
  return bitfieldExtract(tables.at[(grid + int(i)) >> 1], int(i & 1u) * 16, 16);
}
/// Base-3 digit n of four bytes, which hold them as a fraction of 256.
uint ternary(uint bytes, uint power) {  // power: 3^n
  const uint even = ((bytes & 0x00ff00ffu) * power & 0x00ff00ffu) * 3u >> 8 & 0x00ff00ffu;
  const uint odd = ((bytes >> 8 & 0x00ff00ffu) * power & 0x00ff00ffu) * 3u >> 8 & 0x00ff00ffu;
  return even | odd << 8;
}

/// What the four-bit codes of IQ4_NL stand for.
float iq4_value(int code) {
  const uint four = (code & 8) == 0 ? ((code & 4) == 0 ? 0xbfad9881u : 0xf6eaddcfu)
                                    : ((code & 4) == 0 ? 0x26190d01u : 0x71594535u);
  return float(bitfieldExtract(int(four), (code & 3) * 8, 8));
}
/// Twice what those of E2M1 stand for.
float e2m1_doubled(int code) {
  const float size = float(bitfieldExtract(0xc8643210u, (code & 7) * 4, 4));
  return (code & 8) != 0 ? -size : size;
}

/// Scale and minimum of group j of 32 in a block of Q4_K and Q5_K, packed into the three words `s`.
ivec2 scale_min(uvec3 s, int j) {
  const int shift = (j & 3) * 8;
  const uint a = s.x >> shift, b = s.y >> shift, both = s.z >> shift;
  if (j < 4) return ivec2(a & 63u, b & 63u);
  return ivec2(both & 15u | (a & 0xc0u) >> 2, both >> 4 & 15u | (b & 0xc0u) >> 2);
}

const int kPiece = 32;

/// kPiece elements. Of most formats element i is scale[i / 16] * (value of code i - zero) - low[i / 16], where
/// code i is byte i.
struct Piece {
  uint codes[8];
  float scale[2], low[2];
  int zero;
  int at;  // the piece's first word, in formats whose elements are numbers
};

/// Whether `low` is used; whether scale and low of the two halves differ.
bool has_low() {
  return FORMAT == Q4_1 || FORMAT == Q5_1 || FORMAT == Q2_K || FORMAT == Q4_K || FORMAT == Q5_K;
}
bool has_two_scales() {
  return FORMAT == Q6_K || FORMAT == NVFP4 || FORMAT == Q2_K || FORMAT == Q3_K || FORMAT == IQ2_XS ||
         FORMAT == IQ2_S || FORMAT == IQ1_M;
}

void set_codes(inout Piece p, int first, uvec4 codes) {
  [[unroll]] for (int i = 0; i < 4; ++i) p.codes[first + i] = codes[i];
}
/// 16 bytes of two four-bit codes; element j + 16 is the high half of byte j.
void set_nibbles(inout Piece p, uvec4 bytes) {
  set_codes(p, 0, bytes & 0x0f0f0f0fu);
  set_codes(p, 4, bytes >> 4 & 0x0f0f0f0fu);
}
void set_scale(inout Piece p, float scale) {
  p.scale[0] = scale;
  p.scale[1] = scale;
}
/// d times 2 code + 1.
void set_odd_scales(inout Piece p, float d, uint first, uint second) {
  p.scale[0] = d * float(2u * first + 1u);
  p.scale[1] = d * float(2u * second + 1u);
}

/// Elements k .. k + 31 of the row that starts at word `row`; k is a multiple of 32.
Piece open_piece(Words w, Words tables, int row, int k) {
  Piece p;
  [[unroll]] for (int i = 0; i < 8; ++i) p.codes[i] = 0u;
  set_scale(p, 1.0);
  p.low[0] = 0.0;
  p.low[1] = 0.0;
  p.zero = 0;
  p.at = 0;
  const int group = k % 256 / 32;  // in formats of 256 elements a block
  if (FORMAT == F32) {
    p.at = row + k;
  } else if (FORMAT == F16 || FORMAT == BF16) {
    p.at = row + k / 2;
  } else if (FORMAT == F8_E4M3) {
    [[unroll]] for (int i = 0; i < 8; ++i) p.codes[i] = w.at[row + k / 4 + i];
  } else if (FORMAT == F8_E4M3_64) {
    const int at = row + k / 64 * 17;
    set_scale(p, uintBitsToFloat(w.at[at]));
    [[unroll]] for (int i = 0; i < 8; ++i) p.codes[i] = w.at[at + 1 + k % 64 / 4 + i];
  } else if (FORMAT == Q4_0 || FORMAT == IQ4_NL) {
    const int block = k / 32 * 18;
    set_scale(p, load_half(w, row, block));
    set_nibbles(p, load128(w, row, block + 2));
    if (FORMAT == Q4_0) p.zero = 8;
  } else if (FORMAT == Q4_1) {
    const int at = row + k / 32 * 5;
    const uint dm = w.at[at];
    set_scale(p, half_value(dm & 0xffffu));
    p.low[0] = -half_value(dm >> 16);
    p.low[1] = p.low[0];
    set_nibbles(p, uvec4(w.at[at + 1], w.at[at + 2], w.at[at + 3], w.at[at + 4]));
  } else if (FORMAT == Q5_0 || FORMAT == Q5_1) {
    const int block = k / 32 * (FORMAT == Q5_0 ? 22 : 24), high_at = block + (FORMAT == Q5_0 ? 2 : 4);
    set_scale(p, load_half(w, row, block));
    if (FORMAT == Q5_0) {
      p.zero = 16;
    } else {
      p.low[0] = -load_half(w, row, block + 2);
      p.low[1] = p.low[0];
    }
    const uint high = load32(w, row, high_at);
    set_nibbles(p, load128(w, row, high_at + 4));
    [[unroll]] for (int i = 0; i < 8; ++i) p.codes[i] |= spread1(high >> 4 * i) << 4;
  } else if (FORMAT == Q8_0) {
    const int block = k / 32 * 34;
    set_scale(p, load_half(w, row, block));
    load256(w, row, block + 2, p.codes);
  } else if (FORMAT == Q4_K || FORMAT == Q5_K) {
    const int at = row + k / 256 * (FORMAT == Q4_K ? 36 : 44), qs = at + (FORMAT == Q4_K ? 4 : 12);
    const uint dm = w.at[at];
    const ivec2 sm = scale_min(uvec3(w.at[at + 1], w.at[at + 2], w.at[at + 3]), group);
    set_scale(p, half_value(dm & 0xffffu) * float(sm.x));
    p.low[0] = half_value(dm >> 16) * float(sm.y);
    p.low[1] = p.low[0];
    [[unroll]] for (int i = 0; i < 8; ++i) {
      p.codes[i] = w.at[qs + 8 * (group / 2) + i] >> (group & 1) * 4 & 0x0f0f0f0fu;
      if (FORMAT == Q5_K) p.codes[i] |= (w.at[at + 4 + i] >> group & 0x01010101u) << 4;
    }
  } else if (FORMAT == Q6_K) {
    const int block = k / 256 * 210, part = group / 4, quarter = group & 3;
    uint high[8];
    load256(w, row, block + 64 * part + 32 * (quarter & 1), p.codes);
    load256(w, row, block + 128 + 32 * part, high);
    [[unroll]] for (int i = 0; i < 8; ++i)
      p.codes[i] = p.codes[i] >> (quarter < 2 ? 0 : 4) & 0x0f0f0f0fu | (high[i] >> 2 * quarter & 0x03030303u) << 4;
    const float d = load_half(w, row, block + 208);
    const int scales = int(load16(w, row, block + 192 + 2 * group));
    p.scale[0] = d * float(bitfieldExtract(scales, 0, 8));
    p.scale[1] = d * float(bitfieldExtract(scales, 8, 8));
    p.zero = 32;
  } else if (FORMAT == MXFP4) {
    const int block = k / 32 * 17;
    const uint e = load8(w, row, block);
    // Half the scale, 2^(e - 128); the smallest two are subnormal.
    set_scale(p, uintBitsToFloat(e < 2u ? 0x200000u << e : (e - 1u) << 23));
    set_nibbles(p, load128(w, row, block + 1));
  } else if (FORMAT == NVFP4) {
    const int at = row + k / 64 * 9, sub = k % 64 / 16, qs = at + 1 + 2 * sub;
    const uint scales = w.at[at] >> 8 * sub;
    [[unroll]] for (int i = 0; i < 2; ++i) {
      const uint code = scales >> 8 * i & 0x7fu;
      p.scale[i] = code == 0x7fu ? 0.0 : 0.5 * e4m3_value(code);
      const uint first = w.at[qs + 2 * i], second = w.at[qs + 2 * i + 1];
      set_codes(p, 4 * i, uvec4(first, second, first >> 4, second >> 4) & 0x0f0f0f0fu);
    }
  } else if (FORMAT == Q2_K) {
    const int at = row + k / 256 * 21, qs = at + 4 + 8 * (group / 4);
    const uint dm = w.at[at + 20], scales = w.at[at + group / 2] >> (group & 1) * 16;
    [[unroll]] for (int i = 0; i < 2; ++i) {
      p.scale[i] = half_value(dm & 0xffffu) * float(scales >> 8 * i & 15u);
      p.low[i] = half_value(dm >> 16) * float(scales >> (8 * i + 4) & 15u);
    }
    [[unroll]] for (int i = 0; i < 8; ++i) p.codes[i] = w.at[qs + i] >> 2 * (group & 3) & 0x03030303u;
  } else if (FORMAT == Q3_K) {
    const int block = k / 256 * 110;
    uint mask[8];
    load256(w, row, block, mask);
    load256(w, row, block + 32 + 32 * (group / 4), p.codes);
    [[unroll]] for (int i = 0; i < 8; ++i)
      p.codes[i] = p.codes[i] >> 2 * (group & 3) & 0x03030303u | (mask[i] >> group & 0x01010101u) << 2;
    const float d = load_half(w, row, block + 108);
    // Scale j has four bits in byte j % 8 and two, at 2 (j / 4), in byte 8 + j % 4.
    const uint low = load16(w, row, block + 96 + (2 * group & 7)) >> (group < 4 ? 0 : 4);
    const uint high = load16(w, row, block + 104 + (2 * group & 3)) >> 2 * (group / 2);
    [[unroll]] for (int i = 0; i < 2; ++i)
      p.scale[i] = d * float(int(low >> 8 * i & 15u | (high >> 8 * i & 3u) << 4) - 32);
    p.zero = 4;
  } else if (FORMAT == IQ4_XS) {
    const int at = row + k / 256 * 34, qs = at + 2 + 4 * group;
    const uint low = w.at[at + 1] >> 4 * group & 15u, high = w.at[at] >> (16 + 2 * group) & 3u;
    set_scale(p, half_value(w.at[at] & 0xffffu) * float(int(low | high << 4) - 32));
    set_nibbles(p, uvec4(w.at[qs], w.at[qs + 1], w.at[qs + 2], w.at[qs + 3]));
  } else if (FORMAT == TQ1_0) {
    const int block = k / 256 * 54;
    set_scale(p, load_half(w, row, block + 52));
    p.zero = 1;
    const uint powers[5] = uint[5](1u, 3u, 9u, 27u, 81u);
    if (group < 5) {  // digit `group` of 32 bytes
      load256(w, row, block, p.codes);
      [[unroll]] for (int i = 0; i < 8; ++i) p.codes[i] = ternary(p.codes[i], powers[group]);
    } else {  // two digits of 16 bytes, at last one and four of 4 bytes
      const uvec4 bytes = load128(w, row, block + 32);
      const uint last = load32(w, row, block + 48);
      const int n = 2 * (group - 5);
      [[unroll]] for (int i = 0; i < 4; ++i) {
        p.codes[i] = ternary(bytes[i], powers[n]);
        p.codes[4 + i] = group == 7 ? ternary(last, powers[i]) : ternary(bytes[i], powers[min(n + 1, 4)]);
      }
    }
  } else if (FORMAT == TQ2_0) {
    const int block = k / 256 * 66;
    set_scale(p, load_half(w, row, block + 64));
    p.zero = 1;
    load256(w, row, block + 32 * (group / 4), p.codes);
    [[unroll]] for (int i = 0; i < 8; ++i) p.codes[i] = p.codes[i] >> 2 * (group & 3) & 0x03030303u;
  } else if (FORMAT == IQ2_XXS) {
    const int block = k / 256 * 66;
    const uint points = load32(w, row, block + 2 + 8 * group), rest = load32(w, row, block + 6 + 8 * group);
    set_odd_scales(p, 0.125 * load_half(w, row, block), rest >> 28, rest >> 28);
    [[unroll]] for (int i = 0; i < 4; ++i) {
      const uint point = grid_point(tables, kGridIq2Xxs, points >> 8 * i & 255u);
      const uint signs = eight_signs(rest >> 7 * i);
      p.codes[2 * i] = with_signs(iq2_levels(point), signs);
      p.codes[2 * i + 1] = with_signs(iq2_levels(point >> 8), signs >> 4);
    }
  } else if (FORMAT == IQ2_XS) {
    const int block = k / 256 * 74;
    const uint scales = load8(w, row, block + 66 + group);
    set_odd_scales(p, 0.125 * load_half(w, row, block), scales & 15u, scales >> 4);
    [[unroll]] for (int i = 0; i < 4; ++i) {
      const uint code = load16(w, row, block + 2 + 8 * group + 2 * i);
      const uint point = grid_point(tables, kGridIq2Xs, code & 511u), signs = eight_signs(code >> 9);
      p.codes[2 * i] = with_signs(iq2_levels(point), signs);
      p.codes[2 * i + 1] = with_signs(iq2_levels(point >> 8), signs >> 4);
    }
  } else if (FORMAT == IQ2_S) {
    const int block = k / 256 * 82;
    const uint scales = load8(w, row, block + 74 + group), high = load8(w, row, block + 66 + group);
    const uint points = load32(w, row, block + 2 + 4 * group), signs = load32(w, row, block + 34 + 4 * group);
    set_odd_scales(p, 0.125 * load_half(w, row, block), scales & 15u, scales >> 4);
    [[unroll]] for (int i = 0; i < 4; ++i) {
      const uint point = grid_point(tables, kGridIq2S, points >> 8 * i & 255u | (high >> 2 * i & 3u) << 8);
      p.codes[2 * i] = with_signs(iq2_levels(point), signs >> 8 * i);
      p.codes[2 * i + 1] = with_signs(iq2_levels(point >> 8), signs >> (8 * i + 4));
    }
  } else if (FORMAT == IQ3_XXS) {
    const int block = k / 256 * 98;
    const uint rest = load32(w, row, block + 66 + 4 * group);
    set_odd_scales(p, 0.25 * load_half(w, row, block), rest >> 28, rest >> 28);
    [[unroll]] for (int i = 0; i < 8; ++i) {
      const uint code = load32(w, row, block + 2 + 8 * group + (i & 4)) >> 8 * (i & 3) & 255u;
      const uint signs = eight_signs(rest >> 7 * (i / 2)) >> 4 * (i & 1);
      p.codes[i] = with_signs(iq3_levels(grid_point(tables, kGridIq3Xxs, code)), signs);
    }
  } else if (FORMAT == IQ3_S) {
    const int block = k / 256 * 110;
    const uint scale = load8(w, row, block + 106 + group / 2) >> 4 * (group & 1) & 15u;
    const uint high = load8(w, row, block + 66 + group), signs = load32(w, row, block + 74 + 4 * group);
    set_odd_scales(p, load_half(w, row, block), scale, scale);
    [[unroll]] for (int i = 0; i < 8; ++i) {
      const uint code = load32(w, row, block + 2 + 8 * group + (i & 4)) >> 8 * (i & 3) & 255u;
      const uint point = grid_point(tables, kGridIq3S, code | (high >> i & 1u) << 8);
      p.codes[i] = with_signs(iq3_levels(point), signs >> 4 * i);
    }
  } else if (FORMAT == IQ1_S) {
    const int block = k / 256 * 50;
    const uint points = load32(w, row, block + 2 + 4 * group), high = load16(w, row, block + 34 + 2 * group);
    set_odd_scales(p, 0.125 * load_half(w, row, block), high >> 12 & 7u, high >> 12 & 7u);
    p.zero = high >> 15 != 0u ? 9 : 7;  // eighths of the grid's -1, 0, 1, shifted by one eighth
    [[unroll]] for (int i = 0; i < 4; ++i) {
      const uint point = grid_point(tables, kGridIq1, points >> 8 * i & 255u | (high >> 3 * i & 7u) << 8);
      p.codes[2 * i] = spread2(point) * 8u;
      p.codes[2 * i + 1] = spread2(point >> 8) * 8u;
    }
  } else if (FORMAT == IQ1_M) {
    const int at = row + k / 256 * 14;
    const uvec2 s = uvec2(w.at[at + 12], w.at[at + 13]);  // 4 x (4 x 3 bits, a quarter of d)
    const uint d = s.x >> 12 & 15u | s.x >> 24 & 0xf0u | s.y >> 4 & 0xf00u | s.y >> 16 & 0xf000u;
    const uint scales = (group < 4 ? s.x : s.y) >> ((group & 2) * 8 + (group & 1) * 6);
    set_odd_scales(p, 0.125 * half_value(d), scales & 7u, scales >> 3 & 7u);
    p.zero = 9;
    const uint points = w.at[at + group], high = w.at[at + 8 + group / 2] >> (group & 1) * 16;
    [[unroll]] for (int i = 0; i < 4; ++i) {
      const uint more = high >> 4 * i & 15u, shift = more < 8u ? 0x02020202u : 0u;
      const uint point = grid_point(tables, kGridIq1, points >> 8 * i & 255u | (more & 7u) << 8);
      p.codes[2 * i] = spread2(point) * 8u + shift;
      p.codes[2 * i + 1] = spread2(point >> 8) * 8u + shift;
    }
  } else if (FORMAT == Q1_0) {
    const int block = k / 128 * 18;
    set_scale(p, load_half(w, row, block));
    const uint bits = load32(w, row, block + 2 + k % 128 / 8);
    [[unroll]] for (int i = 0; i < 8; ++i) p.codes[i] = ~(spread1(bits >> 4 * i) * 0xfeu);  // 1 or -1
  } else if (FORMAT == Q4_Z) {
    const int block = k / 32 * 21;
    set_scale(p, uintBitsToFloat(load32(w, row, block)));
    p.zero = int(load8(w, row, block + 4));
    set_nibbles(p, load128(w, row, block + 5));
  }
  return p;
}

/// Elements 8 part .. 8 part + 7 of a piece; those from `left` elements into the piece on, beyond the end of the
/// row, are zero.
void decode8(Words w, Piece p, int part, int left, out precise float v[8]) {
  if (FORMAT == F32) {
    [[unroll]] for (int i = 0; i < 8; ++i) v[i] = uintBitsToFloat(w.at[p.at + 8 * part + i]);
  } else if (FORMAT == F16 || FORMAT == BF16) {
    [[unroll]] for (int i = 0; i < 4; ++i) {
      const uint pair = w.at[p.at + 4 * part + i];
      v[2 * i] = FORMAT == F16 ? half_value(pair & 0xffffu) : uintBitsToFloat(pair << 16);
      v[2 * i + 1] = FORMAT == F16 ? half_value(pair >> 16) : uintBitsToFloat(pair & 0xffff0000u);
    }
  } else {
    const bool is_signed = FORMAT == Q8_0 || FORMAT == Q1_0 || FORMAT == IQ2_XXS || FORMAT == IQ2_XS ||
                           FORMAT == IQ2_S || FORMAT == IQ3_XXS || FORMAT == IQ3_S;
    [[unroll]] for (int i = 0; i < 8; ++i) {
      const uint four = p.codes[2 * part + i / 4];
      const int shift = (i & 3) * 8, code = int(bitfieldExtract(four, shift, 8));
      const float scale = p.scale[part / 2];
      if (is_signed) {
        v[i] = scale * float(bitfieldExtract(int(four), shift, 8));
      } else if (FORMAT == IQ4_NL || FORMAT == IQ4_XS) {
        v[i] = scale * iq4_value(code);
      } else if (FORMAT == MXFP4 || FORMAT == NVFP4) {
        v[i] = scale * e2m1_doubled(code);
      } else if (FORMAT == F8_E4M3) {
        v[i] = e4m3_value(uint(code));
      } else if (FORMAT == F8_E4M3_64) {
        v[i] = e4m3_value(uint(code)) * scale;
      } else if (has_low()) {
        v[i] = scale * float(code) - p.low[part / 2];
      } else {
        v[i] = scale * float(code - p.zero);
      }
    }
  }
  if (FORMAT == F32 || FORMAT == F16 || FORMAT == BF16 || FORMAT == F8_E4M3) {
    [[unroll]] for (int i = 0; i < 8; ++i)
      if (8 * part + i >= left) v[i] = 0.0;
  }
}

#endif

// Weight formats, decoded from the bytes of their files. A row starts at a word; its blocks follow each other
// without gaps, in the layouts that base/formats.cc describes, so a block may start at any byte. Words are
// little-endian. A row may be read up to 8 words beyond its end.
//
// A new format: its number, a branch in decode8() and a line in vulkan/weights.cc.
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
uint load16(Words w, int row, int byte) { return load8(w, row, byte) | load8(w, row, byte + 1) << 8; }

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

/// Byte i of eight bytes in two words.
int byte_of(uvec2 bytes, int i) { return int(bitfieldExtract(i < 4 ? bytes.x : bytes.y, (i & 3) * 8, 8)); }

/// The four-bit codes of elements k .. k + 7 of a block of 32 whose 16 bytes start at `qs`; element j + 16 is
/// the high half of byte j.
uvec2 nibbles32(Words w, int row, int qs, int k) {
  const int at = qs + (k & 8), shift = (k & 16) == 0 ? 0 : 4;
  return uvec2(load32(w, row, at) >> shift, load32(w, row, at + 4) >> shift) & 0x0f0f0f0fu;
}

/// Scale and minimum of group j of 32 in a block of Q4_K and Q5_K, of which `s` is the byte of the packed ones.
ivec2 scale_min(Words w, int row, int s, int j) {
  if (j < 4) return ivec2(load8(w, row, s + j) & 63u, load8(w, row, s + j + 4) & 63u);
  const uint both = load8(w, row, s + j + 4);
  return ivec2((both & 15u) | load8(w, row, s + j - 4) >> 6 << 4, both >> 4 | load8(w, row, s + j) >> 6 << 4);
}

/// What the four-bit codes of IQ4_NL stand for, four in a word.
const uint kIq4Words[4] = uint[4](0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);
float iq4_value(int code) { return float(bitfieldExtract(int(kIq4Words[code >> 2]), (code & 3) * 8, 8)); }
/// Twice what those of E2M1 stand for.
float e2m1_doubled(int code) {
  const float size = float(bitfieldExtract(0xc8643210u, (code & 7) * 4, 4));
  return (code & 8) != 0 ? -size : size;
}

/// Elements k .. k + 7 of the row that starts at word `row`; k is a multiple of 8. Elements beyond the end of
/// the row are undefined.
void decode8(Words w, Words tables, int row, int k, out float v[8]) {
  if (FORMAT == F32) {
    [[unroll]] for (int i = 0; i < 8; ++i) v[i] = uintBitsToFloat(w.at[row + k + i]);
  } else if (FORMAT == F16) {
    [[unroll]] for (int i = 0; i < 4; ++i) {
      const uint pair = w.at[row + k / 2 + i];
      v[2 * i] = half_value(pair & 0xffffu);
      v[2 * i + 1] = half_value(pair >> 16);
    }
  } else if (FORMAT == BF16) {
    [[unroll]] for (int i = 0; i < 4; ++i) {
      const uint pair = w.at[row + k / 2 + i];
      v[2 * i] = uintBitsToFloat(pair << 16);
      v[2 * i + 1] = uintBitsToFloat(pair & 0xffff0000u);
    }
  } else if (FORMAT == Q4_0 || FORMAT == IQ4_NL) {
    const int block = k / 32 * 18;
    const float d = load_half(w, row, block);
    const uvec2 codes = nibbles32(w, row, block + 2, k & 31);
    [[unroll]] for (int i = 0; i < 8; ++i) {
      const int code = byte_of(codes, i);
      v[i] = d * (FORMAT == Q4_0 ? float(code - 8) : iq4_value(code));
    }
  } else if (FORMAT == Q4_1) {
    const int block = k / 32 * 20;
    const float d = load_half(w, row, block), m = load_half(w, row, block + 2);
    const uvec2 codes = nibbles32(w, row, block + 4, k & 31);
    [[unroll]] for (int i = 0; i < 8; ++i) v[i] = d * float(byte_of(codes, i)) + m;
  } else if (FORMAT == Q5_0 || FORMAT == Q5_1) {
    const int block = k / 32 * (FORMAT == Q5_0 ? 22 : 24), high_at = block + (FORMAT == Q5_0 ? 2 : 4);
    const float d = load_half(w, row, block);
    const float m = FORMAT == Q5_0 ? 0.0 : load_half(w, row, block + 2);
    const uint high = load32(w, row, high_at) >> (k & 31);
    const uvec2 codes = nibbles32(w, row, high_at + 4, k & 31);
    [[unroll]] for (int i = 0; i < 8; ++i) {
      const int code = byte_of(codes, i) | int(high >> i & 1u) << 4;
      v[i] = FORMAT == Q5_0 ? d * float(code - 16) : d * float(code) + m;
    }
  } else if (FORMAT == Q8_0) {
    const int block = k / 32 * 34, at = block + 2 + (k & 31);
    const float d = load_half(w, row, block);
    const ivec2 codes = ivec2(load32(w, row, at), load32(w, row, at + 4));
    [[unroll]] for (int i = 0; i < 8; ++i)
      v[i] = d * float(bitfieldExtract(i < 4 ? codes.x : codes.y, (i & 3) * 8, 8));
  } else if (FORMAT == Q4_K || FORMAT == Q5_K) {
    const int block = k / 256 * (FORMAT == Q4_K ? 144 : 176), qs = block + (FORMAT == Q4_K ? 16 : 48);
    const int group = k % 256 / 32, at = qs + 32 * (group / 2) + (k & 31), shift = (group & 1) * 4;
    const ivec2 sm = scale_min(w, row, block + 4, group);
    const float scale = load_half(w, row, block) * float(sm.x), low = load_half(w, row, block + 2) * float(sm.y);
    uvec2 codes = uvec2(load32(w, row, at) >> shift, load32(w, row, at + 4) >> shift) & 0x0f0f0f0fu;
    if (FORMAT == Q5_K) {
      const int high = block + 16 + (k & 31);
      codes |= (uvec2(load32(w, row, high) >> group, load32(w, row, high + 4) >> group) & 0x01010101u) << 4;
    }
    [[unroll]] for (int i = 0; i < 8; ++i) v[i] = scale * float(byte_of(codes, i)) - low;
  } else if (FORMAT == Q6_K) {
    const int block = k / 256 * 210, part = k % 256 / 128, quarter = k % 128 / 32, l = k & 31;
    const int low = block + 64 * part + 32 * (quarter & 1) + l, high = block + 128 + 32 * part + l;
    const int code8 = int(load8(w, row, block + 192 + 8 * part + 2 * quarter + l / 16));
    const float scale = load_half(w, row, block + 208) * float(bitfieldExtract(code8, 0, 8));
    const int shift = quarter < 2 ? 0 : 4;
    uvec2 codes = uvec2(load32(w, row, low) >> shift, load32(w, row, low + 4) >> shift) & 0x0f0f0f0fu;
    codes |= (uvec2(load32(w, row, high), load32(w, row, high + 4)) >> (2 * quarter) & 0x03030303u) << 4;
    [[unroll]] for (int i = 0; i < 8; ++i) v[i] = scale * float(byte_of(codes, i) - 32);
  } else if (FORMAT == MXFP4) {
    const int block = k / 32 * 17;
    const uint e = load8(w, row, block);
    // Half the scale, 2^(e - 128); the smallest two are subnormal.
    const float d = uintBitsToFloat(e < 2u ? 0x200000u << e : (e - 1u) << 23);
    const uvec2 codes = nibbles32(w, row, block + 1, k & 31);
    [[unroll]] for (int i = 0; i < 8; ++i) v[i] = d * e2m1_doubled(byte_of(codes, i));
  } else if (FORMAT == NVFP4) {
    const int block = k / 64 * 36, sub = k % 64 / 16, at = block + 4 + 8 * sub, shift = (k & 8) == 0 ? 0 : 4;
    const uint code8 = load8(w, row, block + sub) & 0x7fu;
    const float d = code8 == 0x7fu ? 0.0 : 0.5 * e4m3_value(code8);
    const uvec2 codes = uvec2(load32(w, row, at) >> shift, load32(w, row, at + 4) >> shift) & 0x0f0f0f0fu;
    [[unroll]] for (int i = 0; i < 8; ++i) v[i] = d * e2m1_doubled(byte_of(codes, i));
  } else if (FORMAT == Q2_K) {
    const int block = k / 256 * 84, l = k % 256, at = block + 16 + l / 128 * 32 + l % 32, shift = l % 128 / 32 * 2;
    const uint both = load8(w, row, block + l / 16);
    const float scale = load_half(w, row, block + 80) * float(both & 15u),
                low = load_half(w, row, block + 82) * float(both >> 4);
    const uvec2 codes = uvec2(load32(w, row, at) >> shift, load32(w, row, at + 4) >> shift) & 0x03030303u;
    [[unroll]] for (int i = 0; i < 8; ++i) v[i] = scale * float(byte_of(codes, i)) - low;
  } else if (FORMAT == Q1_0) {
    const int block = k / 128 * 18;
    const float d = load_half(w, row, block);
    const uint bits = load8(w, row, block + 2 + k % 128 / 8);
    [[unroll]] for (int i = 0; i < 8; ++i) v[i] = (bits >> i & 1u) != 0u ? d : -d;
  } else if (FORMAT == F8_E4M3) {
    const uvec2 codes = uvec2(load32(w, row, k), load32(w, row, k + 4));
    [[unroll]] for (int i = 0; i < 8; ++i) v[i] = e4m3_value(uint(byte_of(codes, i)));
  } else if (FORMAT == F8_E4M3_64) {
    const int block = k / 64 * 68, at = block + 4 + k % 64;
    const float scale = uintBitsToFloat(load32(w, row, block));
    const uvec2 codes = uvec2(load32(w, row, at), load32(w, row, at + 4));
    [[unroll]] for (int i = 0; i < 8; ++i) v[i] = e4m3_value(uint(byte_of(codes, i))) * scale;
  } else if (FORMAT == Q4_Z) {
    const int block = k / 32 * 21;
    const float scale = uintBitsToFloat(load32(w, row, block));
    const int zero = int(load8(w, row, block + 4));
    const uvec2 codes = nibbles32(w, row, block + 5, k & 31);
    [[unroll]] for (int i = 0; i < 8; ++i) v[i] = scale * float(byte_of(codes, i) - zero);
  } else {
    [[unroll]] for (int i = 0; i < 8; ++i) v[i] = 0.0;
  }
}

#endif

#include "base/integer_blocks.h"

#include <bit>
#include <cstring>

#include "base/iq_grids.h"

// Layouts as in formats.cc. `qs` of the IQ formats are numbers of grid points, completed by the bits of `qh`.
namespace vllm {
namespace {

uint32_t load(const uint8_t* src, int bytes) {
  uint32_t value = 0;
  std::memcpy(&value, src, static_cast<size_t>(bytes));
  return value;
}

void set_d(const uint8_t* src, IntegerBlock& out) { out.d = static_cast<uint16_t>(load(src, 2)); }

void set_scale(IntegerBlock& out, int group_of_32, int scale) {
  out.scale[2 * group_of_32] = out.scale[2 * group_of_32 + 1] = static_cast<int8_t>(scale);
}

/// Scales are odd numbers: twice the four or three bits of the file and one.
int odd(uint32_t code) { return static_cast<int>(2 * code + 1); }

// hmask[32], qs[64], scales[12], d
void unpack_q3_k(const uint8_t* src, IntegerBlock& out) {
  const uint8_t *mask = src, *qs = src + 32, *s = src + 96;
  set_d(src + 108, out);
  for (int k = 0; k < 16; ++k) {
    const int low = k < 8 ? s[k] & 15 : s[k - 8] >> 4;
    out.scale[k] = static_cast<int8_t>((low | ((s[8 + k % 4] >> (2 * (k / 4))) & 3) << 4) - 32);
  }
  for (int group = 0; group < 8; ++group) {
    for (int l = 0; l < 32; ++l) {
      const int low = (qs[32 * (group / 4) + l] >> (2 * (group % 4))) & 3;
      out.value[32 * group + l] = static_cast<int8_t>(low + 4 * ((mask[l] >> group) & 1) - 4);
    }
  }
}

// d, u16 scales_h, scales_l[4], qs[128]
void unpack_iq4_xs(const uint8_t* src, IntegerBlock& out) {
  const uint32_t high = load(src + 2, 2);
  set_d(src, out);
  for (int group = 0; group < 8; ++group) {
    const int low = (src[4 + group / 2] >> (4 * (group % 2))) & 15;
    set_scale(out, group, (low | static_cast<int>((high >> (2 * group)) & 3) << 4) - 32);
    const uint8_t* qs = src + 8 + 16 * group;
    for (int l = 0; l < 16; ++l) {
      out.value[32 * group + l] = kIq4Values[qs[l] & 15];
      out.value[32 * group + 16 + l] = kIq4Values[qs[l] >> 4];
    }
  }
}

/// `digits` base-3 digits of each of `bytes` bytes, which hold them as a fraction of 256: digit n of byte l
/// is value [n * bytes + l].
void unpack_ternary(const uint8_t* src, int bytes, int digits, int8_t* value) {
  for (int l = 0; l < bytes; ++l) {
    uint32_t rest = src[l];
    for (int n = 0; n < digits; ++n, rest = (3 * rest) & 255)
      value[n * bytes + l] = static_cast<int8_t>((3 * rest >> 8) - 1);
  }
}

// qs[48], qh[4], d
void unpack_tq1_0(const uint8_t* src, IntegerBlock& out) {
  set_d(src + 52, out);
  std::memset(out.scale, 1, sizeof out.scale);
  unpack_ternary(src, 32, 5, out.value);
  unpack_ternary(src + 32, 16, 5, out.value + 160);
  unpack_ternary(src + 48, 4, 4, out.value + 240);
}

// qs[64], d
void unpack_tq2_0(const uint8_t* src, IntegerBlock& out) {
  set_d(src + 64, out);
  std::memset(out.scale, 1, sizeof out.scale);
  for (int k = 0; k < 256; ++k)
    out.value[k] = static_cast<int8_t>(((src[k / 128 * 32 + k % 32] >> (k % 128 / 32 * 2)) & 3) - 1);
}

/// Values of a grid point; bit j of `signs` makes value j negative.
void put_iq2(uint32_t point, uint32_t signs, int8_t value[8]) {
  static constexpr int8_t kLevels[4] = {8, 25, 43, 0};
  for (int j = 0; j < 8; ++j) {
    const int level = kLevels[(point >> (2 * j)) & 3];
    value[j] = static_cast<int8_t>((signs >> j) & 1 ? -level : level);
  }
}

template <const int8_t (&levels)[16]>  // the positive ones are the last 8
void put_iq3(uint32_t point, uint32_t signs, int8_t value[4]) {
  for (int j = 0; j < 4; ++j) {
    const int level = levels[8 + ((point >> (3 * j)) & 7)];
    value[j] = static_cast<int8_t>((signs >> j) & 1 ? -level : level);
  }
}

/// Eighths of the grid's -1, 0, 1, shifted by one eighth.
void put_iq1(uint32_t point, bool down, int8_t value[8]) {
  for (int j = 0; j < 8; ++j)
    value[j] = static_cast<int8_t>(8 * (static_cast<int>((point >> (2 * j)) & 3) - 1) + (down ? -1 : 1));
}

/// Seven signs in the file; the eighth makes their number even.
uint32_t eight_signs(uint32_t seven) {
  seven &= 127;
  return seven | (static_cast<uint32_t>(std::popcount(seven)) & 1) << 7;
}

// d, per 32: qs[4], u32: signs 4 x 7 bits, scale 4 bits
void unpack_iq2_xxs(const uint8_t* src, IntegerBlock& out) {
  set_d(src, out);
  src += 2;
  for (int group = 0; group < 8; ++group, src += 8) {
    const uint32_t rest = load(src + 4, 4);
    set_scale(out, group, odd(rest >> 28));
    for (int k = 0; k < 4; ++k)
      put_iq2(kIq2XxsGrid[src[k]], eight_signs(rest >> (7 * k)), out.value + 32 * group + 8 * k);
  }
}

/// 16 scales of four bits.
void set_scales_of_16(const uint8_t* src, IntegerBlock& out) {
  for (int k = 0; k < 16; ++k) out.scale[k] = static_cast<int8_t>(odd((src[k / 2] >> (4 * (k % 2))) & 15));
}

// d, u16 qs[32]: point 9 bits, signs 7 bits; scales[8]
void unpack_iq2_xs(const uint8_t* src, IntegerBlock& out) {
  set_d(src, out);
  set_scales_of_16(src + 66, out);
  for (int k = 0; k < 32; ++k) {
    const uint32_t code = load(src + 2 + 2 * k, 2);
    put_iq2(kIq2XsGrid[code & 511], eight_signs(code >> 9), out.value + 8 * k);
  }
}

// d, qs[32], signs[32], qh[8], scales[8]
void unpack_iq2_s(const uint8_t* src, IntegerBlock& out) {
  set_d(src, out);
  set_scales_of_16(src + 74, out);
  for (int k = 0; k < 32; ++k) {
    const uint32_t high = (src[66 + k / 4] >> (2 * (k % 4))) & 3u;
    put_iq2(kIq2SGrid[src[2 + k] | high << 8], src[34 + k], out.value + 8 * k);
  }
}

// d, qs[64], per 32 a u32: signs 4 x 7 bits, scale 4 bits
void unpack_iq3_xxs(const uint8_t* src, IntegerBlock& out) {
  set_d(src, out);
  for (int group = 0; group < 8; ++group) {
    const uint32_t rest = load(src + 66 + 4 * group, 4);
    set_scale(out, group, odd(rest >> 28));
    for (int k = 0; k < 8; ++k) {
      const uint32_t signs = eight_signs(rest >> (7 * (k / 2))) >> (4 * (k % 2));
      put_iq3<kIq3XxsValues>(kIq3XxsGrid[src[2 + 8 * group + k]], signs, out.value + 32 * group + 4 * k);
    }
  }
}

// d, qs[64], qh[8], signs[32], scales[4]
void unpack_iq3_s(const uint8_t* src, IntegerBlock& out) {
  set_d(src, out);
  for (int group = 0; group < 8; ++group) {
    set_scale(out, group, odd((src[106 + group / 2] >> (4 * (group % 2))) & 15));
    for (int k = 8 * group; k < 8 * group + 8; ++k) {
      const uint32_t high = (src[66 + group] >> (k % 8)) & 1u;
      const uint32_t signs = static_cast<uint32_t>(src[74 + k / 2]) >> (4 * (k % 2));
      put_iq3<kIq3SValues>(kIq3SGrid[src[2 + k] | high << 8], signs, out.value + 4 * k);
    }
  }
}

// d, qs[32], u16 qh[8]: high bits 4 x 3, scale 3 bits, sign of the shift
void unpack_iq1_s(const uint8_t* src, IntegerBlock& out) {
  set_d(src, out);
  for (int group = 0; group < 8; ++group) {
    const uint32_t high = load(src + 34 + 2 * group, 2);
    set_scale(out, group, odd((high >> 12) & 7));
    for (int k = 0; k < 4; ++k) {
      const uint32_t point = src[2 + 4 * group + k] | ((high >> (3 * k)) & 7) << 8;
      put_iq1(kIq1Grid[point], high >> 15, out.value + 32 * group + 8 * k);
    }
  }
}

// qs[32], qh[16]: per point three high bits and the sign of the shift; u16 scales[4]: 4 x 3 bits, a quarter
// of d
void unpack_iq1_m(const uint8_t* src, IntegerBlock& out) {
  uint32_t d = 0;
  for (int k = 0; k < 16; ++k) {
    const uint32_t scales = load(src + 48 + k / 4 * 2, 2);
    out.scale[k] = static_cast<int8_t>(odd((scales >> (3 * (k % 4))) & 7));
    if (k % 4 == 0) d |= scales >> 12 << k;
  }
  out.d = static_cast<uint16_t>(d);
  for (int k = 0; k < 32; ++k) {
    const uint32_t high = src[32 + k / 2] >> (4 * (k % 2)) & 15u;
    put_iq1(kIq1Grid[src[k] | (high & 7) << 8], high >> 3, out.value + 8 * k);
  }
}

constexpr IntegerForm kForms[] = {
    {Format::Q3_K, 1, unpack_q3_k},
    {Format::IQ4_XS, 1, unpack_iq4_xs},
    {Format::TQ1_0, 1, unpack_tq1_0},
    {Format::TQ2_0, 1, unpack_tq2_0},
    {Format::IQ2_XXS, 0.125f, unpack_iq2_xxs},
    {Format::IQ2_XS, 0.125f, unpack_iq2_xs},
    {Format::IQ2_S, 0.125f, unpack_iq2_s},
    {Format::IQ3_XXS, 0.25f, unpack_iq3_xxs},
    {Format::IQ3_S, 1, unpack_iq3_s},
    {Format::IQ1_S, 0.125f, unpack_iq1_s},
    {Format::IQ1_M, 0.125f, unpack_iq1_m},
};

}  // namespace

const IntegerForm* integer_form(Format format) {
  for (const IntegerForm& form : kForms) {
    if (form.format == format) return &form;
  }
  return nullptr;
}

}  // namespace vllm

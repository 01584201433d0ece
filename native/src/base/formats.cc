#include "base/formats.h"

#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/integer_blocks.h"

// Block layouts are those of GGUF: little-endian, `d` and `m` are f16, a byte of `qs` holds two 4-bit codes.
// The order of the f32 operations is that of gguf-py, so that values agree to the last bit.
namespace vllm {
namespace {

constexpr int kLegacyBlock = 32;
constexpr int kSuperBlock = 256;

template <typename T>
T load(const uint8_t* src) {
  T value;
  std::memcpy(&value, src, sizeof value);
  return value;
}

float load_f16(const uint8_t* src) { return f16_to_f32(load<uint16_t>(src)); }

void decode_f32(const uint8_t* src, int64_t n, float* dst) {
  if (n > 0) std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
}

void decode_f16(const uint8_t* src, int64_t n, float* dst) {
  for (int64_t i = 0; i < n; ++i) dst[i] = load_f16(src + 2 * i);
}

void decode_bf16(const uint8_t* src, int64_t n, float* dst) {
  for (int64_t i = 0; i < n; ++i) dst[i] = bf16_to_f32(load<uint16_t>(src + 2 * i));
}

// d, qs[16]
void decode_q4_0(const uint8_t* src, int64_t n, float* dst) {
  for (int64_t b = 0; b < n / kLegacyBlock; ++b, src += 18, dst += kLegacyBlock) {
    const float d = load_f16(src);
    const uint8_t* qs = src + 2;
    for (int j = 0; j < 16; ++j) {
      dst[j] = d * static_cast<float>((qs[j] & 15) - 8);
      dst[j + 16] = d * static_cast<float>((qs[j] >> 4) - 8);
    }
  }
}

// d, m, qs[16]
void decode_q4_1(const uint8_t* src, int64_t n, float* dst) {
  for (int64_t b = 0; b < n / kLegacyBlock; ++b, src += 20, dst += kLegacyBlock) {
    const float d = load_f16(src);
    const float m = load_f16(src + 2);
    const uint8_t* qs = src + 4;
    for (int j = 0; j < 16; ++j) {
      dst[j] = d * static_cast<float>(qs[j] & 15) + m;
      dst[j + 16] = d * static_cast<float>(qs[j] >> 4) + m;
    }
  }
}

/// Five-bit codes: bit j of `high` is the fifth bit of element j.
int five_bits(int nibble, uint32_t high, int j) { return nibble | static_cast<int>((high >> j) & 1) << 4; }

// d, qh[4], qs[16]
void decode_q5_0(const uint8_t* src, int64_t n, float* dst) {
  for (int64_t b = 0; b < n / kLegacyBlock; ++b, src += 22, dst += kLegacyBlock) {
    const float d = load_f16(src);
    const uint32_t high = load<uint32_t>(src + 2);
    const uint8_t* qs = src + 6;
    for (int j = 0; j < 16; ++j) {
      dst[j] = d * static_cast<float>(five_bits(qs[j] & 15, high, j) - 16);
      dst[j + 16] = d * static_cast<float>(five_bits(qs[j] >> 4, high, j + 16) - 16);
    }
  }
}

// d, m, qh[4], qs[16]
void decode_q5_1(const uint8_t* src, int64_t n, float* dst) {
  for (int64_t b = 0; b < n / kLegacyBlock; ++b, src += 24, dst += kLegacyBlock) {
    const float d = load_f16(src);
    const float m = load_f16(src + 2);
    const uint32_t high = load<uint32_t>(src + 4);
    const uint8_t* qs = src + 8;
    for (int j = 0; j < 16; ++j) {
      dst[j] = d * static_cast<float>(five_bits(qs[j] & 15, high, j)) + m;
      dst[j + 16] = d * static_cast<float>(five_bits(qs[j] >> 4, high, j + 16)) + m;
    }
  }
}

// d, i8 qs[32]
void decode_q8_0(const uint8_t* src, int64_t n, float* dst) {
  for (int64_t b = 0; b < n / kLegacyBlock; ++b, src += 34, dst += kLegacyBlock) {
    const float d = load_f16(src);
    for (int j = 0; j < kLegacyBlock; ++j) dst[j] = d * static_cast<float>(static_cast<int8_t>(src[2 + j]));
  }
}

struct ScaleMin {
  int scale;
  int min;
};

/// The 6-bit scale and minimum of group j (0..7), packed into the 12 bytes `s` of Q4_K and Q5_K.
ScaleMin unpack_scale_min(const uint8_t* s, int j) {
  if (j < 4) return {s[j] & 63, s[j + 4] & 63};
  return {(s[j + 4] & 15) | (s[j - 4] >> 6) << 4, (s[j + 4] >> 4) | (s[j] >> 6) << 4};
}

// d, dmin, scales[12], qs[128]
void decode_q4_k(const uint8_t* src, int64_t n, float* dst) {
  for (int64_t b = 0; b < n / kSuperBlock; ++b, src += 144, dst += kSuperBlock) {
    const float d = load_f16(src);
    const float dmin = load_f16(src + 2);
    const uint8_t* scales = src + 4;
    const uint8_t* qs = src + 16;
    for (int group = 0; group < 8; ++group) {
      const ScaleMin sm = unpack_scale_min(scales, group);
      const float scale = d * static_cast<float>(sm.scale);
      const float min = dmin * static_cast<float>(sm.min);
      const int shift = (group & 1) * 4;
      for (int l = 0; l < 32; ++l) {
        const int code = (qs[32 * (group / 2) + l] >> shift) & 15;
        dst[32 * group + l] = scale * static_cast<float>(code) - min;
      }
    }
  }
}

// d, dmin, scales[12], qh[32], qs[128]
void decode_q5_k(const uint8_t* src, int64_t n, float* dst) {
  for (int64_t b = 0; b < n / kSuperBlock; ++b, src += 176, dst += kSuperBlock) {
    const float d = load_f16(src);
    const float dmin = load_f16(src + 2);
    const uint8_t* scales = src + 4;
    const uint8_t* qh = src + 16;
    const uint8_t* qs = src + 48;
    for (int group = 0; group < 8; ++group) {
      const ScaleMin sm = unpack_scale_min(scales, group);
      const float scale = d * static_cast<float>(sm.scale);
      const float min = dmin * static_cast<float>(sm.min);
      const int shift = (group & 1) * 4;
      for (int l = 0; l < 32; ++l) {
        const int code = ((qs[32 * (group / 2) + l] >> shift) & 15) | ((qh[l] >> group) & 1) << 4;
        dst[32 * group + l] = scale * static_cast<float>(code) - min;
      }
    }
  }
}

// ql[128], qh[64], i8 scales[16], d
void decode_q6_k(const uint8_t* src, int64_t n, float* dst) {
  for (int64_t b = 0; b < n / kSuperBlock; ++b, src += 210, dst += kSuperBlock) {
    const uint8_t* ql = src;
    const uint8_t* qh = src + 128;
    const uint8_t* scales = src + 192;
    const float d = load_f16(src + 208);
    for (int half = 0; half < 2; ++half) {
      for (int k = 0; k < 4; ++k) {
        for (int l = 0; l < 32; ++l) {
          const int low = (ql[64 * half + 32 * (k & 1) + l] >> (k < 2 ? 0 : 4)) & 15;
          const int high = (qh[32 * half + l] >> (2 * k)) & 3;
          const float scale = d * static_cast<float>(static_cast<int8_t>(scales[8 * half + 2 * k + l / 16]));
          dst[128 * half + 32 * k + l] = scale * static_cast<float>((low | high << 4) - 32);
        }
      }
    }
  }
}

/// d, qs[16], codes paired as in Q4_0: dst = d * values[code].
void decode_codes(float d, const uint8_t* qs, const int8_t values[16], float* dst) {
  for (int j = 0; j < 16; ++j) {
    dst[j] = d * static_cast<float>(values[qs[j] & 15]);
    dst[j + 16] = d * static_cast<float>(values[qs[j] >> 4]);
  }
}

// d, qs[16]
void decode_iq4_nl(const uint8_t* src, int64_t n, float* dst) {
  for (int64_t b = 0; b < n / kLegacyBlock; ++b, src += 18, dst += kLegacyBlock)
    decode_codes(load_f16(src), src + 2, kIq4Values, dst);
}

// exponent, qs[16]
void decode_mxfp4(const uint8_t* src, int64_t n, float* dst) {
  for (int64_t b = 0; b < n / kLegacyBlock; ++b, src += 17, dst += kLegacyBlock)
    decode_codes(bf16_to_f32(half_e8m0_to_bf16(src[0])), src + 1, kE2m1Doubled, dst);
}

/// Half of a scale of NVFP4: E4M3 whose sign does not count; the code of NaN means zero.
float half_ue4m3(uint8_t code) {
  if (code == 0x7f) return 0.0f;
  return f16_to_f32(static_cast<uint16_t>((code & 0x7f) << 7)) * 128.0f;  // the biases differ by 8
}

// scales[4], qs[4][8]: of 16 elements the first eight in the low nibbles
void decode_nvfp4(const uint8_t* src, int64_t n, float* dst) {
  for (int64_t b = 0; b < n / 64; ++b, src += 36) {
    for (int sub = 0; sub < 4; ++sub, dst += 16) {
      const float d = half_ue4m3(src[sub]);
      const uint8_t* qs = src + 4 + 8 * sub;
      for (int j = 0; j < 8; ++j) {
        dst[j] = d * static_cast<float>(kE2m1Doubled[qs[j] & 15]);
        dst[j + 8] = d * static_cast<float>(kE2m1Doubled[qs[j] >> 4]);
      }
    }
  }
}

// scales[16]: scale in the low, minimum in the high nibble; qs[64], d, dmin
void decode_q2_k(const uint8_t* src, int64_t n, float* dst) {
  for (int64_t b = 0; b < n / kSuperBlock; ++b, src += 84, dst += kSuperBlock) {
    const float d = load_f16(src + 80);
    const float dmin = load_f16(src + 82);
    for (int k = 0; k < kSuperBlock; ++k) {
      const float scale = d * static_cast<float>(src[k / 16] & 15);
      const float min = dmin * static_cast<float>(src[k / 16] >> 4);
      const int code = (src[16 + k / 128 * 32 + k % 32] >> (k % 128 / 32 * 2)) & 3;
      dst[k] = scale * static_cast<float>(code) - min;
    }
  }
}

void decode_f8_e4m3(const uint8_t* src, int64_t n, float* dst) {
  for (int64_t i = 0; i < n; ++i) dst[i] = e4m3_to_f32(src[i]);
}

// f32 scale, codes[64]
void decode_f8_e4m3_64(const uint8_t* src, int64_t n, float* dst) {
  for (int64_t b = 0; b < n / 64; ++b, src += 68, dst += 64) {
    const float scale = load<float>(src);
    for (int j = 0; j < 64; ++j) dst[j] = e4m3_to_f32(src[4 + j]) * scale;
  }
}

// f32 scale, u8 zero point, qs[16]
void decode_q4_z(const uint8_t* src, int64_t n, float* dst) {
  for (int64_t b = 0; b < n / kLegacyBlock; ++b, src += 21, dst += kLegacyBlock) {
    const float scale = load<float>(src);
    const int zero = src[4];
    const uint8_t* qs = src + 5;
    for (int j = 0; j < 16; ++j) {
      dst[j] = scale * static_cast<float>((qs[j] & 15) - zero);
      dst[j + 16] = scale * static_cast<float>((qs[j] >> 4) - zero);
    }
  }
}

// d, signs[16]
void decode_q1_0(const uint8_t* src, int64_t n, float* dst) {
  for (int64_t b = 0; b < n / 128; ++b, src += 18, dst += 128) {
    const float d = load_f16(src);
    for (int k = 0; k < 128; ++k) dst[k] = (src[2 + k / 8] >> (k % 8)) & 1 ? d : -d;
  }
}

template <Format f, int block_bytes>
void decode_integers(const uint8_t* src, int64_t n, float* dst) {
  const IntegerForm& form = *integer_form(f);
  IntegerBlock block;
  for (int64_t b = 0; b < n / kSuperBlock; ++b, src += block_bytes, dst += kSuperBlock) {
    form.unpack(src, block);
    const float d = form.factor * f16_to_f32(block.d);
    for (int k = 0; k < kSuperBlock; ++k)
      dst[k] = d * static_cast<float>(block.scale[k / 16]) * static_cast<float>(block.value[k]);
  }
}

constexpr FormatInfo kFormats[] = {
    {Format::F32, "F32", 0, 1, 4, decode_f32},
    {Format::F16, "F16", 1, 1, 2, decode_f16},
    {Format::BF16, "BF16", 30, 1, 2, decode_bf16},
    {Format::Q4_0, "Q4_0", 2, 32, 18, decode_q4_0},
    {Format::Q4_1, "Q4_1", 3, 32, 20, decode_q4_1},
    {Format::Q5_0, "Q5_0", 6, 32, 22, decode_q5_0},
    {Format::Q5_1, "Q5_1", 7, 32, 24, decode_q5_1},
    {Format::Q8_0, "Q8_0", 8, 32, 34, decode_q8_0},
    {Format::Q4_K, "Q4_K", 12, 256, 144, decode_q4_k},
    {Format::Q5_K, "Q5_K", 13, 256, 176, decode_q5_k},
    {Format::Q6_K, "Q6_K", 14, 256, 210, decode_q6_k},
    {Format::IQ4_NL, "IQ4_NL", 20, 32, 18, decode_iq4_nl},
    {Format::MXFP4, "MXFP4", 39, 32, 17, decode_mxfp4},
    {Format::NVFP4, "NVFP4", 40, 64, 36, decode_nvfp4},
    {Format::Q2_K, "Q2_K", 10, 256, 84, decode_q2_k},
    {Format::Q3_K, "Q3_K", 11, 256, 110, decode_integers<Format::Q3_K, 110>},
    {Format::IQ4_XS, "IQ4_XS", 23, 256, 136, decode_integers<Format::IQ4_XS, 136>},
    {Format::TQ1_0, "TQ1_0", 34, 256, 54, decode_integers<Format::TQ1_0, 54>},
    {Format::TQ2_0, "TQ2_0", 35, 256, 66, decode_integers<Format::TQ2_0, 66>},
    {Format::IQ2_XXS, "IQ2_XXS", 16, 256, 66, decode_integers<Format::IQ2_XXS, 66>},
    {Format::IQ2_XS, "IQ2_XS", 17, 256, 74, decode_integers<Format::IQ2_XS, 74>},
    {Format::IQ2_S, "IQ2_S", 22, 256, 82, decode_integers<Format::IQ2_S, 82>},
    {Format::IQ3_XXS, "IQ3_XXS", 18, 256, 98, decode_integers<Format::IQ3_XXS, 98>},
    {Format::IQ3_S, "IQ3_S", 21, 256, 110, decode_integers<Format::IQ3_S, 110>},
    {Format::IQ1_S, "IQ1_S", 19, 256, 50, decode_integers<Format::IQ1_S, 50>},
    {Format::IQ1_M, "IQ1_M", 29, 256, 56, decode_integers<Format::IQ1_M, 56>},
    {Format::Q1_0, "Q1_0", 41, 128, 18, decode_q1_0},
    {Format::F8_E4M3, "F8_E4M3", -1, 1, 1, decode_f8_e4m3},
    {Format::F8_E4M3_64, "F8_E4M3_64", -1, 64, 68, decode_f8_e4m3_64},
    {Format::Q4_Z, "Q4_Z", -1, 32, 21, decode_q4_z},
};

}  // namespace

std::span<const FormatInfo> all_formats() { return kFormats; }

const FormatInfo& format_info(Format format) { return kFormats[static_cast<size_t>(format)]; }

const FormatInfo* find_ggml_format(uint32_t ggml_type) {
  for (const FormatInfo& info : kFormats) {
    if (info.ggml_type >= 0 && static_cast<uint32_t>(info.ggml_type) == ggml_type) return &info;
  }
  return nullptr;
}

const FormatInfo* find_format(std::string_view name) {
  for (const FormatInfo& info : kFormats) {
    if (name == info.name) return &info;
  }
  return nullptr;
}

int64_t row_bytes(Format format, int64_t cols) {
  const FormatInfo& info = format_info(format);
  if (cols < 0 || cols % info.block_size != 0) {
    fail_load("A row of %lld elements cannot be stored as %s, needed is a multiple of %d.",
              static_cast<long long>(cols), info.name, info.block_size);
  }
  return cols / info.block_size * info.block_bytes;
}

uint16_t half_e8m0_to_bf16(uint8_t code) {
  return static_cast<uint16_t>(code < 2 ? 0x20 << code : (code - 1) << 7);  // the smallest two are subnormal
}

float f16_to_f32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t rest = bits & 0x7fff;
  if (rest < 0x0400) {  // zero and subnormal: multiples of 2^-24
    return std::bit_cast<float>(std::bit_cast<uint32_t>(static_cast<float>(rest) * 0x1p-24f) | sign);
  }
  if (rest < 0x7c00) return std::bit_cast<float>(((rest << 13) + (112u << 23)) | sign);
  return std::bit_cast<float>((rest << 13) | 0x7f800000u | sign);  // infinity and NaN
}

uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  uint32_t rest = bits & 0x7fffffff;
  if (rest > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00 | ((rest >> 13) & 0x3ff));
  if (rest >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00);  // 65536 and above
  if (rest < 0x38800000u) {  // below 2^-14: the sum's last bit is 2^-24, the addition does the rounding
    const float sum = std::bit_cast<float>(rest) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(sum) - std::bit_cast<uint32_t>(0.5f)));
  }
  rest += 0xfffu + ((rest >> 13) & 1);  // to nearest even
  return static_cast<uint16_t>(sign | ((rest - (112u << 23)) >> 13));
}

float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

float e4m3_to_f32(uint8_t bits) {
  if ((bits & 0x7f) == 0x7f)
    return std::bit_cast<float>(0x7fc00000u | static_cast<uint32_t>(bits & 0x80) << 24);
  // As the top of an f16, whose exponent has one bit more and a bias greater by 8.
  return f16_to_f32(static_cast<uint16_t>((bits & 0x80) << 8 | (bits & 0x7f) << 7)) * 256.0f;
}

uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

}  // namespace vllm

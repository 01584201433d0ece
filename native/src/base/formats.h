// Weight formats, rows of one table that the loaders, the devices and the tests share.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

namespace vllm {

enum class Format : uint8_t {
  F32,
  F16,
  BF16,
  Q4_0,
  Q4_1,
  Q5_0,
  Q5_1,
  Q8_0,
  Q4_K,
  Q5_K,
  Q6_K,
  IQ4_NL,
  MXFP4,
  NVFP4,
  Q2_K,
  Q3_K,
  IQ4_XS,
  TQ1_0,
  TQ2_0,
  IQ2_XXS,
  IQ2_XS,
  IQ2_S,
  IQ3_XXS,
  IQ3_S,
  IQ1_S,
  IQ1_M,
  Q1_0,
  // Of safetensors checkpoints. The last two are made at load: f32 scale, 64 E4M3 bytes; and f32 scale, u8
  // zero point z, qs[16] paired as in Q4_0, of value scale * (q - z).
  F8_E4M3,
  F8_E4M3_64,
  Q4_Z,
};
static constexpr int kFormatCount = static_cast<int>(Format::Q4_Z) + 1;

struct FormatInfo {
  Format format;
  const char* name;  // as GGUF or safetensors write it: "F32", "Q4_K", "F8_E4M3"
  int ggml_type;     // type id in a GGUF tensor table, -1: none
  int block_size;    // elements of one block
  int block_bytes;   // bytes of one block
  /// Decodes `n` elements (a multiple of block_size) from `src` (any alignment) to `dst`.
  void (*decode)(const uint8_t* src, int64_t n, float* dst);
};

/// What the four-bit codes of IQ4_NL and IQ4_XS stand for, and twice what those of E2M1 stand for.
static constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
static constexpr int8_t kE2m1Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/// All formats, in the order of the enum.
std::span<const FormatInfo> all_formats();
const FormatInfo& format_info(Format format);
/// Null when the id or name is none of ours.
const FormatInfo* find_ggml_format(uint32_t ggml_type);
const FormatInfo* find_format(std::string_view name);
/// Bytes of one row of `cols` elements; `cols` must be a multiple of the block size.
int64_t row_bytes(Format format, int64_t cols);

/// Half of the scale that a byte of MXFP4 stands for, 2^(code - 128), as the bits of a bf16.
uint16_t half_e8m0_to_bf16(uint8_t code);
float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);  // nearest even
float bf16_to_f32(uint16_t bits);
uint16_t f32_to_bf16(float value);  // nearest even, NaN stays NaN
float e4m3_to_f32(uint8_t bits);    // the finite form "FN": 0x7f and 0xff are NaN, there is no infinity

}  // namespace vllm

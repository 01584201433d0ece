// Weight formats, rows of one table that the loaders, the devices and the tests share.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

namespace vllm {

enum class Format : uint8_t { F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K };

struct FormatInfo {
  Format format;
  const char* name;  // as GGUF writes it: "F32", "Q4_K"
  int ggml_type;     // type id in a GGUF tensor table
  int block_size;    // elements of one block
  int block_bytes;   // bytes of one block
  /// Decodes `n` elements (a multiple of block_size) from `src` (any alignment) to `dst`.
  void (*decode)(const uint8_t* src, int64_t n, float* dst);
};

/// All formats, in the order of the enum.
std::span<const FormatInfo> all_formats();
const FormatInfo& format_info(Format format);
/// Null when the id or name is none of ours.
const FormatInfo* find_ggml_format(uint32_t ggml_type);
const FormatInfo* find_format(std::string_view name);
/// Bytes of one row of `cols` elements; `cols` must be a multiple of the block size.
int64_t row_bytes(Format format, int64_t cols);

float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);  // nearest even
float bf16_to_f32(uint16_t bits);
uint16_t f32_to_bf16(float value);  // nearest even, NaN stays NaN

}  // namespace vllm

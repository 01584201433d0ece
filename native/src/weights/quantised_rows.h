// Rows of quantised weights put together from the tensors of a safetensors checkpoint.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weights/checkpoint.h"

namespace vllm {

/// A tensor of any dtype, as in the file.
struct QuantPart {
  std::string name;
  std::string type;  // "I32"
  std::vector<int64_t> shape;
  const uint8_t* data = nullptr;
  size_t bytes = 0;
  std::shared_ptr<MappedFile> file;

  int64_t count() const;
  /// Value `index` of a float tensor (F32, F16 or BF16).
  float number(int64_t index) const;
};

/// Throws Error(ModelLoad) unless the part has one of the types ("F32 F16 BF16") and the shape.
void check_part(const QuantPart& part, std::string_view types, const std::vector<int64_t>& shape);

/// Codes E4M3 of one matrix [rows, cols] or a stack of them [count, rows, cols], and scales [high, wide] or
/// [count, high, wide], one for each rectangle of block_rows x block_cols of a matrix.
struct Fp8Blocks {
  QuantPart codes, scale;
  int64_t block_rows = 0, block_cols = 0;

  /// F8_E4M3_64 where its blocks of 64 inputs lie within those of the scales, else F32.
  Format format() const;
};
std::shared_ptr<const RowSource> fp8_block_rows(Fp8Blocks blocks);

/// Format NVFP4. `codes`: U8 [rows, cols / 2], input 2i in the low nibble of byte i; `scale`: E4M3 [rows,
/// cols / 16].
std::shared_ptr<const RowSource> nvfp4_rows(QuantPart codes, QuantPart scale);

/// Codes of 4 or 8 bits; a word holds 32 / bits of them, and as many zero points.
struct IntParts {
  enum Layout : uint8_t {
    Packed,   // codes I32 [rows, words]; scales [rows, groups]; zeros I32 [row words, groups], I8 [rows,
              // groups]
    Gptq,     // codes I32 [words, rows]; scales [groups, rows]; zeros I32 [groups, row words]
    Awq,      // codes I32 [cols, row words], in an order of its own; scales and zeros as Gptq
    AwqGemv,  // codes I32 [rows, words]; scales [rows, .] and zeros I32 [rows, .], with room for more groups
  };
  Layout layout = Packed;
  int bits = 4;
  QuantPart codes, scales;
  std::unique_ptr<QuantPart> zeros, groups;  // null: none. `groups` (g_idx): I32 [cols]
  int64_t rows = 0, cols = 0;
  int64_t group_size = 0;  // divides cols
  int zero_offset = 0;     // added to a stored zero point; without zeros a code of 2^(bits - 1) is zero

  int64_t in_word() const { return 32 / bits; }
};

struct IntRows {
  Format format;                                    // Q4_Z of 4 bits, Q8_0 of 8
  std::shared_ptr<const RowSource> source;          // see WeightView
  std::shared_ptr<const std::vector<float>> scale;  // of 8 bits
  std::shared_ptr<const std::vector<int32_t>> order;
};
IntRows int_rows(IntParts parts);

/// Format Q8_0 with the scale 1: I8 codes [rows, cols].
std::shared_ptr<const RowSource> int8_rows(QuantPart codes);

}  // namespace vllm

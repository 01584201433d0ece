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

/// Format F8_E4M3_64. `scale` has one value for each rectangle of block_rows x block_cols of `codes` [rows,
/// cols].
std::shared_ptr<const RowSource> fp8_block_rows(QuantPart codes, QuantPart scale, int64_t block_rows,
                                                int64_t block_cols);

/// Format NVFP4. `codes`: U8 [rows, cols / 2], input 2i in the low nibble of byte i; `scale`: E4M3 [rows,
/// cols / 16].
std::shared_ptr<const RowSource> nvfp4_rows(QuantPart codes, QuantPart scale);

struct Int4Parts {
  enum Layout : uint8_t {
    Packed,  // codes I32 [rows, cols / 8]; scales [rows, groups]; zeros I32 [rows / 8, groups], I8 [rows,
             // groups]
    Gptq,    // codes I32 [cols / 8, rows]; scales [groups, rows]; zeros I32 [groups, rows / 8]
    Awq,     // codes I32 [cols, rows / 8]; scales [groups, rows]; zeros I32 [groups, rows / 8]
  };
  Layout layout = Packed;
  QuantPart codes, scales;
  std::unique_ptr<QuantPart> zeros, groups;  // null: none. `groups` (g_idx): I32 [cols]
  int64_t rows = 0, cols = 0;
  int64_t group_size = 0;  // divides cols
  int zero_offset = 0;     // added to a stored zero point; without zeros a code of 8 is zero
};

struct Int4Rows {
  std::shared_ptr<const RowSource> source;            // format Q4_Z
  std::shared_ptr<const std::vector<int32_t>> order;  // see WeightView
};
Int4Rows int4_rows(Int4Parts parts);

}  // namespace vllm

// The layout of packed weights, the same for every instruction set.
//
// A panel holds the weights of `rows` outputs over all inputs as one sequential stream of groups. Everything
// inside a group is a multiple of 64 bytes (32 for a group's f16 of one block), so every load is aligned.
//
// Float formats, 32 rows:
//   F32   [K][32] f32
//   F16   [K][32] f16
//   BF16  [K/2][32][2] bf16, the inputs 2k and 2k + 1 of each row side by side; an odd K is padded by a zero
// Quantised formats, 16 rows, weights as unsigned q = value + offset. A block is 32 inputs. Byte 4r + c of
// vector i of a block is input 4i + c of row r; of the nibble formats vector i (of 4) holds input 4i + c in
// its low and 16 + 4i + c in its high nibbles.
//   Q8_0  2 blocks: d [2][16] f16 | [2][8][64]
//   Q4_0  2 blocks: d [2][16] f16 | nibbles [2][4][64]
//   Q4_1  2 blocks: d [2][16] f16 | m [2][16] f16 | nibbles [2][4][64]
//   Q5_0  as Q4_0, and after the nibbles of a block [64]: bit i is bit 4 of the byte of vector i (of 8)
//   Q5_1  as Q4_1 with the bits of Q5_0
//   Q4_K  8 blocks: d [16] f16 | dmin [16] f16 | scale [8][16] u8 | min [8][16] u8 | nibbles [8][4][64]
//   Q5_K  as Q4_K with the bits of Q5_0
//   Q6_K  8 blocks: d [16] f16 | 32 unused bytes | scale [8][2 halves of 16 inputs][16] i8 |
//         per block: nibbles [4][64], high bits [2][64]: bits 2j, 2j + 1 of vector h are bits 4, 5 of vector
//         4h + j (of 8)
// Rows beyond the last and groups beyond K are zero.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/formats.h"

namespace vllm::cpu {

struct PanelLayout {
  int rows;          // outputs of a panel
  int group_inputs;  // inputs of a group
  int group_bytes;
  int data;         // offset of a group's first block
  int block_bytes;  // of 16 x 32 weights without their scales
  int offset_bits;  // q = value + 2^offset_bits; -1: q is the value
  bool minimum;     // the weight is scale * q + minimum
};

static constexpr PanelLayout panel_layout(Format format) {
  switch (format) {
    case Format::F32:
      return {32, 1, 128, 0, 0, -1, false};
    case Format::F16:
      return {32, 1, 64, 0, 0, -1, false};
    case Format::BF16:
      return {32, 2, 128, 0, 0, -1, false};
    case Format::Q4_0:
      return {16, 64, 576, 64, 256, 3, false};
    case Format::Q4_1:
      return {16, 64, 640, 128, 256, -1, true};
    case Format::Q5_0:
      return {16, 64, 704, 64, 320, 4, false};
    case Format::Q5_1:
      return {16, 64, 768, 128, 320, -1, true};
    case Format::Q8_0:
      return {16, 64, 1088, 64, 512, 7, false};
    case Format::Q4_K:
      return {16, 256, 2368, 320, 256, -1, true};
    case Format::Q5_K:
      return {16, 256, 2880, 320, 320, -1, true};
    case Format::Q6_K:
      return {16, 256, 3392, 320, 384, 5, false};
  }
  return {};
}

static constexpr bool is_float(Format format) { return format <= Format::BF16; }
static constexpr bool is_k_quant(Format format) { return format >= Format::Q4_K; }

static constexpr int64_t panel_bytes(Format format, int64_t cols) {
  const PanelLayout layout = panel_layout(format);
  return (cols + layout.group_inputs - 1) / layout.group_inputs * layout.group_bytes;
}

}  // namespace vllm::cpu

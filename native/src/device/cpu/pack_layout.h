// The layout of packed weights, the same for every instruction set.
//
// A panel holds the weights of `rows` outputs over all inputs as one sequential stream of groups. Everything
// inside a group is a multiple of 64 bytes (32 for a group's f16 of one block), so every load is aligned.
//
// Float formats, 32 rows:
//   F32   [K][32] f32
//   F16   [K][32] f16
//   BF16  [K/2][32][2] bf16, the inputs 2k and 2k + 1 of each row side by side; an odd K is padded by a zero
//   F8_E4M3     [K][32] bytes
//   F8_E4M3_64  for 64 inputs: scale [32] f32 | [64][32] bytes
//
// Quantised formats, 16 rows. A group is the scales of its blocks (see Scales) and then the blocks: a block
// is 32 inputs as `code_bits` vectors of 64 bytes. With a byte a code, byte 4r + c of vector i (of 8) is
// input 4i + c of row r. Shorter codes of these 8 vectors are spread over the bits of fewer vectors:
//   4 bits  vector i (of 4) holds vector i in its low and vector i + 4 in its high nibbles
//   2 bits  nibble j (of 2) of vector h (of 2) holds vector 2h + j in its low and 2h + j + 4 in its high bits
//   1 bit   bits 2j and 2j + 1 (j of 4) are vectors j and j + 4; a code is 0 or 2
//   5, 6    4 bits, and after them the high bits as 1 or 2 bits
//   3       nibble j (of 2) of vector h (of 3) holds vector 2h + j in its low bits; its highest bit is bit
//           2 - h of vector 6 + j
// A code is value + 2^offset_bits, or an index into the format's codebook, whose bytes are that; see also
// PanelLayout::odd.
// Rows beyond the last and groups beyond K are zero.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/formats.h"
#include "base/integer_blocks.h"

namespace vllm::cpu {

enum class Scales : uint8_t {
  None,
  Half,         // 2 blocks: d [2][16] f16
  HalfMinimum,  // 2 blocks: d [2][16] f16 | m [2][16] f16
  Brain,        // 2 blocks: d [2][16] bf16
  FloatZero,    // 4 blocks: scale [4][16] f32 | zero point [4][16] u8
  E4m3,   // 2 blocks: d [2][2 halves of 16 inputs][16] E4M3 without sign, read as f16: 2^-8 of its value
  Wide,   // 4 blocks: d [16] f16 | 32 unused bytes
  Super,  // 8 blocks: d [16] f16 | dmin [16] f16 | scale [8][16] u8 | min [8][16] u8
  SuperHalves,         // 8 blocks: d [16] f16 | 32 unused bytes | scale [8][2 halves of 16 inputs][16] i8
  SuperHalvesMinimum,  // 8 blocks: d [16] f16 | dmin [16] f16 | [8][2 halves of 16 inputs][16] u8: scale in
                       // the low, min in the high nibble
  SuperPlain,          // 8 blocks: d [16] f16 | 32 unused bytes | scale [8][16] i8
  SuperShifted,        // 8 blocks: as SuperPlain; the weight is d |scale| value + d scale / 8
  SuperOne,            // 8 blocks: d [16] f16 | 32 unused bytes
  SuperOddHalves,  // 8 blocks: d [16] f16 | 32 unused bytes | n [8][16]: four bits for each half of a block,
                   // whose scale is 2n + 1
  SuperShifts,  // 8 blocks: d [16] f16 | 32 unused bytes | [8][16][2 halves] u8: scale in the low five bits;
                // bit 5 (6) is added to the codes of the half's first (last) 8 inputs, which count four times
                // as much
};

/// The first bit of the code of vector i where a byte holds one bit for each vector, and where a byte of
/// vector i / 2 % 2 holds two for each of four.
static constexpr int bit_place(int i) { return 2 * (i % 4) + i / 4; }
static constexpr int pair_place(int i) { return 4 * (i % 2) + 2 * (i / 4); }

struct PanelLayout {
  int rows;          // outputs of a panel
  int group_inputs;  // inputs of a group
  int group_bytes;
  int data;         // offset of a group's first block
  int block_bytes;  // of 16 x 32 weights without their scales
  int code_bits;
  Scales scales;
  int offset_bits;  // -1: no offset
  int odd;          // 1, -1: a value is 2 code - 2^(offset_bits + 1) - odd, and 0: nothing is doubled
  int largest;      // byte that the dots meet
  bool codebook;

  /// A term for the sum of the inputs of the block, or of its halves.
  constexpr bool minimum() const {
    return scales == Scales::HalfMinimum || scales == Scales::FloatZero || scales == Scales::Super ||
           scales == Scales::SuperShifted || scales == Scales::SuperHalvesMinimum;
  }
  /// Two scales a block, for 16 inputs each.
  constexpr bool halves() const {
    return scales == Scales::E4m3 || scales == Scales::SuperHalves || scales == Scales::SuperHalvesMinimum ||
           scales == Scales::SuperOddHalves || scales == Scales::SuperShifts;
  }
  /// The scale d of a group multiplies the sums of all its blocks, not their scales.
  constexpr bool d_last() const { return scales == Scales::Wide || scales == Scales::SuperShifts; }
  /// The activations have one scale for a group, see Scheme::Int8x256.
  constexpr bool grouped() const { return group_inputs == 256; }
};

static constexpr PanelLayout float_layout(int group_inputs, int group_bytes, int data = 0) {
  return {32, group_inputs, group_bytes, data, 0, 0, Scales::None, -1, 0, 0, false};
}

/// Bytes of a group before its blocks.
static constexpr int scale_bytes(Scales scales) {
  switch (scales) {
    case Scales::None:
      return 0;
    case Scales::Half:
    case Scales::Brain:
    case Scales::E4m3:
    case Scales::Wide:
    case Scales::SuperOne:
      return 64;
    case Scales::HalfMinimum:
      return 128;
    case Scales::SuperPlain:
    case Scales::SuperShifted:
    case Scales::SuperOddHalves:
      return 192;
    case Scales::FloatZero:
    case Scales::Super:
    case Scales::SuperHalves:
    case Scales::SuperHalvesMinimum:
    case Scales::SuperShifts:
      return 320;
  }
  return 0;
}

static constexpr PanelLayout code_layout(int bits, Scales scales, int offset_bits) {
  const int blocks = scales >= Scales::Super                                 ? 8
                     : scales == Scales::Wide || scales == Scales::FloatZero ? 4
                                                                             : 2;
  const int block = 64 * bits, data = scale_bytes(scales);
  const int largest = bits == 1 ? 2 : (1 << bits) - 1;
  return {16, 32 * blocks, data + blocks * block, data, block, bits, scales, offset_bits, 0, largest, false};
}

static constexpr PanelLayout odd_layout(int bits, Scales scales, int offset_bits, int odd, int largest) {
  PanelLayout layout = code_layout(bits, scales, offset_bits);
  layout.odd = odd;
  layout.largest = largest;
  return layout;
}

static constexpr PanelLayout codebook_layout(int bits, Scales scales, int offset_bits, int largest) {
  PanelLayout layout = code_layout(bits, scales, offset_bits);
  layout.largest = largest;
  layout.codebook = true;
  return layout;
}

static constexpr PanelLayout panel_layout(Format format) {
  switch (format) {
    case Format::F32:
      return float_layout(1, 128);
    case Format::F16:
      return float_layout(1, 64);
    case Format::BF16:
      return float_layout(2, 128);
    case Format::Q4_0:
      return code_layout(4, Scales::Half, 3);
    case Format::Q4_1:
      return code_layout(4, Scales::HalfMinimum, -1);
    case Format::Q5_0:
      return code_layout(5, Scales::Half, 4);
    case Format::Q5_1:
      return code_layout(5, Scales::HalfMinimum, -1);
    case Format::Q8_0:
      return code_layout(8, Scales::Half, 7);
    case Format::Q4_K:
      return code_layout(4, Scales::Super, -1);
    case Format::Q5_K:
      return code_layout(5, Scales::Super, -1);
    case Format::Q6_K:
      return code_layout(6, Scales::SuperHalves, 5);
    case Format::IQ4_NL:
      return codebook_layout(4, Scales::Half, 7, 255);
    case Format::MXFP4:
      return codebook_layout(4, Scales::Brain, 4, 31);
    case Format::NVFP4:
      return codebook_layout(4, Scales::E4m3, 4, 31);
    case Format::Q2_K:
      return code_layout(2, Scales::SuperHalvesMinimum, -1);
    case Format::Q3_K:
      return code_layout(3, Scales::SuperHalves, 2);
    case Format::IQ4_XS:
      return codebook_layout(4, Scales::SuperPlain, 7, 255);
    case Format::IQ3_XXS:
      return codebook_layout(4, Scales::SuperPlain, 5, 63);
    case Format::IQ3_S:
      return odd_layout(4, Scales::SuperPlain, 3, -1, 15);
    case Format::TQ1_0:
    case Format::TQ2_0:
      return code_layout(2, Scales::SuperOne, 0);
    case Format::IQ2_XXS:
      return codebook_layout(3, Scales::SuperPlain, 6, 127);
    case Format::IQ2_XS:
    case Format::IQ2_S:
      return codebook_layout(3, Scales::SuperOddHalves, 6, 127);
    case Format::IQ1_M:
      return odd_layout(2, Scales::SuperShifts, 2, 1, 9);
    case Format::IQ1_S:
      return code_layout(2, Scales::SuperShifted, 0);
    case Format::Q1_0:
      return code_layout(1, Scales::Wide, 0);
    case Format::F8_E4M3:
      return float_layout(1, 32);
    case Format::F8_E4M3_64:
      return float_layout(64, 2176, 128);
    case Format::Q4_Z:
      return code_layout(4, Scales::FloatZero, -1);
  }
  return {};
}

static constexpr bool is_float(Format format) { return format <= Format::BF16; }

/// What the outputs of a format's panels are multiplied with.
static constexpr float panel_factor(Format format) {
  switch (format) {
    case Format::F8_E4M3:
    case Format::F8_E4M3_64:
      return 256;  // E4M3 is read as f16, whose bias is greater by 8
    case Format::NVFP4:
      return 128;  // 2^8 for the bias of the scales, 1/2 for the doubled codes
    case Format::IQ3_XXS:
      return 0.5f;  // 1/4 of the format, and 2 for the halved codes
    case Format::IQ2_XXS:
    case Format::IQ2_XS:
    case Format::IQ2_S:
    case Format::IQ1_M:
      return 0.125f;
    default:
      return 1;
  }
}

static constexpr int64_t panel_bytes(Format format, int64_t cols) {
  const PanelLayout layout = panel_layout(format);
  return (cols + layout.group_inputs - 1) / layout.group_inputs * layout.group_bytes;
}

/// The bytes that the codes of a panel stand for.
struct Codebook {
  uint8_t bytes[16];
};

template <int n>
static constexpr Codebook codebook_of(const int8_t (&values)[n], int offset_bits, int divisor = 1) {
  Codebook book{};
  for (int i = 0; i < n; i++) book.bytes[i] = static_cast<uint8_t>(values[i] / divisor + (1 << offset_bits));
  return book;
}

static constexpr Codebook codebook(Format format) {
  const int offset_bits = panel_layout(format).offset_bits;
  switch (format) {
    case Format::IQ4_NL:
      return codebook_of(kIq4Values, offset_bits);
    case Format::MXFP4:
    case Format::NVFP4:
      return codebook_of(kE2m1Doubled, offset_bits);
    case Format::IQ4_XS:
      return codebook_of(kIq4Values, offset_bits);
    case Format::IQ3_XXS:
      return codebook_of(kIq3XxsValues, offset_bits, 2);
    case Format::IQ2_XXS:
    case Format::IQ2_XS:
    case Format::IQ2_S:
      return codebook_of(kIq2Values, offset_bits);
    default:
      return {};
  }
}

}  // namespace vllm::cpu

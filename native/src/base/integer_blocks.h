// The formats of 256 elements a block without minimums, as integers: what their decoders and the devices
// share.
#pragma once
#include <cstdint>

#include "base/formats.h"

namespace vllm {

/// Element k is factor * d * scale[k / 16] * value[k], an exact product in f32.
struct IntegerBlock {
  uint16_t d;  // f16
  int8_t scale[16];
  int8_t value[256];
};

struct IntegerForm {
  Format format;
  float factor;
  void (*unpack)(const uint8_t* src, IntegerBlock& out);
};

/// Null for the other formats.
const IntegerForm* integer_form(Format format);

/// All that an element of IQ2, of IQ3_XXS and of IQ3_S can be, as IntegerBlock::value.
static constexpr int8_t kIq2Values[6] = {-43, -25, -8, 8, 25, 43};
static constexpr int8_t kIq3XxsValues[16] = {-62, -52, -44, -36, -28, -20, -12, -4,
                                             4,   12,  20,  28,  36,  44,  52,  62};
static constexpr int8_t kIq3SValues[16] = {-15, -13, -11, -9, -7, -5, -3, -1, 1, 3, 5, 7, 9, 11, 13, 15};

}  // namespace vllm

// The order in which values of a row come when the largest are wanted.
#pragma once
#include <cstdint>

namespace vllm {

/// A value of a row and the column that it stands in.
struct RankedValue {
  int32_t column = 0;
  float value = 0.0f;

  /// Larger values come first, of equal ones (0 and -0 are) that of the lower column. All NaN are equal and
  /// before every number, so that a look at the first tells of them.
  bool before(const RankedValue& other) const {
    const bool nan = value != value, other_nan = other.value != other.value;
    if (nan != other_nan) return nan;
    if (!nan && value != other.value) return value > other.value;
    return column < other.column;
  }
};

}  // namespace vllm

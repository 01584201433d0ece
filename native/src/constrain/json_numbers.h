// Numbers between bounds, digit by digit.
#pragma once
#include <cstdint>
#include <optional>

#include "constrain/expression.h"

namespace vllm {

/// Integers low <= n <= high; an absent bound is none. No match when low > high.
Expression integers_between(std::optional<int64_t> low, std::optional<int64_t> high);

struct NumberBounds {
  std::optional<int64_t> low, high;
  bool low_excluded = false;
  bool high_excluded = false;
};
/// Numbers with a fraction but no exponent, and no negative zero.
Expression numbers_between(const NumberBounds& bounds);

}  // namespace vllm

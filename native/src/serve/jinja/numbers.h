// Numbers as Python prints, reads and computes them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace vllm::jinja {

/// repr() of a float: the shortest digits that read back as the same number.
std::string float_repr(double value);

/// int(text, base) and float(text): surrounding whitespace and single underscores between digits are fine.
/// Empty when the text is no number (or, for an integer, too big for 64 bits).
std::optional<int64_t> parse_integer(std::string_view text, int base);
std::optional<double> parse_float(std::string_view text);

/// Floor division and its remainder, which has the sign of `b`; b is not 0.
double floor_divide(double a, double b);
double floor_modulo(double a, double b);

/// round(value, digits): to even on a tie of the exact binary value.
double round_float(double value, int64_t digits);

}  // namespace vllm::jinja

#include "serve/jinja/numbers.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "serve/jinja/unicode_text.h"

namespace vllm::jinja {

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  std::string out;
  if (text[0] == '-') {
    out = "-";
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  std::string digits(1, text[0]);
  if (e > 2) digits += text.substr(2, e - 2);
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) out += "." + digits.substr(1);
    return out + format("e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (exponent + 1 >= count)
    return out + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  return out + digits.substr(0, exponent + 1) + "." + digits.substr(exponent + 1);
}

namespace {

/// Without underscores; empty when one does not stand between two digits (or between a base prefix and a
/// digit).
std::optional<std::string> drop_underscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const auto good = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
    if (i == 0 || i + 1 == text.size() || !good(text[i - 1]) || !good(text[i + 1])) return std::nullopt;
  }
  return out;
}

}  // namespace

std::optional<int64_t> parse_integer(std::string_view text, int base) {
  const auto clean = drop_underscores(strip_left(strip_right(text)));
  if (!clean) return std::nullopt;
  std::string_view rest = *clean;
  bool negative = false;
  if (!rest.empty() && (rest[0] == '-' || rest[0] == '+')) {
    negative = rest[0] == '-';
    rest.remove_prefix(1);
  }
  if (rest.size() > 2 && rest[0] == '0') {
    const char letter = static_cast<char>(rest[1] | 0x20);
    const int prefix = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (prefix != 0 && (base == prefix || base == 0)) {
      base = prefix;
      rest.remove_prefix(2);
    }
  }
  if (base == 0) {
    if (rest.size() > 1 && rest[0] == '0' && rest.find_first_not_of('0') != std::string_view::npos) {
      return std::nullopt;
    }
    base = 10;
  }
  if (base < 2 || base > 36 || rest.empty() || rest[0] == '-') return std::nullopt;
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number, base);
  if (error != std::errc() || end != rest.data() + rest.size()) return std::nullopt;
  if (number > static_cast<uint64_t>(INT64_MAX) + (negative ? 1 : 0)) return std::nullopt;
  return negative ? static_cast<int64_t>(0 - number) : static_cast<int64_t>(number);
}

std::optional<double> parse_float(std::string_view text) {
  const auto clean = drop_underscores(strip_left(strip_right(text)));
  if (!clean || clean->empty()) return std::nullopt;
  std::string_view rest = *clean;
  bool negative = false;
  if (rest[0] == '-' || rest[0] == '+') {
    negative = rest[0] == '-';
    rest.remove_prefix(1);
  }
  if (rest.empty() || rest[0] == '-' || rest[0] == '+') return std::nullopt;
  if (!std::isdigit(static_cast<unsigned char>(rest[0])) && rest[0] != '.') {
    const std::string word = to_lower(rest);
    if (word == "nan") return std::nan("");
    if (word == "inf" || word == "infinity") return negative ? -INFINITY : INFINITY;
    return std::nullopt;
  }
  double number = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  if (end != rest.data() + rest.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) number = std::strtod(std::string(rest).c_str(), nullptr);
  return negative ? -number : number;
}

double floor_modulo(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest != 0) {
    if ((b < 0) != (rest < 0)) rest += b;
  } else {
    rest = std::copysign(0.0, b);
  }
  return rest;
}

double floor_divide(double a, double b) {
  const double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1 : floored;
}

double round_float(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 322) return value;
  if (digits >= 0) {
    // The C library prints the exact binary value, correctly rounded, ties to even.
    return std::strtod(format("%.*f", static_cast<int>(digits), value).c_str(), nullptr);
  }
  if (digits < -308) return std::copysign(0.0, value);
  const double scale = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(value / scale) * scale;
}

}  // namespace vllm::jinja

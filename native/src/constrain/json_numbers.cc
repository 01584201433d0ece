#include "constrain/json_numbers.h"

#include <algorithm>
#include <string>

namespace vllm {
namespace {

Expression digit(char low, char high) { return chars({{low, high}}); }
Expression any_digits(size_t count) {
  const int n = static_cast<int>(count);
  return repeat(digit('0', '9'), n, n);
}

/// Texts of bound.size() digits that are at least (most) `bound`.
Expression at_least(std::string_view bound) {
  if (bound.empty()) return {};
  std::vector<Expression> ways;
  ways.push_back(sequence(digit(bound[0], bound[0]), at_least(bound.substr(1))));
  if (bound[0] < '9') ways.push_back(sequence(digit(bound[0] + 1, '9'), any_digits(bound.size() - 1)));
  return alternatives(std::move(ways));
}

Expression at_most(std::string_view bound) {
  if (bound.empty()) return {};
  std::vector<Expression> ways;
  ways.push_back(sequence(digit(bound[0], bound[0]), at_most(bound.substr(1))));
  if (bound[0] > '0') ways.push_back(sequence(digit('0', bound[0] - 1), any_digits(bound.size() - 1)));
  return alternatives(std::move(ways));
}

/// Texts between two of the same length.
Expression same_length(std::string_view low, std::string_view high) {
  if (low.empty()) return {};
  if (low[0] == high[0]) return sequence(digit(low[0], low[0]), same_length(low.substr(1), high.substr(1)));
  std::vector<Expression> ways;
  ways.push_back(sequence(digit(low[0], low[0]), at_least(low.substr(1))));
  ways.push_back(sequence(digit(high[0], high[0]), at_most(high.substr(1))));
  if (low[0] + 1 < high[0])
    ways.push_back(sequence(digit(low[0] + 1, high[0] - 1), any_digits(low.size() - 1)));
  return alternatives(std::move(ways));
}

/// Natural numbers low..high without leading zeros; nothing when low > high.
Expression naturals(uint64_t low, std::optional<uint64_t> high) {
  std::vector<Expression> ways;
  if (high && low > *high) return alternatives({});
  const std::string first = std::to_string(low);
  const std::string last = high ? std::to_string(*high) : std::string();
  if (high && first.size() == last.size()) return same_length(first, last);
  ways.push_back(low == 0 ? digit('0', '9') : at_least(first));
  const size_t shorter = high ? last.size() - 1 : 0;  // longest length that any digits fill
  if (!high) {
    ways.push_back(
        sequence(digit('1', '9'), repeat(digit('0', '9'), static_cast<int>(first.size()), kUnbounded)));
  } else {
    for (size_t size = first.size() + 1; size <= shorter; ++size) {
      ways.push_back(sequence(digit('1', '9'), any_digits(size - 1)));
    }
    ways.push_back(same_length("1" + std::string(last.size() - 1, '0'), last));
  }
  return alternatives(std::move(ways));
}

uint64_t magnitude(int64_t n) { return n < 0 ? -static_cast<uint64_t>(n) : static_cast<uint64_t>(n); }

/// Numbers from low on, to high where given, none of them below zero.
Expression positive_numbers(uint64_t low, bool low_excluded, std::optional<uint64_t> high,
                            bool high_excluded) {
  const auto zeros = [] { return optional(sequence(literal("."), repeat(digit('0', '0'), 1, kUnbounded))); };
  const auto fraction = [] {
    return optional(sequence(literal("."), repeat(digit('0', '9'), 1, kUnbounded)));
  };
  const auto nonzero = [] {
    return sequence(literal("."), star(digit('0', '0')), digit('1', '9'), star(digit('0', '9')));
  };
  std::vector<Expression> ways;
  if (!high || low < *high) {
    const std::string text = std::to_string(low);
    ways.push_back(sequence(literal(text), low_excluded ? nonzero() : fraction()));
    const std::optional<uint64_t> last = high ? std::optional(*high - 1) : std::nullopt;
    if (!last || low + 1 <= *last) ways.push_back(sequence(naturals(low + 1, last), fraction()));
  }
  if (high && !high_excluded && (low < *high || (low == *high && !low_excluded))) {
    ways.push_back(sequence(literal(std::to_string(*high)), zeros()));
  }
  return alternatives(std::move(ways));
}

}  // namespace

Expression integers_between(std::optional<int64_t> low, std::optional<int64_t> high) {
  std::vector<Expression> ways;
  if (!high || *high >= 0) {
    const uint64_t first = low && *low > 0 ? magnitude(*low) : 0;
    ways.push_back(naturals(first, high ? std::optional(magnitude(*high)) : std::nullopt));
  }
  if (!low || *low < 0) {
    const uint64_t first = high && *high < 0 ? magnitude(*high) : 1;
    ways.push_back(
        sequence(literal("-"), naturals(first, low ? std::optional(magnitude(*low)) : std::nullopt)));
  }
  return alternatives(std::move(ways));
}

Expression numbers_between(const NumberBounds& b) {
  std::vector<Expression> ways;
  if (!b.high || *b.high >= 0) {
    const bool positive = b.low && *b.low >= 0;
    ways.push_back(positive_numbers(positive ? magnitude(*b.low) : 0, positive && b.low_excluded,
                                    b.high ? std::optional(magnitude(*b.high)) : std::nullopt,
                                    b.high_excluded));
  }
  if (!b.low || *b.low < 0) {
    const bool negative = b.high && *b.high < 0;
    ways.push_back(
        sequence(literal("-"),
                 positive_numbers(negative ? magnitude(*b.high) : 0, !negative || b.high_excluded,
                                  b.low ? std::optional(magnitude(*b.low)) : std::nullopt, b.low_excluded)));
  }
  return alternatives(std::move(ways));
}

}  // namespace vllm

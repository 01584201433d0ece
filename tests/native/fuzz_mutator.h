// Chance, and texts damaged at random: the same seed gives the same.
#pragma once
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace vllm::fuzz {

class Random {
 public:
  explicit Random(uint64_t seed) : random_(seed) {}
  size_t below(size_t count) { return count == 0 ? 0 : random_() % count; }
  bool coin() { return below(2) == 1; }
  const std::string& one_of(const std::vector<std::string>& list) { return list[below(list.size())]; }

 private:
  std::mt19937_64 random_;
};

class Mutator : public Random {
 public:
  static constexpr size_t kMaxBytes = 16 << 10;

  /// `words`: what the language of the texts is made of.
  Mutator(std::vector<std::string> words, uint64_t seed) : Random(seed), words_(std::move(words)) {}

  /// `text` with one to a few damages; parts of `other` may come into it.
  std::string mutate(std::string text, const std::string& other) {
    do {
      damage(text, other);
      if (text.size() > kMaxBytes) text.resize(kMaxBytes);
    } while (below(5) < 3);
    return text;
  }

 private:
  struct Range {
    size_t begin, size;
  };
  /// Mostly a short one.
  Range range_of(const std::string& text) {
    const size_t begin = below(text.size() + 1);
    const size_t left = text.size() - begin;
    return {begin, below(std::min<size_t>(left, below(4) ? 8 : left) + 1)};
  }

  std::string number() {
    static const char* const kNumbers[] = {
        "0", "-1", "1", "2000", "2001", "-0", "1e30", "1e999", "99999999999", "18446744073709551616", "0.1"};
    return below(3) ? kNumbers[below(std::size(kNumbers))] : std::to_string(below(100));
  }

  void damage(std::string& text, const std::string& other) {
    const Range at = range_of(text);
    switch (below(11)) {
      case 0:
        text.erase(at.begin, at.size);
        break;
      case 1:
        text.resize(at.begin);
        break;
      case 2:
        if (at.begin < text.size()) text[at.begin] = static_cast<char>(below(256));
        break;
      case 3:
        if (at.begin < text.size()) text[at.begin] = static_cast<char>(text[at.begin] ^ 1 << below(8));
        break;
      case 4:
        text.insert(below(text.size() + 1), text.substr(at.begin, at.size));
        break;
      case 5: {
        const Range from = range_of(other);
        text.replace(at.begin, at.size, other, from.begin, from.size);
        break;
      }
      case 6:
        text = text.substr(0, at.begin) + other.substr(below(other.size() + 1));
        break;
      case 7:
        repeat(text, at);
        break;
      case 8: {
        const size_t digit = text.find_first_of("0123456789", at.begin);
        if (digit == std::string::npos) break;
        const size_t end = std::min(text.find_first_not_of("0123456789", digit), text.size());
        text.replace(digit, end - digit, number());
        break;
      }
      default:
        text.replace(at.begin, coin() ? at.size : 0, one_of(words_));
    }
  }

  void repeat(std::string& text, Range at) {
    const std::string unit = coin() ? text.substr(at.begin, at.size) : one_of(words_);
    if (unit.empty()) return;
    const size_t count = below(below(8) ? 6 : kMaxBytes / unit.size());
    std::string many;
    for (size_t i = 0; i < count; ++i) many += unit;
    text.insert(at.begin, many);
  }

  std::vector<std::string> words_;
};

}  // namespace vllm::fuzz

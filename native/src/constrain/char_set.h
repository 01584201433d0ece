// Sets of Unicode characters and the bytes that spell them.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace vllm {

/// Both ends included.
struct CharRange {
  int32_t low;
  int32_t high;
  bool operator==(const CharRange&) const = default;
};

/// Sorted, disjoint ranges of Unicode scalar values (never surrogates, which UTF-8 cannot spell).
class CharSet {
 public:
  CharSet() = default;
  CharSet(std::initializer_list<CharRange> ranges) {
    for (const CharRange& range : ranges) add(range.low, range.high);
  }
  static CharSet all() { return {{0, 0x10ffff}}; }

  void add(int32_t low, int32_t high);
  void add(const CharSet& other);
  CharSet complement() const;
  CharSet without(const CharSet& other) const;
  bool contains(int32_t character) const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<CharRange>& ranges() const { return ranges_; }

 private:
  std::vector<CharRange> ranges_;
};

struct ByteRange {
  uint8_t low;
  uint8_t high;
  bool operator==(const ByteRange&) const = default;
  auto operator<=>(const ByteRange&) const = default;
};

/// One to four ranges of bytes; every choice of one byte each is the UTF-8 form of a character.
using ByteRanges = std::vector<ByteRange>;

/// The characters of the set as UTF-8, each once.
std::vector<ByteRanges> utf8_ranges(const CharSet& set);

}  // namespace vllm

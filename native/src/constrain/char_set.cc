#include "constrain/char_set.h"

#include <algorithm>

namespace vllm {
namespace {

constexpr int32_t kLastOfLength[] = {0x7f, 0x7ff, 0xffff, 0x10ffff};

int encode(int32_t c, uint8_t* out) {
  if (c < 0x80) return out[0] = c, 1;
  if (c < 0x800) return out[0] = 0xc0 | c >> 6, out[1] = 0x80 | (c & 0x3f), 2;
  if (c < 0x10000) {
    return out[0] = 0xe0 | c >> 12, out[1] = 0x80 | (c >> 6 & 0x3f), out[2] = 0x80 | (c & 0x3f), 3;
  }
  out[0] = 0xf0 | c >> 18;
  out[1] = 0x80 | (c >> 12 & 0x3f);
  out[2] = 0x80 | (c >> 6 & 0x3f);
  out[3] = 0x80 | (c & 0x3f);
  return 4;
}

/// Cuts low..high (characters of one UTF-8 length) until the bytes of a piece vary independently: whenever a
/// leading byte differs, the bytes after it must span 80..BF.
void split(int32_t low, int32_t high, std::vector<ByteRanges>& out) {
  for (int32_t last : kLastOfLength) {
    if (low <= last && last < high) {
      split(low, last, out);
      split(last + 1, high, out);
      return;
    }
  }
  if (high >= 0x80) {
    for (int tail = 1; tail < 4; ++tail) {
      const int32_t span = (1 << 6 * tail) - 1;
      if ((low & ~span) == (high & ~span)) continue;
      if (low & span) {
        split(low, low | span, out);
        split((low | span) + 1, high, out);
        return;
      }
      if ((high & span) != span) {
        split(low, (high & ~span) - 1, out);
        split(high & ~span, high, out);
        return;
      }
    }
  }
  uint8_t first[4], last[4];
  const int size = encode(low, first);
  encode(high, last);
  ByteRanges bytes;
  for (int i = 0; i < size; ++i) bytes.push_back({first[i], last[i]});
  out.push_back(std::move(bytes));
}

}  // namespace

void CharSet::add(int32_t low, int32_t high) {
  if (low > high) return;
  if (low <= 0xdfff && high >= 0xd800) {
    add(low, 0xd7ff);
    add(0xe000, high);
    return;
  }
  const auto first =
      std::find_if(ranges_.begin(), ranges_.end(), [&](const CharRange& r) { return r.high >= low - 1; });
  auto last = first;
  while (last != ranges_.end() && last->low <= high + 1) {
    low = std::min(low, last->low);
    high = std::max(high, last->high);
    ++last;
  }
  const auto at = ranges_.erase(first, last);
  ranges_.insert(at, {low, high});
}

void CharSet::add(const CharSet& other) {
  for (const CharRange& range : other.ranges_) add(range.low, range.high);
}

CharSet CharSet::complement() const {
  CharSet result;
  int32_t next = 0;
  for (const CharRange& range : ranges_) {
    result.add(next, range.low - 1);
    next = range.high + 1;
  }
  result.add(next, 0x10ffff);
  return result;
}

CharSet CharSet::without(const CharSet& other) const {
  CharSet result = complement();
  result.add(other);
  return result.complement();
}

bool CharSet::contains(int32_t character) const {
  const auto at = std::upper_bound(ranges_.begin(), ranges_.end(), character,
                                   [](int32_t c, const CharRange& range) { return c < range.low; });
  return at != ranges_.begin() && character <= (at - 1)->high;
}

std::vector<ByteRanges> utf8_ranges(const CharSet& set) {
  std::vector<ByteRanges> result;
  for (const CharRange& range : set.ranges()) split(range.low, range.high, result);
  return result;
}

}  // namespace vllm

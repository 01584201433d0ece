#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

namespace vllm {
namespace {

bool is_space(int32_t c) {  // the property White_Space
  return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

uint8_t compute_class(int32_t c) {
  if (c == '\r' || c == '\n') return kSpace | kNewline;
  if (is_space(c)) return kSpace;
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return kLetter;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return kMark;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return kNumber;
    default:
      return kOther;
  }
}

/// Puts every run of marks into canonical order (Unicode 3.11).
void order_marks(std::vector<int32_t>& chars) {
  const auto combining_class = [](int32_t c) { return utf8proc_get_property(c)->combining_class; };
  for (size_t begin = 0; begin < chars.size();) {
    if (combining_class(chars[begin]) == 0) {
      ++begin;
      continue;
    }
    size_t end = begin + 1;
    while (end < chars.size() && combining_class(chars[end]) != 0) ++end;
    std::stable_sort(chars.begin() + begin, chars.begin() + end,
                     [&](int32_t a, int32_t b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
}

}  // namespace

Utf8Step next_utf8(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t lead = at(0);
  if (lead < 0x80) return {Utf8Status::Valid, 1, lead};
  if (lead < 0xc2 || lead > 0xf4) return {Utf8Status::Invalid, 1, 0};
  const int size = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  int32_t value = lead & (0xff >> (size + 1));
  for (int i = 1; i < size; ++i) {
    if (static_cast<size_t>(i) == bytes.size()) return {Utf8Status::Incomplete, i, 0};
    uint8_t low = 0x80, high = 0xbf;
    if (i == 1) {  // no overlong forms, no surrogates, nothing above U+10FFFF
      if (lead == 0xe0) low = 0xa0;
      if (lead == 0xed) high = 0x9f;
      if (lead == 0xf0) low = 0x90;
      if (lead == 0xf4) high = 0x8f;
    }
    if (at(i) < low || at(i) > high) return {Utf8Status::Invalid, i, 0};
    value = value << 6 | (at(i) & 0x3f);
  }
  return {Utf8Status::Valid, size, value};
}

size_t find_invalid_utf8(std::string_view text) {
  for (size_t pos = 0; pos < text.size();) {
    if (static_cast<uint8_t>(text[pos]) < 0x80) {
      ++pos;
      continue;
    }
    const Utf8Step step = next_utf8(text.substr(pos));
    if (step.status != Utf8Status::Valid) return pos;
    pos += step.size;
  }
  return std::string_view::npos;
}

void append_utf8(std::string& text, int32_t c) {
  if (c < 0x80) {
    text += static_cast<char>(c);
  } else if (c < 0x800) {
    text += static_cast<char>(0xc0 | c >> 6);
    text += static_cast<char>(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    text += static_cast<char>(0xe0 | c >> 12);
    text += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    text += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    text += static_cast<char>(0xf0 | c >> 18);
    text += static_cast<char>(0x80 | (c >> 12 & 0x3f));
    text += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    text += static_cast<char>(0x80 | (c & 0x3f));
  }
}

uint8_t char_class(int32_t c) {
  static const std::array<uint8_t, 0x800> low = [] {
    std::array<uint8_t, 0x800> table{};
    for (int32_t i = 0; i < 0x800; ++i) table[i] = compute_class(i);
    return table;
  }();
  return c < 0x800 ? low[c] : compute_class(c);
}

bool is_word_char(int32_t c) {
  if (char_class(c) & (kLetter | kMark)) return true;
  const auto category = utf8proc_category(c);
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_PC || c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) ||
         (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
}

std::string to_normal_form(std::string_view text, NormalForm form) {
  // Below U+0300 nothing composes, below U+00A0 nothing changes at all.
  const uint8_t plain_below = form == NormalForm::NFC ? 0xcc : 0xc2;  // lead byte
  if (std::all_of(text.begin(), text.end(), [&](char c) {
        const auto byte = static_cast<uint8_t>(c);
        return byte < plain_below && (byte < 0x80 || form == NormalForm::NFC);
      })) {
    return std::string(text);
  }
  const bool compatible = form == NormalForm::NFKC || form == NormalForm::NFKD;
  const bool compose = form == NormalForm::NFC || form == NormalForm::NFKC;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | (compatible ? UTF8PROC_COMPAT : 0) |
                                                      (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE));
  // Decomposed one by one and ordered here: utf8proc's own ordering takes quadratic time on long runs of
  // marks.
  std::vector<int32_t> chars;
  chars.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const int32_t c = read_utf8(text, pos);
    if (c < 0x80) {
      chars.push_back(c);
      continue;
    }
    int32_t parts[64];  // the longest decomposition has 18
    int boundary = 0;
    const auto count = utf8proc_decompose_char(c, parts, 64, options, &boundary);
    if (count < 0 || count > 64) {
      chars.push_back(c);
    } else {
      chars.insert(chars.end(), parts, parts + count);
    }
  }
  order_marks(chars);
  auto length = static_cast<utf8proc_ssize_t>(chars.size());
  if (compose) length = utf8proc_normalize_utf32(chars.data(), length, options);
  std::string out;
  out.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < length; ++i) append_utf8(out, chars[i]);
  return out;
}

}  // namespace vllm

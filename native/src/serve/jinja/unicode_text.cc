#include "serve/jinja/unicode_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "base/error.h"
#include "serve/jinja/special_case.h"
#include "text/unicode.h"

namespace vllm::jinja {

bool is_ascii(std::string_view text) {
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    if (word & 0x8080808080808080u) return false;
  }
  for (; i < text.size(); ++i) {
    if (text[i] & 0x80) return false;
  }
  return true;
}

size_t count_chars(std::string_view text) {
  size_t n = 0;
  for (const char c : text) n += (c & 0xc0) != 0x80;
  return n;
}

size_t char_offset(std::string_view text, size_t index) {
  size_t pos = 0;
  for (; pos < text.size(); ++pos) {
    if ((text[pos] & 0xc0) != 0x80 && index-- == 0) return pos;
  }
  return text.size();
}

bool is_space(int32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_line_break(int32_t c) {
  return (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

namespace {

template <typename Drop>
std::string_view strip_left_if(std::string_view text, Drop drop) {
  size_t pos = 0;
  while (pos < text.size()) {
    size_t next = pos;
    if (!drop(read_utf8(text, next))) break;
    pos = next;
  }
  return text.substr(pos);
}

template <typename Drop>
std::string_view strip_right_if(std::string_view text, Drop drop) {
  size_t end = text.size();
  while (end > 0) {
    size_t start = end - 1;
    while (start > 0 && (text[start] & 0xc0) == 0x80) --start;
    size_t next = start;
    if (!drop(read_utf8(text, next))) break;
    end = start;
  }
  return text.substr(0, end);
}

bool contains_char(std::string_view chars, int32_t c) {
  for (size_t pos = 0; pos < chars.size();) {
    if (read_utf8(chars, pos) == c) return true;
  }
  return false;
}

utf8proc_category_t category(int32_t c) { return utf8proc_category(c); }

struct CharRange {
  int32_t first;
  int32_t last;
};

/// Unicode PropList.txt: cased characters whose category does not say so.
constexpr CharRange kOtherLowercase[] = {
    {0xaa, 0xaa},       {0xba, 0xba},       {0x2b0, 0x2b8},     {0x2c0, 0x2c1},     {0x2e0, 0x2e4},
    {0x345, 0x345},     {0x37a, 0x37a},     {0x1d2c, 0x1d6a},   {0x1d78, 0x1d78},   {0x1d9b, 0x1dbf},
    {0x2071, 0x2071},   {0x207f, 0x207f},   {0x2090, 0x209c},   {0x2170, 0x217f},   {0x24d0, 0x24e9},
    {0x2c7c, 0x2c7d},   {0xa69c, 0xa69d},   {0xa770, 0xa770},   {0xa7f8, 0xa7f9},   {0xab5c, 0xab5f},
    {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107b0}, {0x107b2, 0x107ba},
};
constexpr CharRange kOtherUppercase[] = {
    {0x2160, 0x216f}, {0x24b6, 0x24cf}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189},
};
/// Unicode DerivedNumericType.txt: digits that are no decimals.
constexpr CharRange kOtherDigits[] = {
    {0xb2, 0xb3},     {0xb9, 0xb9},       {0x1369, 0x1371},   {0x19da, 0x19da},   {0x2070, 0x2070},
    {0x2074, 0x2079}, {0x2080, 0x2089},   {0x2460, 0x2468},   {0x2474, 0x247c},   {0x2488, 0x2490},
    {0x24ea, 0x24ea}, {0x24f5, 0x24fd},   {0x24ff, 0x24ff},   {0x2776, 0x277e},   {0x2780, 0x2788},
    {0x278a, 0x2792}, {0x10a40, 0x10a43}, {0x10e60, 0x10e68}, {0x11052, 0x1105a}, {0x1f100, 0x1f10a},
};

bool is_in(std::span<const CharRange> ranges, int32_t c) {
  return c >= 0x80 && std::any_of(ranges.begin(), ranges.end(),
                                  [c](CharRange range) { return range.first <= c && c <= range.last; });
}

bool is_lower(int32_t c) { return category(c) == UTF8PROC_CATEGORY_LL || is_in(kOtherLowercase, c); }
bool is_upper(int32_t c) { return category(c) == UTF8PROC_CATEGORY_LU || is_in(kOtherUppercase, c); }
bool is_title(int32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }
bool is_cased(int32_t c) { return is_lower(c) || is_upper(c) || is_title(c); }

bool is_case_ignorable(int32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xb7 || c == 0x2019 || c == 0x2018 || c == 0x2024 ||
             c == 0x2027;
  }
}

void append_long(std::string& out, std::span<const CaseRow> table, int32_t c, int32_t simple) {
  const auto row = std::lower_bound(table.begin(), table.end(), c,
                                    [](const CaseRow& r, int32_t key) { return r.from < key; });
  if (row != table.end() && row->from == c) {
    out += row->to;
  } else {
    append_utf8(out, simple);
  }
}

void append_upper(std::string& out, int32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  } else {
    append_long(out, kLongUpper, c, utf8proc_toupper(c));
  }
}

void append_title(std::string& out, int32_t c) {
  if (c < 0x80) {
    append_upper(out, c);
  } else {
    append_long(out, kLongTitle, c, utf8proc_totitle(c));
  }
}

/// A capital sigma at the end of a word becomes the final form (Unicode, Final_Sigma).
bool is_final_sigma(std::string_view text, size_t start, size_t end) {
  size_t pos = start;
  bool after_cased = false;
  while (pos > 0) {
    do --pos;
    while (pos > 0 && (text[pos] & 0xc0) == 0x80);
    size_t next = pos;
    const int32_t c = read_utf8(text, next);
    if (is_case_ignorable(c)) continue;
    after_cased = is_cased(c);
    break;
  }
  if (!after_cased) return false;
  while (end < text.size()) {
    const int32_t c = read_utf8(text, end);
    if (is_case_ignorable(c)) continue;
    return !is_cased(c);
  }
  return true;
}

void append_lower(std::string& out, int32_t c, std::string_view text, size_t start, size_t end) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  } else if (c == 0x130) {
    out += "i\xcc\x87";
  } else if (c == 0x3a3) {
    append_utf8(out, is_final_sigma(text, start, end) ? 0x3c2 : 0x3c3);
  } else {
    append_utf8(out, utf8proc_tolower(c));
  }
}

template <typename Visit>
void for_each_char(std::string_view text, Visit visit) {
  for (size_t pos = 0; pos < text.size();) {
    const size_t start = pos;
    const int32_t c = read_utf8(text, pos);
    visit(c, start, pos);
  }
}

bool is_printable(int32_t c) {
  if (c == ' ') return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool passes(CharTest test, int32_t c) {
  const utf8proc_category_t k = category(c);
  const bool alpha = k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
  const bool decimal = k == UTF8PROC_CATEGORY_ND;
  const bool digit = decimal || is_in(kOtherDigits, c);
  const bool numeric = digit || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
  switch (test) {
    case CharTest::Alpha:
      return alpha;
    case CharTest::Alnum:
      return alpha || numeric;
    case CharTest::Digit:
      return digit;
    case CharTest::Decimal:
      return decimal;
    case CharTest::Numeric:
      return numeric;
    case CharTest::Space:
      return is_space(c);
    case CharTest::Ascii:
      return c < 0x80;
    case CharTest::Printable:
      return is_printable(c);
    case CharTest::Identifier:
      return is_word_char(c);
    default:
      return false;
  }
}

}  // namespace

std::string_view strip_left(std::string_view text) { return strip_left_if(text, is_space); }
std::string_view strip_right(std::string_view text) { return strip_right_if(text, is_space); }
std::string_view strip_left(std::string_view text, std::string_view chars) {
  return strip_left_if(text, [&](int32_t c) { return contains_char(chars, c); });
}
std::string_view strip_right(std::string_view text, std::string_view chars) {
  return strip_right_if(text, [&](int32_t c) { return contains_char(chars, c); });
}

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for_each_char(text, [&](int32_t c, size_t, size_t) { append_upper(out, c); });
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for_each_char(text, [&](int32_t c, size_t start, size_t end) { append_lower(out, c, text, start, end); });
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool in_word = false;
  for_each_char(text, [&](int32_t c, size_t start, size_t end) {
    if (in_word) {
      append_lower(out, c, text, start, end);
    } else {
      append_title(out, c);
    }
    in_word = is_cased(c);
  });
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for_each_char(text, [&](int32_t c, size_t start, size_t end) {
    if (start == 0) {
      append_title(out, c);
    } else {
      append_lower(out, c, text, start, end);
    }
  });
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for_each_char(text, [&](int32_t c, size_t start, size_t end) {
    if (is_upper(c)) {
      append_lower(out, c, text, start, end);
    } else if (is_lower(c)) {
      append_upper(out, c);
    } else {
      append_utf8(out, c);
    }
  });
  return out;
}

bool all_are(CharTest test, std::string_view text) {
  bool any = false, good = true, previous_cased = false;
  for_each_char(text, [&](int32_t c, size_t start, size_t) {
    switch (test) {
      case CharTest::Lower:
        any |= is_lower(c);
        good &= !is_upper(c) && !is_title(c);
        break;
      case CharTest::Upper:
        any |= is_upper(c);
        good &= !is_lower(c) && !is_title(c);
        break;
      case CharTest::Title:
        if (is_upper(c) || is_title(c)) {
          good &= !previous_cased;
          any = previous_cased = true;
        } else if (is_lower(c)) {
          good &= previous_cased;
          any = previous_cased = true;
        } else {
          previous_cased = false;
        }
        break;
      case CharTest::Identifier:
        good &= is_word_char(c) && (start > 0 || !passes(CharTest::Numeric, c));
        break;
      default:
        good &= passes(test, c);
    }
  });
  if (test == CharTest::Ascii || test == CharTest::Printable) return good;
  if (test == CharTest::Lower || test == CharTest::Upper || test == CharTest::Title) return any && good;
  return good && !text.empty();
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t line = 0;
  for (size_t pos = 0; pos < text.size();) {
    const size_t start = pos;
    const int32_t c = read_utf8(text, pos);
    if (!is_line_break(c)) continue;
    if (c == '\r' && pos < text.size() && text[pos] == '\n') ++pos;
    lines.push_back(text.substr(line, (keep_ends ? pos : start) - line));
    line = pos;
  }
  if (line < text.size()) lines.push_back(text.substr(line));
  return lines;
}

void append_repr(std::string& out, std::string_view text) {
  const bool single = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote_mark = single ? '"' : '\'';
  out += quote_mark;
  for_each_char(text, [&](int32_t c, size_t start, size_t end) {
    if (c == quote_mark || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c >= 0x20 && c < 0x7f) {
      out += static_cast<char>(c);
    } else if (is_printable(c)) {
      out += text.substr(start, end - start);
    } else {
      out += format(c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", static_cast<unsigned>(c));
    }
  });
  out += quote_mark;
}

}  // namespace vllm::jinja

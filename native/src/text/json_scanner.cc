#include "text/json_scanner.h"

#include <charconv>

#include "base/error.h"
#include "text/unicode.h"

namespace vllm {
namespace {

constexpr int kMaxDepth = 64;

}  // namespace

void JsonScanner::fail(const std::string& need) const {
  fail_load("%s is malformed at byte %zu: %s is needed.", what_.c_str(), pos_, need.c_str());
}

void JsonScanner::skip_space() {
  while (pos_ < text_.size() &&
         (text_[pos_] == ' ' || text_[pos_] == '\n' || text_[pos_] == '\t' || text_[pos_] == '\r')) {
    ++pos_;
  }
}

char JsonScanner::peek() {
  skip_space();
  if (pos_ == text_.size()) fail("more text");
  return text_[pos_];
}

void JsonScanner::expect(char c) {
  if (peek() != c) fail(std::string("'") + c + "'");
  ++pos_;
}

void JsonScanner::end() {
  skip_space();
  if (pos_ != text_.size()) fail("the end of the text");
}

void JsonScanner::object(const std::function<void(std::string_view key)>& member) {
  expect('{');
  if (++depth_ > kMaxDepth) fail("less nesting");
  if (peek() == '}') {
    ++pos_;
  } else {
    for (;;) {
      std::string key(string());
      expect(':');
      member(key);
      if (peek() == '}') break;
      expect(',');
    }
    ++pos_;
  }
  --depth_;
}

void JsonScanner::array(const std::function<void()>& item) {
  expect('[');
  if (++depth_ > kMaxDepth) fail("less nesting");
  if (peek() == ']') {
    ++pos_;
  } else {
    for (;;) {
      item();
      if (peek() == ']') break;
      expect(',');
    }
    ++pos_;
  }
  --depth_;
}

std::string_view JsonScanner::string() {
  if (peek() != '"') fail("a string");
  const size_t begin = ++pos_;
  bool ascii = true;
  for (; pos_ < text_.size(); ++pos_) {
    const auto c = static_cast<uint8_t>(text_[pos_]);
    if (c == '"') {
      const std::string_view found = text_.substr(begin, pos_ - begin);
      if (!ascii && find_invalid_utf8(found) != std::string_view::npos) fail("valid UTF-8 before it");
      ++pos_;
      return found;
    }
    if (c == '\\') break;
    if (c < 0x20) fail("an escape for a control character");
    ascii &= c < 0x80;
  }
  buffer_.assign(text_.substr(begin, pos_ - begin));
  while (pos_ < text_.size()) {
    const auto c = static_cast<uint8_t>(text_[pos_]);
    if (c == '"') {
      if (find_invalid_utf8(buffer_) != std::string_view::npos) fail("valid UTF-8 before it");
      ++pos_;
      return buffer_;
    }
    if (c < 0x20) fail("an escape for a control character");
    ++pos_;
    if (c == '\\') {
      unescape();
    } else {
      buffer_ += static_cast<char>(c);
    }
  }
  fail("the end of the string");
}

void JsonScanner::unescape() {
  if (pos_ == text_.size()) fail("the end of the string");
  const char c = text_[pos_++];
  static constexpr std::string_view kNames = "\"\\/bfnrt", kChars = "\"\\/\b\f\n\r\t";
  if (const size_t at = kNames.find(c); at != std::string_view::npos) {
    buffer_ += kChars[at];
    return;
  }
  const auto hex4 = [&] {
    int32_t value = 0;
    if (text_.size() - pos_ < 4) fail("four hex digits");
    const char* begin = text_.data() + pos_;
    if (std::from_chars(begin, begin + 4, value, 16).ptr != begin + 4 || *begin == '-')
      fail("four hex digits");
    pos_ += 4;
    return value;
  };
  if (c != 'u') fail("a valid escape");
  int32_t value = hex4();
  if (value >= 0xdc00 && value < 0xe000) fail("the first half of a surrogate pair");
  if (value >= 0xd800 && value < 0xdc00) {
    if (text_.substr(pos_, 2) != "\\u") fail("the second half of a surrogate pair");
    pos_ += 2;
    const int32_t low = hex4();
    if (low < 0xdc00 || low >= 0xe000) fail("the second half of a surrogate pair");
    value = 0x10000 + ((value - 0xd800) << 10) + (low - 0xdc00);
  }
  append_utf8(buffer_, value);
}

int64_t JsonScanner::integer() {
  const char first = peek();
  int64_t value = 0;
  const char* begin = text_.data() + pos_;
  const char* last = text_.data() + text_.size();
  const auto [end, error] = std::from_chars(begin, last, value);
  const char* digits = begin + (first == '-');
  if (error != std::errc{} || *digits < '0' || *digits > '9' || (*digits == '0' && end - digits > 1) ||
      (end != last && (*end == '.' || *end == 'e' || *end == 'E'))) {
    fail("an integer");
  }
  pos_ += end - begin;
  return value;
}

void JsonScanner::skip_string() {
  for (++pos_; pos_ < text_.size(); ++pos_) {
    if (text_[pos_] == '"') {
      ++pos_;
      return;
    }
    if (text_[pos_] == '\\') ++pos_;
  }
  pos_ = text_.size();
  fail("the end of the string");
}

std::string_view JsonScanner::value() {
  const char first = peek();
  const size_t begin = pos_;
  if (first == '"') {
    skip_string();
  } else if (first == '{' || first == '[') {
    // Only brackets and strings are looked at; whoever uses the value parses it.
    int open = 0;
    do {
      switch (peek()) {
        case '"':
          skip_string();
          break;
        case '{':
        case '[':
          if (++open > kMaxDepth) fail("less nesting");
          ++pos_;
          break;
        case '}':
        case ']':
          --open;
          ++pos_;
          break;
        default:
          ++pos_;
      }
    } while (open > 0);
  } else {
    while (pos_ < text_.size() && std::string_view(",}] \n\r\t").find(text_[pos_]) == std::string_view::npos)
      ++pos_;
    if (pos_ == begin) fail("a value");
  }
  return text_.substr(begin, pos_ - begin);
}

}  // namespace vllm

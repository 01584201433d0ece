#include "text/scanners.h"

#include "text/regexes.h"
#include "text/unicode.h"

namespace vllm {
namespace {

class Cursor {
 public:
  Cursor(std::string_view text, size_t pos) : text_(text), pos_(pos) {}
  bool done() const { return pos_ >= text_.size(); }
  size_t pos() const { return pos_; }
  uint8_t peek() const {
    size_t pos = pos_;
    return char_class(read_utf8(text_, pos));
  }
  void skip() { read_utf8(text_, pos_); }
  /// Moves over characters of any class in `mask`, at most `limit`.
  void skip_while(uint8_t mask, int limit = -1) {
    while (!done() && limit != 0) {
      size_t next = pos_;
      if (!(char_class(read_utf8(text_, next)) & mask)) return;
      pos_ = next;
      if (limit > 0) --limit;
    }
  }
  /// Moves over characters of no class in `mask`.
  void skip_until(uint8_t mask) {
    while (!done()) {
      size_t next = pos_;
      if (char_class(read_utf8(text_, next)) & mask) return;
      pos_ = next;
    }
  }

 private:
  std::string_view text_;
  size_t pos_;
};

/// Length of 's 't 're 've 'm 'll 'd at `pos`, 0 when there is none. Without regard to case, U+017F counts as
/// s.
size_t contraction(std::string_view text, size_t pos, bool ignore_case) {
  if (text[pos] != '\'') return 0;
  const auto letter = [&](size_t i) -> char {
    if (pos + i >= text.size()) return 0;
    const char c = text[pos + i];
    return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  const char first = letter(1), second = letter(2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if ((first == 'r' || first == 'v') && second == 'e') return 3;
  if (first == 'l' && second == 'l') return 3;
  if (ignore_case && text.substr(pos + 1, 2) == "\xc5\xbf") return 3;
  return 0;
}

/// `\s+(?!\S)|\s+` at a space: all but the last when something else follows.
size_t scan_spaces(std::string_view text, size_t begin) {
  size_t last = begin;
  for (size_t pos = begin; pos < text.size();) {
    const size_t at = pos;
    if (!(char_class(read_utf8(text, pos)) & kSpace)) return last > begin ? last : at;
    last = at;
  }
  return text.size();
}

/// End of the last line break in the run of spaces at `begin`, 0 when it has none: `\s*[\r\n]+`.
size_t scan_line_breaks(std::string_view text, size_t begin) {
  size_t end = 0;
  for (size_t pos = begin; pos < text.size();) {
    const uint8_t kind = char_class(read_utf8(text, pos));
    if (!(kind & kSpace)) break;
    if (kind & kNewline) end = pos;
  }
  return end;
}

/// The llama3 regex and its relatives. `letters`: what makes a word; `digits`: most digits of a piece.
size_t scan_words(std::string_view text, size_t begin, uint8_t letters, int digits) {
  if (const size_t length = contraction(text, begin, true)) return begin + length;
  Cursor cursor(text, begin);
  const uint8_t first = cursor.peek();
  if (first & kLetter) {
    cursor.skip_while(letters);
    return cursor.pos();
  }
  if (first & kNumber) {
    cursor.skip_while(kNumber, digits);
    return cursor.pos();
  }
  if (!(first & kNewline)) {
    cursor.skip();
    if ((first & letters) || (!cursor.done() && (cursor.peek() & letters))) {
      cursor.skip_while(letters);
      return cursor.pos();
    }
    const uint8_t symbol_stop = letters | kNumber | kSpace;
    const bool symbol = !(first & kSpace);
    if (symbol || (text[begin] == ' ' && !cursor.done() && !(cursor.peek() & symbol_stop))) {
      cursor.skip_until(symbol_stop);
      cursor.skip_while(kNewline);
      return cursor.pos();
    }
  }
  const size_t line_end = scan_line_breaks(text, begin);
  return line_end ? line_end : scan_spaces(text, begin);
}

}  // namespace

size_t scan_gpt2(std::string_view text, size_t begin) {
  if (const size_t length = contraction(text, begin, false)) return begin + length;
  Cursor cursor(text, begin);
  uint8_t kind = cursor.peek();
  if (kind & kSpace) {
    if (text[begin] != ' ') return scan_spaces(text, begin);
    cursor.skip();
    if (cursor.done()) return cursor.pos();
    kind = cursor.peek();
    if (kind & kSpace) return scan_spaces(text, begin);
  }
  if (kind & (kLetter | kNumber)) {
    cursor.skip_while(kind);
  } else {
    cursor.skip_until(kLetter | kNumber | kSpace);
  }
  return cursor.pos();
}

size_t scan_llama3(std::string_view text, size_t begin) { return scan_words(text, begin, kLetter, 3); }
size_t scan_qwen2(std::string_view text, size_t begin) { return scan_words(text, begin, kLetter, 1); }
size_t scan_qwen35(std::string_view text, size_t begin) {
  return scan_words(text, begin, kLetter | kMark, 1);
}

PieceScanner find_scanner(std::string_view regex) {
  if (regex == kGpt2Regex) return scan_gpt2;
  if (regex == kLlama3Regex) return scan_llama3;
  if (regex == kQwen2Regex) return scan_qwen2;
  if (regex == kQwen35Regex) return scan_qwen35;
  return nullptr;
}

}  // namespace vllm

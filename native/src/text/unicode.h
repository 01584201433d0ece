// UTF-8, character classes and normal forms (character data: utf8proc, Unicode 15).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace vllm {

enum class Utf8Status : uint8_t { Valid, Incomplete, Invalid };

/// What stands at the start of non-empty bytes. Valid: one character of `size` bytes. Incomplete: all bytes
/// are the beginning of a character. Invalid: `size` bytes (the maximal subpart, Unicode 3.9) can never
/// become a character.
struct Utf8Step {
  Utf8Status status;
  int size;
  int32_t code_point;  // when valid
};
Utf8Step next_utf8(std::string_view bytes);

/// Offset of the first byte that is not part of a character, npos when there is none.
size_t find_invalid_utf8(std::string_view text);

void append_utf8(std::string& text, int32_t code_point);

/// One character of valid UTF-8 at `pos`; moves `pos` behind it.
inline int32_t read_utf8(std::string_view text, size_t& pos) {
  const auto* s = reinterpret_cast<const uint8_t*>(text.data()) + pos;
  if (s[0] < 0x80) return pos += 1, s[0];
  if (s[0] < 0xe0) return pos += 2, (s[0] & 0x1f) << 6 | (s[1] & 0x3f);
  if (s[0] < 0xf0) return pos += 3, (s[0] & 0xf) << 12 | (s[1] & 0x3f) << 6 | (s[2] & 0x3f);
  return pos += 4, (s[0] & 7) << 18 | (s[1] & 0x3f) << 12 | (s[2] & 0x3f) << 6 | (s[3] & 0x3f);
}

/// Classes that pre-tokenizers tell apart. At most one of Letter, Mark, Number, Space is set; Newline (CR,
/// LF) comes with Space.
enum CharClass : uint8_t { kOther = 0, kLetter = 1, kMark = 2, kNumber = 4, kSpace = 8, kNewline = 16 };
uint8_t char_class(int32_t code_point);

/// Character of a word in the sense of UTS 18 `\w`.
bool is_word_char(int32_t code_point);

enum class NormalForm : uint8_t { NFC, NFD, NFKC, NFKD };
/// `text` must be valid UTF-8. Time n log n for any input.
std::string to_normal_form(std::string_view text, NormalForm form);

}  // namespace vllm

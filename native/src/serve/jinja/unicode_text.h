// Strings as Python sees them: sequences of code points with Python's classes, case and printing. Text is
// valid UTF-8.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vllm::jinja {

bool is_ascii(std::string_view text);
size_t count_chars(std::string_view text);
/// Byte at which character `index` starts; the size of the text when there are fewer.
size_t char_offset(std::string_view text, size_t index);

/// str.isspace of one character.
bool is_space(int32_t c);
/// Boundary of str.splitlines.
bool is_line_break(int32_t c);

std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
/// Without leading, trailing characters that occur in `chars`.
std::string_view strip_left(std::string_view text, std::string_view chars);
std::string_view strip_right(std::string_view text, std::string_view chars);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);
std::string capitalize(std::string_view text);
std::string swap_case(std::string_view text);

enum class CharTest : uint8_t {
  Alpha,
  Alnum,
  Digit,
  Decimal,
  Numeric,
  Space,
  Lower,
  Upper,
  Title,
  Ascii,
  Identifier,
  Printable
};
bool all_are(CharTest test, std::string_view text);

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

/// repr() of a str.
void append_repr(std::string& out, std::string_view text);

}  // namespace vllm::jinja

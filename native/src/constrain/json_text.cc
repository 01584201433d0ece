#include "constrain/json_text.h"

#include "base/error.h"
#include "text/unicode.h"

namespace vllm {
namespace {

constexpr std::string_view kShortEscapes = "\"\\bfnrt";
constexpr std::string_view kShortEscaped = "\"\\\b\f\n\r\t";

std::string escape_of(int c) {
  const size_t at = kShortEscaped.find(static_cast<char>(c));
  if (at != std::string_view::npos) return {'\\', kShortEscapes[at]};
  return format("\\u%04x", c);
}

Expression hex_digit() { return chars({{'0', '9'}, {'a', 'f'}, {'A', 'F'}}); }

Expression digits(int min) { return repeat(chars({{'0', '9'}}), min, kUnbounded); }

}  // namespace

CharSet json_raw_chars() { return CharSet{{0, 0x1f}, {'"', '"'}, {'\\', '\\'}}.complement(); }

Expression json_string_char() {
  Expression d = chars({{'d', 'd'}, {'D', 'D'}});
  Expression lone = any_of(sequence(chars({{'0', '9'}, {'a', 'c'}, {'e', 'f'}, {'A', 'C'}, {'E', 'F'}}),
                                    repeat(hex_digit(), 3, 3)),
                           sequence(d, chars({{'0', '7'}}), repeat(hex_digit(), 2, 2)));
  Expression pair = sequence(d, chars({{'8', '9'}, {'a', 'b'}, {'A', 'B'}}), repeat(hex_digit(), 2, 2),
                             literal("\\u"), d, chars({{'c', 'f'}, {'C', 'F'}}), repeat(hex_digit(), 2, 2));
  CharSet simple{{'/', '/'}};
  for (const char c : kShortEscapes) simple.add(c, c);
  return any_of(chars(json_raw_chars()),
                sequence(literal("\\"), any_of(chars(simple), sequence(literal("u"), any_of(lone, pair)))));
}

Expression json_integer() {
  return sequence(optional(literal("-")), any_of(literal("0"), sequence(chars({{'1', '9'}}), digits(0))));
}

Expression json_number() {
  return sequence(json_integer(), optional(sequence(literal("."), digits(1))),
                  optional(sequence(chars({{'e', 'e'}, {'E', 'E'}}),
                                    optional(chars({{'+', '+'}, {'-', '-'}})), digits(1))));
}

Expression json_space() {
  return optional(any_of(
      literal(" "), sequence(repeat(literal("\n"), 1, 2), repeat(chars({{' ', ' '}, {'\t', '\t'}}), 0, 40))));
}

std::string json_string_body(std::string_view text) {
  std::string body;
  for (const char c : text) {
    if (c == '"' || c == '\\' || static_cast<uint8_t>(c) < 0x20) {
      body += escape_of(static_cast<uint8_t>(c));
    } else {
      body += c;
    }
  }
  return body;
}

std::string json_quoted(std::string_view text) { return "\"" + json_string_body(text) + "\""; }

std::vector<std::string> json_needed_escapes() {
  std::vector<std::string> escapes{escape_of('"'), escape_of('\\')};
  for (int c = 0; c < 0x20; ++c) escapes.push_back(escape_of(c));
  return escapes;
}

std::string json_string_unit(std::string_view body, size_t pos) {
  if (body[pos] == '\\') return std::string(body.substr(pos, body[pos + 1] == 'u' ? 6 : 2));
  size_t end = pos + 1;
  while (end < body.size() && (body[end] & 0xc0) == 0x80) ++end;
  return std::string(body.substr(pos, end - pos));
}

int32_t decode_character(std::string_view bytes) {
  size_t pos = 0;
  return read_utf8(bytes, pos);
}

Expression json_spelling(const CharSet& set) {
  const CharSet raw = json_raw_chars();
  std::vector<Expression> ways;
  const CharSet direct = set.without(raw.complement());
  if (!direct.empty()) ways.push_back(chars(direct));
  const CharSet escaped = set.without(raw);
  for (const CharRange& range : escaped.ranges()) {
    for (int32_t c = range.low; c <= range.high; ++c) ways.push_back(literal(escape_of(c)));
  }
  return alternatives(std::move(ways));
}

}  // namespace vllm

// The lexical rules of JSON (RFC 8259) as expressions.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "constrain/expression.h"

namespace vllm {

/// Characters that may stand in a string as they are.
CharSet json_raw_chars();
/// Any character of a string, raw or escaped in any way; an escaped surrogate only as half of a pair.
Expression json_string_char();
/// -?(0|[1-9][0-9]*)
Expression json_integer();
/// An integer with optional fraction and exponent.
Expression json_number();
/// White space between tokens: nothing, one space, or one or two line ends followed by up to 40 spaces or
/// tabs. Bounded, so that a model that prefers blanks gets on.
Expression json_space();

/// The inside of the shortest JSON string for `text`: escapes only for `"`, `\` and control characters.
std::string json_string_body(std::string_view text);
/// The same with its quotes.
std::string json_quoted(std::string_view text);
/// The escapes that json_string_body uses.
std::vector<std::string> json_needed_escapes();
/// The character or escape at `pos` of what json_string_body gave.
std::string json_string_unit(std::string_view body, size_t pos);
/// The character that the UTF-8 in `bytes` spells.
int32_t decode_character(std::string_view bytes);

/// One character of `set` inside a JSON string: raw, or where that is not possible escaped as
/// json_string_body does.
Expression json_spelling(const CharSet& set);

}  // namespace vllm

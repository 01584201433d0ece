// printf-style and brace formatting of str.
#pragma once
#include <string_view>

#include "serve/jinja/call.h"

namespace vllm::jinja {

/// `text % values`: a tuple gives several values, a dict those of %(name)s.
Value format_percent(Runtime& rt, const Value& text, const Value& values);
/// text.format(...).
Value format_braces(Runtime& rt, std::string_view text, const CallArguments& call);

}  // namespace vllm::jinja

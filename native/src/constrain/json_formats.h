// The values of JSON Schema's `format` that are enforced.
#pragma once
#include <optional>
#include <string_view>

namespace vllm {

/// A regular expression for the whole string; nothing for a format that is not enforced.
std::optional<std::string_view> format_pattern(std::string_view format);

}  // namespace vllm

// Methods of str, list, tuple and dict. Those that change their object are refused, as in the immutable
// sandbox.
#pragma once
#include <string_view>

#include "serve/jinja/call.h"

namespace vllm::jinja {

/// Null when the type has no such method.
const MethodInfo* find_method(Kind kind, std::string_view name);
bool is_mutating_method(Kind kind, std::string_view name);
const char* method_name(const MethodInfo& method);
Value call_method(Runtime& rt, const Method& method, const CallArguments& call);

/// str.strip with Python's meaning of the argument: none is white space.
std::string_view strip_text(Runtime& rt, std::string_view text, const Value& chars, bool left, bool right);
/// str.replace; all for a negative count.
Value replace_text(Runtime& rt, std::string_view text, std::string_view from, std::string_view to,
                   int64_t count);
Value join_text(Runtime& rt, std::string_view separator, std::span<const Value> items, bool convert);
/// Padded to `width` characters; what does not divide evenly goes where str.center puts it.
Value pad_text(Runtime& rt, std::string_view text, int64_t width, std::string_view fill, char align);

}  // namespace vllm::jinja

// The functions that every template can call.
#pragma once
#include <string_view>

#include "serve/jinja/call.h"

namespace vllm::jinja {

/// Missing when there is no global of that name.
Value find_global(Runtime& rt, std::string_view name);
Value call_function(Runtime& rt, const BoundFunction& function, const CallArguments& call);

}  // namespace vllm::jinja

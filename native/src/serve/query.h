// Questions about a loaded engine, as JSON; see vllm_ext.h.
#pragma once
#include <string>
#include <string_view>

#include "serve/chat.h"

namespace vllm {

/// Throws Error(InvalidArgument) for a malformed or unknown query.
std::string answer_query(const Engine& engine, const Chat& chat, std::string_view json);

}  // namespace vllm

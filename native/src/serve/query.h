// Questions about a loaded engine, as JSON; see vllm_ext.h.
#pragma once
#include <string>
#include <string_view>

#include "serve/chat.h"

namespace vllm {

/// The query "machine", which needs no engine. Throws Error(InvalidArgument) for any other.
std::string answer_machine_query(std::string_view json);

/// Throws Error(InvalidArgument) for a malformed or unknown query.
std::string answer_query(const Engine& engine, const Chat& chat, std::string_view json);

}  // namespace vllm

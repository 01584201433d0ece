// The messages of a chat request as templates expect them.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"

namespace vllm {

/// `messages`: the request's array. With `content_parts` an array content stays a list of {"type": "text",
/// "text"}, else its texts are joined by newlines. With `developer_is_system` messages of role developer
/// become system messages, and all system messages are joined into one at the front. What is odd but usable
/// adds a line to `warnings`. Throws Error(InvalidArgument) naming the message and field: not an array or
/// empty, a part that is no text, malformed tool calls.
Json normalise_messages(const Json& messages, bool content_parts, bool developer_is_system,
                        std::vector<std::string>& warnings);

}  // namespace vllm

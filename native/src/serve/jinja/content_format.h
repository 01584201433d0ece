// Which form of message content a template expects.
#pragma once
#include "serve/jinja/ast.h"

namespace vllm::jinja {

/// A `for` walks the content of a message: `message.content` or `message['content']` of an item of
/// `messages`, a variable set from it, or the parameter of a macro that gets it.
bool iterates_content(const Tree& tree);

}  // namespace vllm::jinja

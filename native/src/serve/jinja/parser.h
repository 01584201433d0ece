// Tokens to a tree, with the grammar of Jinja and its loopcontrols extension and the `generation` block of
// transformers.
#pragma once
#include <string>

#include "serve/jinja/ast.h"

namespace vllm::jinja {

constexpr int kMaxNesting = 200;       // of brackets and blocks in each other
constexpr uint32_t kMaxHeight = 1000;  // of the tree, chains of operators included

/// `source` is normalized. Throws Error(InvalidArgument) that names line and column. Names are not bound yet.
void parse_tree(const std::string& source, Tree& tree);

}  // namespace vllm::jinja

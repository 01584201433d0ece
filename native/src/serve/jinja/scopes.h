// Binds the names of a tree to slots, by the rules of Jinja: which variable a name means is decided before
// rendering.
//
// A scope (template, body of a loop, macro, block) knows a name when it is read or assigned anywhere in it. A
// name that the scope assigns and a scope around it knows starts as a copy of the outer variable; one that
// only the branches of an `if` assign starts as the variable of the request; any other assigned name starts
// unset.
#pragma once
#include <string>

#include "serve/jinja/ast.h"

namespace vllm::jinja {

/// Throws Error(InvalidArgument) for a filter or test that does not exist and does not stand in an `if`.
void bind_names(const std::string& source, Tree& tree);

}  // namespace vllm::jinja

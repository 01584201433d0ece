// The tests of Jinja, as in `x is defined`.
#pragma once
#include <string_view>

#include "serve/jinja/call.h"

namespace vllm::jinja {

struct TestInfo {
  std::string_view name;
  bool (*run)(Runtime&, const Value&, const CallArguments&);
};

/// Null when there is none.
const TestInfo* find_test(std::string_view name);

}  // namespace vllm::jinja

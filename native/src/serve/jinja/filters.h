// The filters of Jinja.
#pragma once
#include <span>
#include <string_view>

#include "serve/jinja/call.h"

namespace vllm::jinja {

struct FilterInfo {
  std::string_view name;
  Value (*run)(Runtime&, const Value& input, const CallArguments&);
};

/// Null when there is none.
const FilterInfo* find_filter(std::string_view name);

/// The rows of the two tables.
std::span<const FilterInfo> text_filters();
std::span<const FilterInfo> sequence_filters();

}  // namespace vllm::jinja

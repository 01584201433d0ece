// Typed reads of a request's JSON values.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace vllm {

/// Each throws Error(InvalidArgument) with the field's name, what was found and what is needed.
double number_field(const char* name, const Json& value);
int64_t integer_field(const char* name, const Json& value);  // integral floats are accepted
bool boolean_field(const char* name, const Json& value);
const std::string& string_field(const char* name, const Json& value);
std::vector<int32_t> token_ids_field(const char* name, const Json& value);
/// A string or an array of strings.
std::vector<std::string> strings_field(const char* name, const Json& value);

/// A short rendering of a value for messages.
std::string brief(const Json& value);

}  // namespace vllm

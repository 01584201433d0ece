// The tools of a request, and the typing of arguments that a model wrote as plain text.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace vllm {

class ToolSchemas {
 public:
  /// `tools` as in a chat request: a list of {"type":"function","function":{"name","parameters"?}}; null for
  /// none.
  explicit ToolSchemas(const Json& tools);

  bool empty() const { return parameters_.empty(); }
  bool has(std::string_view tool) const { return parameters_.contains(tool); }
  /// Schema of a tool's argument, null when it is unknown.
  const Json* argument(std::string_view tool, std::string_view name) const;
  std::vector<std::string> argument_names(std::string_view tool) const;
  std::vector<std::string> required(std::string_view tool) const;

  /// True when the schema allows no other type than string, or says nothing.
  bool is_text(std::string_view tool, std::string_view name) const;
  /// JSON text of the value that `text` stands for under the argument's schema: of the types that the schema
  /// names, the first of null, integer, number, boolean, object, array, string that fits.
  std::string to_json(std::string_view tool, std::string_view name, std::string_view text) const;

 private:
  /// Names of JSON types that the schema may hold.
  void collect_types(const Json& schema, const Json& root, int depth, std::vector<std::string>* types) const;
  std::vector<std::string> types_of(std::string_view tool, std::string_view name) const;

  std::map<std::string, Json, std::less<>> parameters_;
};

/// A string as JSON, non-ASCII kept.
std::string json_quote(std::string_view text);
/// A JSON text with ", " and ": " between its parts.
std::string spaced_json(const Json& value);
/// Parses without throwing; discarded when `text` is no JSON.
Json try_json(std::string_view text);

}  // namespace vllm

// Schemas that must hold together (allOf, $ref beside other keywords, branches beside a base) as one schema.
#pragma once
#include <string>
#include <string_view>

#include "base/json.h"

namespace vllm {

class SchemaDocument {
 public:
  explicit SchemaDocument(Json root) : root_(std::move(root)) {}
  const Json& root() const { return root_; }

  /// The place that a `$ref` names, as a JSON pointer that begins with '#'. `at`: the pointer of the schema
  /// that has it.
  const Json& resolve(const std::string& ref, const std::string& at, std::string& pointer) const;
  /// The schema without `$ref` and `allOf` at its top; the schema false when nothing fits.
  /// Throws Error(InvalidArgument) naming what cannot be combined.
  Json flatten(const Json& schema, const std::string& at, int depth = 0) const;
  Json merge(const Json& a, const Json& b, const std::string& at, int depth = 0) const;

 private:
  void merge_keyword(Json& result, const std::string& key, const Json& value, const std::string& at) const;
  void merge_objects(Json& result, const Json& a, const Json& b) const;
  Json root_;
};

/// Keywords that say nothing about which values fit.
bool is_annotation(std::string_view keyword);
/// True when the schema has keywords other than annotations and those in `except`.
bool restricts(const Json& schema, std::initializer_list<std::string_view> except);

/// A count such as minItems, `otherwise` when absent. Throws when it is no number of a repetition that is
/// allowed.
int schema_count(const Json& schema, const char* key, int otherwise, const std::string& at);

[[noreturn]] void fail_schema(const std::string& at, const std::string& what);

}  // namespace vllm

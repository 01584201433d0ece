// JSON Schema (draft 2020-12 and what older drafts and OpenAPI call otherwise) to expressions.
//
// Choices where the standard leaves more than a grammar should: keys come in the schema's order; an object
// with `properties` and without `additionalProperties` is closed; `oneOf` is a union; keywords of one type
// without `type` mean that type; strings of `enum`, `const` and `pattern` and extra keys are spelt with no
// needless escapes.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "constrain/front_ends.h"
#include "constrain/json_rules.h"
#include "constrain/schema_merge.h"

namespace vllm {

class SchemaParser {
 public:
  /// Throws Error(InvalidArgument) when the text is no JSON schema.
  SchemaParser(std::string_view text, JsonStyle style, Rules& rules, std::vector<std::string>& warnings);

  /// The rule for the whole document.
  int parse();
  /// TagContent::Kind::Parameters, see compiler.h.
  Expression parse_parameters(const TagContent& tag);

 private:
  /// `at`: JSON pointer that names the place in messages.
  Expression visit(const Json& schema, const std::string& at);
  Expression visit_strict(const Json& schema, const std::string& at);
  Expression visit_plain(const Json& schema, const std::string& at);
  Expression visit_reference(const std::string& ref, const std::string& at);
  Expression visit_branches(const Json& schema, const char* keyword, const std::string& at);
  Expression visit_values(const Json& schema, const std::string& at);
  Expression visit_type(const Json& schema, const std::string& type, const std::string& at);
  Expression visit_string(const Json& schema, const std::string& at);
  Expression visit_number(const Json& schema, bool integer, const std::string& at);
  Expression visit_array(const Json& schema, const std::string& at);
  Expression visit_object(const Json& schema, const std::string& at);

  struct Property {
    std::string name;
    const Json* schema;
    bool required;
    std::string at;
  };
  std::vector<Property> properties_of(const Json& schema, const std::string& at) const;
  Expression members(const std::vector<Property>& properties, const Expression* extra, bool& may_be_empty,
                     const std::string& at);
  Expression constant(const Json& value);
  /// Whether an enum or const value fits the keywords beside it.
  bool fits(const Json& value, const Json& schema, const std::string& at) const;
  std::vector<std::string> types_of(const Json& schema, const std::string& at) const;
  bool is_text(const Json& schema, const std::string& at) const;
  Expression parameters(const Json& schema, const std::string& at, const TagContent& tag);
  Expression parameter_value(const Json& schema, const std::string& at, const TagContent& tag);
  Expression parameter_text(const Json& flat, const std::string& at, const TagContent& tag);
  /// A parameter with any name but `taken`.
  Expression other_parameter(const std::vector<std::string>& taken, Expression value, const TagContent& tag);
  int new_rule(const std::string& name, Expression body);
  void warn(const std::string& at, const std::string& what);
  [[noreturn]] void fail_limit(const std::string& at, const std::string& what);

  SchemaDocument document_;
  JsonStyle style_;
  Rules& rules_;
  JsonRules json_;
  std::vector<std::string>& warnings_;
  std::map<std::string, int> references_;  // rules by pointer
  std::map<std::string, int> merged_;      // rules by the text of the merged schema
  int depth_ = 0;
  int branches_ = 0;       // of a tag's parameters
  size_t parameters_ = 0;  // in all of these
  bool over_limit_ = false;
};

}  // namespace vllm

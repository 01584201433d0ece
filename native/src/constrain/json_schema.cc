#include "constrain/json_schema.h"

#include <algorithm>
#include <cmath>

#include "constrain/front_ends.h"
#include "constrain/json_formats.h"
#include "constrain/json_numbers.h"
#include "constrain/json_text.h"
#include "text/unicode.h"

namespace vllm {
namespace {

constexpr const char* kTypes[] = {"object", "array", "string", "number", "integer", "boolean", "null"};

/// Keywords that a grammar cannot follow.
constexpr const char* kRefused[] = {"not",
                                    "if",
                                    "then",
                                    "else",
                                    "contains",
                                    "minContains",
                                    "maxContains",
                                    "dependentSchemas",
                                    "dependentRequired",
                                    "dependencies",
                                    "unevaluatedProperties",
                                    "unevaluatedItems",
                                    "patternProperties",
                                    "propertyNames",
                                    "$dynamicRef",
                                    "$recursiveRef"};

Json parse_schema_text(std::string_view text) {
  if (text.size() > GrammarLimits::kTextBytes) {
    fail_argument("The JSON schema has %zu bytes, allowed are %zu.", text.size(), GrammarLimits::kTextBytes);
  }
  return parse_json(text, "the JSON schema", Status::InvalidArgument, 3 * GrammarLimits::kDepth);
}

}  // namespace

SchemaParser::SchemaParser(std::string_view text, JsonStyle style, Rules& rules,
                           std::vector<std::string>& warnings)
    : document_(parse_schema_text(text)),
      style_(style),
      rules_(rules),
      json_(rules, style.compact),
      warnings_(warnings) {}

int SchemaParser::parse() {
  // Rules of several schemas share one grammar: names are per schema, indices are not.
  return visit_reference("#", "#").rule;
}

int SchemaParser::new_rule(const std::string& name, Expression body) {
  if (rules_.size() >= static_cast<size_t>(GrammarLimits::kRules)) {
    fail_limit(name,
               format("the schema needs more than the %d rules that are allowed", GrammarLimits::kRules));
  }
  rules_.push_back({name, std::move(body)});
  return static_cast<int>(rules_.size()) - 1;
}

void SchemaParser::warn(const std::string& at, const std::string& what) {
  if (warnings_.size() < 100) warnings_.push_back("JSON schema, at " + quote(at) + ": " + what + ".");
}

void SchemaParser::fail_limit(const std::string& at, const std::string& what) {
  over_limit_ = true;
  fail_schema(at, what);
}

Expression SchemaParser::visit_reference(const std::string& ref, const std::string& at) {
  std::string pointer;
  const Json& target = document_.resolve(ref, at, pointer);
  if (const auto known = references_.find(pointer); known != references_.end())
    return reference(known->second);
  const int rule = new_rule(pointer, {});
  references_.emplace(pointer, rule);
  Expression body = visit(target, pointer);
  rules_[rule].body = std::move(body);
  return reference(rule);
}

Expression SchemaParser::visit(const Json& schema, const std::string& at) {
  if (depth_ >= GrammarLimits::kDepth) {
    fail_limit(
        at, format("schemas are nested deeper than the %d levels that are allowed", GrammarLimits::kDepth));
  }
  struct Level {
    int& depth;
    explicit Level(int& d) : depth(d) { ++depth; }
    ~Level() { --depth; }
  } level(depth_);
  try {
    return visit_strict(schema, at);
  } catch (const Error& error) {
    if (!style_.loose || over_limit_) throw;
    warnings_.push_back(error.message() + " Any JSON value is allowed there.");
    return json_.value();
  }
}

Expression SchemaParser::visit_strict(const Json& schema, const std::string& at) {
  if (schema == true) return json_.value();
  if (schema == false) fail_schema(at, "the schema false fits no value");
  if (!schema.is_object()) fail_schema(at, "a schema is neither an object nor a boolean");
  const auto ref = schema.find("$ref");
  if (ref != schema.end() && ref->is_string() && !restricts(schema, {"$ref"})) {
    return visit_reference(ref->get<std::string>(), at);
  }
  if (ref == schema.end() && !schema.contains("allOf") && !schema.contains("nullable")) {
    return visit_plain(schema, at);
  }
  const Json merged = document_.flatten(schema, at);
  if (merged == false) fail_schema(at, "schemas that must hold together fit no common value");
  if (merged == true) return json_.value();
  // A rule, for a recursive schema meets the same merged schema again.
  const auto [known, created] = merged_.try_emplace(dump_json(merged), -1);
  if (created) {
    known->second = new_rule(at, {});
    Expression body = visit_plain(merged, at);
    rules_[known->second].body = std::move(body);
  }
  return reference(known->second);
}

Expression SchemaParser::visit_plain(const Json& schema, const std::string& at) {
  for (const char* keyword : kRefused) {
    const auto found = schema.find(keyword);
    if (found == schema.end()) continue;
    if (found->is_object() && found->empty() && std::string_view(keyword) == "patternProperties") continue;
    fail_schema(at + "/" + keyword, format("'%s' is not supported", keyword));
  }
  if (schema.contains("uniqueItems") && schema["uniqueItems"] != false) {
    fail_schema(at + "/uniqueItems", "'uniqueItems' is not supported");
  }
  for (const char* keyword : {"anyOf", "oneOf"}) {
    if (schema.contains(keyword)) return visit_branches(schema, keyword, at);
  }
  if (schema.contains("enum") || schema.contains("const")) return visit_values(schema, at);
  const std::vector<std::string> types = types_of(schema, at);
  if (types.size() == std::size(kTypes) - 1 && !restricts(schema, {"type"})) return json_.value();
  std::vector<Expression> ways;
  for (const std::string& type : types) ways.push_back(visit_type(schema, type, at));
  if (schema.contains("nullable") && schema["nullable"] == true &&
      std::find(types.begin(), types.end(), "null") == types.end()) {
    ways.push_back(literal("null"));
  }
  return alternatives(std::move(ways));
}

std::vector<std::string> SchemaParser::types_of(const Json& schema, const std::string& at) const {
  std::vector<std::string> types;
  const auto add = [&](const std::string& type) {
    if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
  };
  const auto found = schema.find("type");
  if (found == schema.end()) {
    const auto any = [&](std::initializer_list<const char*> keywords) {
      return std::any_of(keywords.begin(), keywords.end(), [&](const char* k) { return schema.contains(k); });
    };
    if (any({"properties", "required", "additionalProperties", "minProperties", "maxProperties"}))
      add("object");
    if (any({"items", "prefixItems", "additionalItems", "minItems", "maxItems"})) add("array");
    if (any({"minLength", "maxLength", "pattern"}) ||
        (schema.contains("format") && schema["format"].is_string() &&
         format_pattern(schema["format"].get_ref<const std::string&>()))) {
      add("string");
    }
    if (any({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})) add("number");
    if (!types.empty()) return types;
    for (const char* type : kTypes) {
      if (std::string_view(type) != "integer") add(type);
    }
    return types;
  }
  for (const Json& type : found->is_array() ? *found : Json::array({*found})) {
    if (!type.is_string() ||
        std::find(std::begin(kTypes), std::end(kTypes), type.get<std::string>()) == std::end(kTypes)) {
      fail_schema(at + "/type", "unknown type " + quote(dump_json(type)));
    }
    add(type.get<std::string>());
  }
  if (types.empty()) fail_schema(at + "/type", "the list of types is empty");
  if (std::find(types.begin(), types.end(), "number") != types.end()) std::erase(types, "integer");
  return types;
}

Expression SchemaParser::visit_branches(const Json& schema, const char* keyword, const std::string& at) {
  const std::string place = at + "/" + keyword;
  if (!schema[keyword].is_array() || schema[keyword].empty())
    fail_schema(place, format("'%s' is no list of schemas", keyword));
  const bool beside = restricts(schema, {keyword});
  Json base = schema;
  base.erase(keyword);
  std::vector<Expression> ways;
  for (size_t i = 0; i < schema[keyword].size(); ++i) {
    const std::string branch_at = place + "/" + std::to_string(i);
    const Json& branch = schema[keyword][i];
    if (branch == false) continue;
    if (!beside) {
      if (branch.is_object() && branch.contains("allOf") && document_.flatten(branch, branch_at) == false)
        continue;
      ways.push_back(visit(branch, branch_at));
      continue;
    }
    const Json merged = document_.merge(base, document_.flatten(branch, branch_at), branch_at);
    if (merged == false) continue;
    const auto [known, created] = merged_.try_emplace(dump_json(merged), -1);
    if (created) {
      known->second = new_rule(branch_at, {});
      Expression body = visit(merged, branch_at);
      rules_[known->second].body = std::move(body);
    }
    ways.push_back(reference(known->second));
  }
  if (ways.empty()) fail_schema(place, "none of the schemas fits any value");
  return alternatives(std::move(ways));
}

Expression SchemaParser::visit_values(const Json& schema, const std::string& at) {
  const bool is_enum = schema.contains("enum");
  const Json values = is_enum ? schema["enum"] : Json::array({schema["const"]});
  const std::string place = at + (is_enum ? "/enum" : "/const");
  if (!values.is_array() || values.empty()) fail_schema(place, "'enum' is no list of values");
  if (values.size() > GrammarLimits::kChoices) {
    fail_limit(place,
               format("there are %zu values, allowed are %zu", values.size(), GrammarLimits::kChoices));
  }
  std::vector<Expression> ways;
  for (const Json& value : values) {
    if (is_enum && schema.contains("const") && value != schema["const"]) continue;
    if (fits(value, schema, at)) ways.push_back(constant(value));
  }
  if (schema.contains("nullable") && schema["nullable"] == true) ways.push_back(literal("null"));
  if (ways.empty()) fail_schema(place, "none of the values fits the keywords beside it");
  return alternatives(std::move(ways));
}

bool SchemaParser::fits(const Json& value, const Json& schema, const std::string& at) const {
  const char* unchecked = nullptr;
  const auto refuse = [&](std::initializer_list<const char*> keywords) {
    for (const char* keyword : keywords) {
      if (schema.contains(keyword)) unchecked = keyword;
    }
  };
  if (schema.contains("type")) {
    const std::vector<std::string> types = types_of(schema, at);
    const auto is = [&](const char* type) {
      return std::find(types.begin(), types.end(), type) != types.end();
    };
    const bool integral = value.is_number() && value.get<double>() == std::floor(value.get<double>());
    const bool fit = (value.is_object() && is("object")) || (value.is_array() && is("array")) ||
                     (value.is_string() && is("string")) || (value.is_boolean() && is("boolean")) ||
                     (value.is_null() && is("null")) || (value.is_number() && is("number")) ||
                     (integral && is("integer"));
    if (!fit) return false;
  }
  if (value.is_object())
    refuse({"properties", "required", "additionalProperties", "minProperties", "maxProperties"});
  if (value.is_array()) refuse({"items", "prefixItems", "additionalItems", "minItems", "maxItems"});
  if (value.is_string()) refuse({"pattern"});
  if (value.is_number()) refuse({"multipleOf"});
  if (unchecked != nullptr)
    fail_schema(at, format("'%s' beside 'enum' or 'const' is not supported", unchecked));
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    const auto length = std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
    if (length < schema_count(schema, "minLength", 0, at)) return false;
    if (schema.contains("maxLength") && length > schema_count(schema, "maxLength", 0, at)) return false;
  }
  if (value.is_number()) {
    const double number = value.get<double>();
    const auto bound = [&](const char* key, auto&& holds) {
      const auto found = schema.find(key);
      return found == schema.end() || !found->is_number() || holds(found->get<double>());
    };
    return bound("minimum", [&](double b) { return number >= b; }) &&
           bound("maximum", [&](double b) { return number <= b; }) &&
           bound("exclusiveMinimum", [&](double b) { return number > b; }) &&
           bound("exclusiveMaximum", [&](double b) { return number < b; });
  }
  return true;
}

Expression SchemaParser::constant(const Json& value) {
  if (value.is_string()) return literal(json_quoted(value.get_ref<const std::string&>()));
  if (!value.is_structured()) return literal(dump_json(value));
  std::vector<Expression> parts;
  for (const auto& [key, item] : value.items()) {
    if (!parts.empty()) parts.push_back(json_.comma());
    if (value.is_object()) parts.push_back(sequence(literal(json_quoted(key)), json_.colon()));
    parts.push_back(constant(item));
  }
  const char* open = value.is_object() ? "{" : "[";
  const char* close = value.is_object() ? "}" : "]";
  if (parts.empty()) return sequence(literal(open), json_.space(), literal(close));
  return json_.enclosed(open, sequence_of(std::move(parts)), false, close);
}

Expression SchemaParser::visit_type(const Json& schema, const std::string& type, const std::string& at) {
  if (type == "object") return visit_object(schema, at);
  if (type == "array") return visit_array(schema, at);
  if (type == "string") return visit_string(schema, at);
  if (type == "number" || type == "integer") return visit_number(schema, type == "integer", at);
  if (type == "boolean") return any_of(literal("true"), literal("false"));
  return literal("null");
}

Expression SchemaParser::visit_string(const Json& schema, const std::string& at) {
  std::string pattern;
  std::string name;
  if (const auto found = schema.find("format"); found != schema.end()) {
    if (!found->is_string()) fail_schema(at + "/format", "'format' is no string");
    const std::string format_name = found->get<std::string>();
    if (const auto known = format_pattern(format_name)) {
      name = "format";
      pattern = *known;
    } else {
      warn(at + "/format", "the format " + quote(format_name) + " is not enforced");
    }
  }
  if (const auto found = schema.find("pattern"); found != schema.end()) {
    if (!found->is_string()) fail_schema(at + "/pattern", "'pattern' is no string");
    if (!name.empty()) fail_schema(at + "/pattern", "'pattern' together with 'format' is not supported");
    name = "pattern";
    pattern = found->get<std::string>();
  }
  const int min = schema_count(schema, "minLength", 0, at + "/minLength");
  const int max = schema_count(schema, "maxLength", kUnbounded, at + "/maxLength");
  if (max != kUnbounded && max < min) fail_schema(at, "'maxLength' is less than 'minLength'");
  if (!name.empty()) {
    if (min > 0 || max != kUnbounded) {
      fail_schema(at + "/" + name,
                  "'" + name + "' together with 'minLength' or 'maxLength' is not supported");
    }
    return json_.shared("JSON string like " + pattern, [&] {
      try {
        return sequence(literal("\""), parse_string_pattern(pattern), literal("\""));
      } catch (const Error& error) {
        fail_schema(at + "/" + name, error.message().substr(0, error.message().size() - 1));
      }
    });
  }
  if (min == 0 && max == kUnbounded) return json_.string();
  return json_.shared(format("JSON string of %d to %d", min, max), [&] {
    return sequence(literal("\""), repeat(json_string_char(), min, max), literal("\""));
  });
}

Expression SchemaParser::visit_number(const Json& schema, bool integer, const std::string& at) {
  if (const auto found = schema.find("multipleOf"); found != schema.end()) {
    if (!integer || !found->is_number() || found->get<double>() != 1) {
      fail_schema(at + "/multipleOf", "'multipleOf' is not supported");
    }
  }
  // What the bounds say of integers, and whether a bound itself is excluded (numbers only).
  NumberBounds bounds;
  const auto take = [&](const char* key, bool is_low, bool excluded) {
    const auto found = schema.find(key);
    if (found == schema.end()) return;
    const std::string place = at + "/" + key;
    if (excluded && found->is_boolean()) {  // draft 4
      if (*found == true) (is_low ? bounds.low_excluded : bounds.high_excluded) = true;
      return;
    }
    if (!found->is_number()) fail_schema(place, format("'%s' is no number", key));
    const double value = found->get<double>();
    if (!(std::abs(value) < 1e15))
      fail_schema(place, format("'%s' is %g, needed is a number below 1e15", key, value));
    const double whole = is_low ? std::ceil(value) : std::floor(value);
    if (whole != value && !integer)
      fail_schema(place, format("'%s' of a number that is no integer is not supported", key));
    const bool apart = excluded && whole == value;
    const auto n = static_cast<int64_t>(whole);
    std::optional<int64_t>& mine = is_low ? bounds.low : bounds.high;
    bool& mine_excluded = is_low ? bounds.low_excluded : bounds.high_excluded;
    if (!mine || (is_low ? n > *mine : n < *mine)) {
      mine = n;
      mine_excluded = apart;
    } else if (n == *mine) {
      mine_excluded |= apart;
    }
  };
  take("minimum", true, false);
  take("maximum", false, false);
  take("exclusiveMinimum", true, true);
  take("exclusiveMaximum", false, true);
  if (!bounds.low && !bounds.high) return integer ? json_.integer() : json_.number();
  if (integer) {
    if (bounds.low && bounds.low_excluded) ++*bounds.low;
    if (bounds.high && bounds.high_excluded) --*bounds.high;
    bounds.low_excluded = bounds.high_excluded = false;
  }
  if (bounds.low && bounds.high &&
      (*bounds.low > *bounds.high ||
       (*bounds.low == *bounds.high && (bounds.low_excluded || bounds.high_excluded)))) {
    fail_schema(at, "no number lies between its bounds");
  }
  const auto text = [](const std::optional<int64_t>& bound) {
    return bound ? std::to_string(*bound) : std::string("any");
  };
  const std::string name =
      format("JSON %s %s%s to %s%s", integer ? "integer" : "number", bounds.low_excluded ? ">" : "",
             text(bounds.low).c_str(), bounds.high_excluded ? "<" : "", text(bounds.high).c_str());
  return json_.shared(
      name, [&] { return integer ? integers_between(bounds.low, bounds.high) : numbers_between(bounds); });
}

int parse_json_schema(std::string_view text, JsonStyle style, Rules& rules,
                      std::vector<std::string>& warnings) {
  return SchemaParser(text, style, rules, warnings).parse();
}

}  // namespace vllm

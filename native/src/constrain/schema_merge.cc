#include "constrain/schema_merge.h"

#include <algorithm>
#include <cmath>

#include "constrain/expression.h"

namespace vllm {
namespace {

constexpr int kMergeDepth = 64;
constexpr size_t kMaxBranches = 256;

std::string unescape_fragment(std::string_view text, const std::string& at) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const auto hex = [&](size_t k) {
      const char c = k < text.size() ? text[k] : ' ';
      return c >= '0' && c <= '9'                     ? c - '0'
             : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                      : -1;
    };
    if (hex(i + 1) < 0 || hex(i + 2) < 0) fail_schema(at, "'$ref' has a '%' without two hexadecimal digits");
    out += static_cast<char>(hex(i + 1) * 16 + hex(i + 2));
    i += 2;
  }
  return out;
}

Json all_of(const Json& a, const Json& b) {
  if (a == b) return a;
  return Json{{"allOf", Json::array({a, b})}};
}

/// Types as a list; "number" is spelt as it stands.
std::vector<std::string> types_of(const Json& type) {
  std::vector<std::string> list;
  for (const Json& t : type.is_array() ? type : Json::array({type})) {
    if (t.is_string()) list.push_back(t.get<std::string>());
  }
  return list;
}

}  // namespace

void fail_schema(const std::string& at, const std::string& what) {
  fail_argument("JSON schema, at %s: %s.", quote(at).c_str(), what.c_str());
}

int schema_count(const Json& schema, const char* key, int otherwise, const std::string& at) {
  const auto found = schema.find(key);
  if (found == schema.end()) return otherwise;
  const double value = found->is_number() ? found->get<double>() : -1;
  if (value < 0 || value != std::floor(value)) fail_schema(at, format("'%s' is no natural number", key));
  if (value > GrammarLimits::kRepetitions) {
    fail_schema(at, format("'%s' is %.0f, allowed are %d", key, value, GrammarLimits::kRepetitions));
  }
  return static_cast<int>(value);
}

bool is_annotation(std::string_view keyword) {
  static constexpr std::string_view kKnown[] = {"type",
                                                "properties",
                                                "required",
                                                "additionalProperties",
                                                "patternProperties",
                                                "propertyNames",
                                                "minProperties",
                                                "maxProperties",
                                                "items",
                                                "prefixItems",
                                                "additionalItems",
                                                "minItems",
                                                "maxItems",
                                                "uniqueItems",
                                                "contains",
                                                "minContains",
                                                "maxContains",
                                                "not",
                                                "if",
                                                "then",
                                                "else",
                                                "dependentSchemas",
                                                "dependentRequired",
                                                "dependencies",
                                                "unevaluatedProperties",
                                                "unevaluatedItems",
                                                "minLength",
                                                "maxLength",
                                                "pattern",
                                                "format",
                                                "minimum",
                                                "maximum",
                                                "exclusiveMinimum",
                                                "exclusiveMaximum",
                                                "multipleOf",
                                                "enum",
                                                "const",
                                                "anyOf",
                                                "oneOf",
                                                "allOf",
                                                "$ref",
                                                "$dynamicRef",
                                                "$recursiveRef",
                                                "nullable"};
  return std::find(std::begin(kKnown), std::end(kKnown), keyword) == std::end(kKnown);
}

bool restricts(const Json& schema, std::initializer_list<std::string_view> except) {
  for (const auto& [key, value] : schema.items()) {
    if (!is_annotation(key) && std::find(except.begin(), except.end(), key) == except.end()) return true;
  }
  return false;
}

const Json& SchemaDocument::resolve(const std::string& ref, const std::string& at,
                                    std::string& pointer) const {
  if (ref.empty() || ref[0] != '#') {
    fail_schema(at, "'$ref' to " + quote(ref) +
                        " leaves the document; only references that begin with '#' are followed");
  }
  const std::string path = unescape_fragment(std::string_view(ref).substr(1), at);
  pointer = "#" + path;
  const Json* place = &root_;
  if (!path.empty() && path[0] != '/') fail_schema(at, "'$ref' to " + quote(ref) + " is no JSON pointer");
  for (size_t i = 0; i < path.size();) {
    const size_t end = std::min(path.find('/', i + 1), path.size());
    std::string key;
    for (size_t k = i + 1; k < end; ++k) {
      if (path[k] == '~' && k + 1 < end && (path[k + 1] == '0' || path[k + 1] == '1')) {
        key += path[++k] == '0' ? '~' : '/';
      } else {
        key += path[k];
      }
    }
    const Json* next = nullptr;
    if (place->is_object()) {
      if (const auto found = place->find(key); found != place->end()) next = &*found;
    } else if (place->is_array() && !key.empty() && key.size() < 7 &&
               key.find_first_not_of("0123456789") == std::string::npos) {
      const size_t index = std::stoul(key);
      if (index < place->size()) next = &(*place)[index];
    }
    if (next == nullptr) fail_schema(at, "'$ref' to " + quote(ref) + " points at nothing");
    place = next;
    i = end;
  }
  return *place;
}

Json SchemaDocument::flatten(const Json& schema, const std::string& at, int depth) const {
  if (depth > kMergeDepth)
    fail_schema(at, "'$ref' and 'allOf' lead back to themselves, or are chained too deep");
  if (!schema.is_object()) return schema;
  const bool has_ref = schema.contains("$ref");
  const bool has_all = schema.contains("allOf");
  if (!has_ref && !has_all) {
    if (!schema.contains("nullable") || !schema.contains("type")) return schema;
    Json copy = schema;
    copy.erase("nullable");
    if (schema["nullable"] == true) {
      Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
      types.push_back("null");
      copy["type"] = std::move(types);
    }
    return copy;
  }
  Json result = schema;
  result.erase("$ref");
  result.erase("allOf");
  result = flatten(result, at, depth + 1);
  if (has_ref) {
    if (!schema["$ref"].is_string()) fail_schema(at, "'$ref' is no string");
    std::string pointer;
    const Json& target = resolve(schema["$ref"].get<std::string>(), at, pointer);
    result = merge(flatten(target, pointer, depth + 1), result, at, depth + 1);
  }
  if (has_all) {
    if (!schema["allOf"].is_array()) fail_schema(at, "'allOf' is no list");
    for (const Json& part : schema["allOf"])
      result = merge(result, flatten(part, at, depth + 1), at, depth + 1);
  }
  return result;
}

void SchemaDocument::merge_objects(Json& result, const Json& a, const Json& b) const {
  const auto side = [&](const Json& own, const Json& other) {
    if (!own.contains("properties") || !own["properties"].is_object()) return;
    for (const auto& [name, schema] : own["properties"].items()) {
      Json& merged = result["properties"][name];
      if (!merged.is_null()) continue;
      merged = schema;
      if (other.contains("properties") && other["properties"].is_object() &&
          other["properties"].contains(name)) {
        merged = all_of(schema, other["properties"][name]);
      } else if (other.contains("additionalProperties")) {
        const Json& rest = other["additionalProperties"];
        if (rest == false) merged = false;
        if (rest.is_object()) merged = all_of(schema, rest);
      }
    }
  };
  result.erase("properties");
  side(a, b);
  side(b, a);
}

void SchemaDocument::merge_keyword(Json& result, const std::string& key, const Json& value,
                                   const std::string& at) const {
  Json& mine = result[key];
  if (mine == value) return;
  const auto larger = [&] {
    if (value.is_number() && mine.is_number() && value.get<double>() > mine.get<double>()) mine = value;
  };
  const auto smaller = [&] {
    if (value.is_number() && mine.is_number() && value.get<double>() < mine.get<double>()) mine = value;
  };
  if (key == "type") {
    Json both = Json::array();
    for (const std::string& a : types_of(mine)) {
      for (const std::string& b : types_of(value)) {
        const bool integer = (a == "integer" && b == "number") || (a == "number" && b == "integer");
        if (a == b || integer) both.push_back(integer ? "integer" : a);
      }
    }
    if (both.empty()) {
      result = false;
    } else {
      mine = std::move(both);
    }
  } else if (key == "enum") {
    Json both = Json::array();
    for (const Json& v : mine) {
      if (std::find(value.begin(), value.end(), v) != value.end()) both.push_back(v);
    }
    if (both.empty()) {
      result = false;
    } else {
      mine = std::move(both);
    }
  } else if (key == "const") {
    result = false;
  } else if (key == "required") {
    for (const Json& name : value) {
      if (std::find(mine.begin(), mine.end(), name) == mine.end()) mine.push_back(name);
    }
  } else if (key == "minimum" || key == "exclusiveMinimum" || key == "minLength" || key == "minItems" ||
             key == "minProperties") {
    larger();
  } else if (key == "maximum" || key == "exclusiveMaximum" || key == "maxLength" || key == "maxItems" ||
             key == "maxProperties") {
    smaller();
  } else if (key == "additionalProperties") {
    mine = mine == true                      ? value
           : value == true                   ? mine
           : mine == false || value == false ? Json(false)
                                             : all_of(mine, value);
  } else if (key == "items" && !mine.is_array() && !value.is_array() && !result.contains("prefixItems")) {
    mine = all_of(mine, value);
  } else if (key == "anyOf" || key == "oneOf") {
    if (!mine.is_array() || !value.is_array()) fail_schema(at, "'" + key + "' is no list");
    if (mine.size() * value.size() > kMaxBranches) fail_schema(at, "too many combinations of '" + key + "'");
    Json pairs = Json::array();
    for (const Json& a : mine) {
      for (const Json& b : value) pairs.push_back(all_of(a, b));
    }
    mine = std::move(pairs);
  } else if (key == "nullable") {
    mine = mine == true && value == true;
  } else {
    fail_schema(at, "two values of '" + key + "' that must hold together cannot be combined");
  }
}

Json SchemaDocument::merge(const Json& a, const Json& b, const std::string& at, int depth) const {
  if (depth > kMergeDepth)
    fail_schema(at, "'$ref' and 'allOf' lead back to themselves, or are chained too deep");
  if (a == true) return b;
  if (b == true) return a;
  if (a == false || b == false) return false;
  if (!a.is_object() || !b.is_object()) fail_schema(at, "a schema is neither an object nor a boolean");
  const bool tuples = a.contains("prefixItems") || b.contains("prefixItems");
  if (tuples && (a.contains("items") || a.contains("prefixItems")) &&
      (b.contains("items") || b.contains("prefixItems"))) {
    fail_schema(at, "'prefixItems' and 'items' that must hold together cannot be combined");
  }
  Json result = a;
  for (const auto& [key, value] : b.items()) {
    if (key == "properties") continue;
    if (is_annotation(key) || !result.contains(key)) {
      result[key] = value;
    } else {
      merge_keyword(result, key, value, at);
      if (result == false) return false;
    }
  }
  if (a.contains("properties") || b.contains("properties")) merge_objects(result, a, b);
  return result;
}

}  // namespace vllm

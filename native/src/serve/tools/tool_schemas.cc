#include "serve/tools/tool_schemas.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "serve/parsing/reader.h"

namespace vllm {
namespace {

constexpr int kMaxSchemaDepth = 32;

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return result;
}

/// The JSON type that a schema's type word means.
std::string json_type(const std::string& word) {
  static const std::map<std::string, std::string, std::less<>> kAliases = {
      {"str", "string"},       {"text", "string"},   {"varchar", "string"}, {"char", "string"},
      {"enum", "string"},      {"int", "integer"},   {"long", "integer"},   {"short", "integer"},
      {"unsigned", "integer"}, {"double", "number"}, {"bool", "boolean"},   {"dict", "object"},
      {"arr", "array"},        {"list", "array"},    {"sequence", "array"},
  };
  const std::string name = lower(word);
  if (const auto alias = kAliases.find(name); alias != kAliases.end()) return alias->second;
  if (name.starts_with("int") && name != "integer") return "integer";
  if (name.starts_with("uint")) return "integer";
  if (name.starts_with("float")) return "number";
  return name;
}

std::string type_of_value(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::boolean:
      return "boolean";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return "integer";
    case Json::value_t::number_float:
      return "number";
    case Json::value_t::object:
      return "object";
    case Json::value_t::array:
      return "array";
    default:
      return "string";
  }
}

/// Decimal digits with an optional sign, as JSON writes them; empty when `text` is no integer.
std::string integer_json(std::string_view text) {
  text = trim(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || text.find_first_not_of("0123456789") != text.npos) return "";
  text.remove_prefix(std::min(text.find_first_not_of('0'), text.size() - 1));
  return (negative && text != "0" ? "-" : "") + std::string(text);
}

std::string number_json(std::string_view text) {
  text = trim(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || text.find_first_not_of("0123456789+-.eE") != text.npos) return "";
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return "";
  if (value == 0) return "0";
  if (value == std::floor(value)) return format("%.0f", value);
  return dump_json(Json(value));
}

void write_spaced(const Json& value, std::string* out) {
  if (value.is_object()) {
    *out += '{';
    bool first = true;
    for (const auto& item : value.items()) {
      if (!first) *out += ", ";
      first = false;
      *out += json_quote(item.key()) + ": ";
      write_spaced(item.value(), out);
    }
    *out += '}';
  } else if (value.is_array()) {
    *out += '[';
    for (size_t i = 0; i < value.size(); ++i) {
      if (i) *out += ", ";
      write_spaced(value[i], out);
    }
    *out += ']';
  } else {
    *out += dump_json(value);
  }
}

}  // namespace

std::string json_quote(std::string_view text) { return dump_json(Json(text)); }

std::string spaced_json(const Json& value) {
  std::string out;
  write_spaced(value, &out);
  return out;
}

Json try_json(std::string_view text) {
  try {
    return parse_json(text, "value", Status::InvalidArgument);
  } catch (const Error&) {
    return Json(Json::value_t::discarded);
  }
}

ToolSchemas::ToolSchemas(const Json& tools) {
  if (!tools.is_array()) return;
  for (const Json& tool : tools) {
    if (!tool.is_object()) continue;
    const auto function = tool.find("function");
    const Json& body = function != tool.end() && function->is_object() ? *function : tool;
    const auto name = body.find("name");
    if (name == body.end() || !name->is_string()) continue;
    const auto parameters = body.find("parameters");
    const bool present = parameters != body.end() && parameters->is_object();
    parameters_.emplace(name->get<std::string>(), present ? *parameters : Json::object());
  }
}

const Json* ToolSchemas::argument(std::string_view tool, std::string_view name) const {
  const auto schema = parameters_.find(tool);
  if (schema == parameters_.end()) return nullptr;
  const auto properties = schema->second.find("properties");
  if (properties == schema->second.end() || !properties->is_object()) return nullptr;
  const auto property = properties->find(name);
  return property == properties->end() ? nullptr : &*property;
}

std::vector<std::string> ToolSchemas::argument_names(std::string_view tool) const {
  std::vector<std::string> names;
  const auto schema = parameters_.find(tool);
  if (schema == parameters_.end()) return names;
  const auto properties = schema->second.find("properties");
  if (properties == schema->second.end() || !properties->is_object()) return names;
  for (const auto& item : properties->items()) names.push_back(item.key());
  return names;
}

std::vector<std::string> ToolSchemas::required(std::string_view tool) const {
  std::vector<std::string> names;
  const auto schema = parameters_.find(tool);
  if (schema == parameters_.end()) return names;
  const auto required = schema->second.find("required");
  if (required == schema->second.end() || !required->is_array()) return names;
  for (const Json& name : *required) {
    if (name.is_string()) names.push_back(name.get<std::string>());
  }
  return names;
}

void ToolSchemas::collect_types(const Json& schema, const Json& root, int depth,
                                std::vector<std::string>* types) const {
  if (!schema.is_object() || depth > kMaxSchemaDepth || types->size() > 64) return;
  if (const auto type = schema.find("type"); type != schema.end()) {
    if (type->is_string()) types->push_back(json_type(type->get<std::string>()));
    if (type->is_array()) {
      for (const Json& one : *type) {
        if (one.is_string()) types->push_back(json_type(one.get<std::string>()));
      }
    }
  }
  if (const auto values = schema.find("enum"); values != schema.end() && values->is_array()) {
    for (const Json& value : *values) {
      const std::string type = type_of_value(value);
      if (std::find(types->begin(), types->end(), type) == types->end()) types->push_back(type);
    }
  }
  if (schema.value("nullable", Json()) == true) types->push_back("null");
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    const auto branches = schema.find(key);
    if (branches == schema.end() || !branches->is_array()) continue;
    for (const Json& branch : *branches) collect_types(branch, root, depth + 1, types);
  }
  if (const auto reference = schema.find("$ref"); reference != schema.end() && reference->is_string()) {
    const std::string& path = reference->get_ref<const std::string&>();
    for (const char* place : {"$defs", "definitions"}) {
      const std::string prefix = std::string("#/") + place + "/";
      const auto definitions = root.find(place);
      if (!path.starts_with(prefix) || definitions == root.end() || !definitions->is_object()) continue;
      const auto target = definitions->find(path.substr(prefix.size()));
      if (target != definitions->end()) collect_types(*target, root, depth + 1, types);
    }
  }
}

std::vector<std::string> ToolSchemas::types_of(std::string_view tool, std::string_view name) const {
  std::vector<std::string> types;
  if (const Json* schema = argument(tool, name)) {
    collect_types(*schema, parameters_.find(tool)->second, 0, &types);
  }
  if (types.empty()) types.push_back("string");
  return types;
}

bool ToolSchemas::is_text(std::string_view tool, std::string_view name) const {
  const std::vector<std::string> types = types_of(tool, name);
  return std::all_of(types.begin(), types.end(), [](const std::string& type) { return type == "string"; });
}

std::string ToolSchemas::to_json(std::string_view tool, std::string_view name, std::string_view text) const {
  const std::vector<std::string> types = types_of(tool, name);
  const auto allows = [&](const char* type) {
    return std::find(types.begin(), types.end(), type) != types.end();
  };
  const std::string word = lower(trim(text));
  if (allows("null") && word == "null") return "null";
  if (allows("integer")) {
    if (std::string json = integer_json(text); !json.empty()) return json;
  }
  if (allows("number")) {
    if (std::string json = number_json(text); !json.empty()) return json;
  }
  if (allows("boolean")) {
    if (word == "true" || word == "1") return "true";
    if (word == "false" || word == "0") return "false";
  }
  if (allows("object") || allows("array")) {
    const Json value = try_json(text);
    if ((allows("object") && value.is_object()) || (allows("array") && value.is_array())) {
      return spaced_json(value);
    }
  }
  if (allows("string")) return json_quote(text);
  // Integers of any length keep their digits.
  if (const std::string json = integer_json(text); !json.empty() && trim(text).find_first_of("+0") != 0)
    return json;
  const Json value = try_json(text);
  return value.is_discarded() ? json_quote(text) : spaced_json(value);
}

}  // namespace vllm

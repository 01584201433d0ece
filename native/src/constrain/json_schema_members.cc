// Objects and arrays of a JSON schema.
#include <algorithm>
#include <set>

#include "constrain/json_schema.h"
#include "constrain/json_text.h"

namespace vllm {
namespace {

std::string escape_pointer(const std::string& key) {
  std::string out;
  for (const char c : key) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

Expression SchemaParser::visit_array(const Json& schema, const std::string& at) {
  Json prefix = schema.value("prefixItems", Json::array());
  Json rest = true;
  std::string prefix_at = at + "/prefixItems", rest_at = at + "/items";
  if (const auto found = schema.find("items"); found != schema.end()) {
    if (found->is_array()) {
      prefix = *found;
      prefix_at = at + "/items";
      rest = schema.value("additionalItems", Json(true));
      rest_at = at + "/additionalItems";
    } else {
      rest = *found;
    }
  }
  if (!prefix.is_array()) fail_schema(prefix_at, "'prefixItems' is no list of schemas");
  const int min = schema_count(schema, "minItems", 0, at + "/minItems");
  int max = schema_count(schema, "maxItems", kUnbounded, at + "/maxItems");
  if (max != kUnbounded && max < min) fail_schema(at, "'maxItems' is less than 'minItems'");
  int fixed = static_cast<int>(prefix.size());
  for (int i = 0; i < fixed; ++i) {
    if (prefix[i] == false) fixed = max = max == kUnbounded ? i : std::min(i, max);
  }
  if (max != kUnbounded && fixed > max) fixed = max;
  if (rest == false) max = max == kUnbounded ? fixed : std::min(max, fixed);
  if (max != kUnbounded && max < min) fail_schema(at, "no list is long enough for 'minItems'");
  if (max == 0) return sequence(literal("["), json_.space(), literal("]"));

  std::vector<Expression> parts;
  for (int i = 0; i < fixed; ++i) {
    Expression item = visit(prefix[i], prefix_at + "/" + std::to_string(i));
    parts.push_back(i == 0 ? std::move(item) : sequence(json_.comma(), std::move(item)));
  }
  if (max == kUnbounded || max > fixed) {
    Expression item = visit(rest, rest_at);
    if (item.kind != Expression::Kind::Reference) item = reference(new_rule(rest_at, std::move(item)));
    const int first = fixed == 0 ? 1 : 0;
    Expression more = repeat(sequence(json_.comma(), item), std::max(min - fixed - first, 0),
                             max == kUnbounded ? kUnbounded : max - fixed - first);
    if (first == 1) {
      parts.push_back(sequence(std::move(item), std::move(more)));
    } else {
      parts.back() = sequence(std::move(parts.back()), std::move(more));
    }
  }
  const int needed = std::max(1, std::min(min, static_cast<int>(parts.size())));
  return reference(new_rule(at, json_.enclosed("[", prefix_of(std::move(parts), needed), min == 0, "]")));
}

std::vector<SchemaParser::Property> SchemaParser::properties_of(const Json& schema,
                                                                const std::string& at) const {
  static const Json kAny = true;
  std::set<std::string> required;
  std::vector<std::string> order;
  if (const auto found = schema.find("required"); found != schema.end() && !found->is_boolean()) {
    if (!found->is_array()) fail_schema(at + "/required", "'required' is no list of names");
    for (const Json& name : *found) {
      if (!name.is_string()) fail_schema(at + "/required", "'required' is no list of names");
      if (required.insert(name.get<std::string>()).second) order.push_back(name.get<std::string>());
    }
  }
  std::vector<Property> list;
  if (const auto found = schema.find("properties"); found != schema.end()) {
    if (!found->is_object()) fail_schema(at + "/properties", "'properties' is no object");
    for (const auto& [name, property] : found->items()) {
      list.push_back({name, &property, required.erase(name) > 0, at + "/properties/" + escape_pointer(name)});
    }
  }
  const auto additional = schema.find("additionalProperties");
  for (const std::string& name : order) {
    if (!required.contains(name)) continue;
    if (additional != schema.end() && *additional == false) {
      fail_schema(at + "/required",
                  quote(name) + " is required, but neither among 'properties' nor allowed beside them");
    }
    list.push_back(
        {name, additional != schema.end() ? &*additional : &kAny, true, at + "/additionalProperties"});
  }
  return list;
}

Expression SchemaParser::visit_object(const Json& schema, const std::string& at) {
  std::vector<Property> properties = properties_of(schema, at);
  const auto additional = schema.find("additionalProperties");
  const bool open = additional == schema.end() ? !schema.contains("properties") : *additional != false;
  const int min = schema_count(schema, "minProperties", 0, at + "/minProperties");
  const int max = schema_count(schema, "maxProperties", kUnbounded, at + "/maxProperties");

  std::vector<std::string> taken;
  for (const Property& property : properties) taken.push_back(json_string_body(property.name));
  std::erase_if(properties, [&](const Property& property) {
    if (*property.schema != false) return false;
    if (property.required) fail_schema(property.at, quote(property.name) + " is required, but fits no value");
    return true;
  });
  const auto needed =
      std::count_if(properties.begin(), properties.end(), [](const Property& p) { return p.required; });
  const bool map = open && taken.empty();
  if (min > needed && !(map && min == 1)) {
    fail_schema(at + "/minProperties",
                "'minProperties' beyond the number of required properties is not supported");
  }
  if (max != kUnbounded && !map && (open || static_cast<size_t>(max) < properties.size())) {
    fail_schema(at + "/maxProperties", "'maxProperties' beside 'properties' is not supported");
  }
  if (map && additional == schema.end() && min == 0 && max == kUnbounded) return json_.object();
  if (max != kUnbounded && max < min) fail_schema(at, "'maxProperties' is less than 'minProperties'");

  Expression extra;
  if (open) {
    Expression key;
    if (taken.empty()) {
      key = json_.string();
    } else {
      Expression other;
      other.kind = Expression::Kind::OtherKey;
      other.texts = taken;
      key = sequence(literal("\""), reference(new_rule(at, std::move(other))), literal("\""));
    }
    Expression value =
        additional == schema.end() ? json_.value() : visit(*additional, at + "/additionalProperties");
    extra = reference(
        new_rule(at + "/additionalProperties", sequence(std::move(key), json_.colon(), std::move(value))));
  }
  bool may_be_empty = min == 0;
  Expression inside;
  if (map) {
    if (max == 0) return sequence(literal("{"), json_.space(), literal("}"));
    inside =
        sequence(extra, repeat(sequence(json_.comma(), extra), 0, max == kUnbounded ? kUnbounded : max - 1));
  } else {
    if (properties.empty() && !open) return sequence(literal("{"), json_.space(), literal("}"));
    inside = members(properties, open ? &extra : nullptr, may_be_empty, at);
  }
  return reference(new_rule(at, json_.enclosed("{", std::move(inside), may_be_empty, "}")));
}

/// In order: every required property, any of the others, then extras; commas between those that are there.
Expression SchemaParser::members(const std::vector<Property>& properties, const Expression* extra,
                                 bool& may_be_empty, const std::string& at) {
  const size_t count = properties.size();
  size_t first_required = 0;
  while (first_required < count && !properties[first_required].required) ++first_required;
  may_be_empty = first_required == count;
  // What can come first is met twice: as the first member and behind another one.
  std::vector<Expression> member(count);
  for (size_t i = 0; i < count; ++i) {
    member[i] = sequence(literal(json_quoted(properties[i].name)), json_.colon(),
                         visit(*properties[i].schema, properties[i].at));
    if (first_required > 0 && i <= first_required)
      member[i] = reference(new_rule(properties[i].at, std::move(member[i])));
  }
  const auto behind = [&](size_t i) {
    Expression e = sequence(json_.comma(), member[i]);
    return properties[i].required ? e : optional(std::move(e));
  };
  std::vector<Expression> tail;  // from first_required + 1 on
  for (size_t i = first_required + 1; i < count; ++i) tail.push_back(behind(i));
  if (extra != nullptr) tail.push_back(star(sequence(json_.comma(), *extra)));
  Expression rest = sequence_of(std::move(tail));
  if (first_required == 0 && count > 0) return sequence(member[0], std::move(rest));

  rest = reference(new_rule(at, std::move(rest)));
  std::vector<Expression> ways;
  if (extra != nullptr && may_be_empty) ways.push_back(sequence(*extra, rest));
  for (size_t i = std::min(first_required + 1, count); i-- > 0;) {
    if (i < first_required && i + 1 < count) {
      rest = reference(new_rule(at, sequence(behind(i + 1), rest)));
    }
    ways.push_back(sequence(member[i], rest));
  }
  return alternatives(std::move(ways));
}

}  // namespace vllm

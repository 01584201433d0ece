#include "constrain/json_rules.h"

#include "base/error.h"
#include "constrain/front_ends.h"
#include "constrain/json_text.h"

namespace vllm {

int JsonRules::find(const std::string& name) const {
  for (size_t i = 0; i < rules_.size(); ++i) {
    if (rules_[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

Expression JsonRules::shared(const std::string& name, const std::function<Expression()>& body) {
  if (const int known = find(name); known >= 0) return reference(known);
  Expression made = body();
  rules_.push_back({name, std::move(made)});
  return reference(static_cast<int>(rules_.size()) - 1);
}

Expression JsonRules::space() {
  if (compact_) return {};
  return shared("JSON space", [] { return json_space(); });
}

Expression JsonRules::string() {
  return shared("JSON string",
                [] { return sequence(literal("\""), star(json_string_char()), literal("\"")); });
}

Expression JsonRules::number() {
  return shared("JSON number", [] { return json_number(); });
}

Expression JsonRules::integer() {
  return shared("JSON integer", [] { return json_integer(); });
}

Expression JsonRules::enclosed(const char* open, Expression members, bool may_be_empty, const char* close) {
  Expression inside = sequence(std::move(members), space());
  if (may_be_empty) inside = optional(std::move(inside));
  return sequence(literal(open), space(), std::move(inside), literal(close));
}

/// Value, object and array refer to each other.
void JsonRules::add_values() {
  const Expression string = this->string(), number = this->number();
  const int first = static_cast<int>(rules_.size());
  rules_.push_back({"JSON value", {}});
  rules_.push_back({"JSON object", {}});
  rules_.push_back({"JSON array", {}});
  const Expression value = reference(first);
  const Expression member = sequence(string, colon(), value);
  rules_[first].body = any_of(reference(first + 1), reference(first + 2), string, number, literal("true"),
                              literal("false"), literal("null"));
  Expression object = enclosed("{", sequence(member, star(sequence(comma(), member))), true, "}");
  rules_[first + 1].body = std::move(object);
  Expression array = enclosed("[", sequence(value, star(sequence(comma(), value))), true, "]");
  rules_[first + 2].body = std::move(array);
}

Expression JsonRules::value() {
  if (find("JSON value") < 0) add_values();
  return reference(find("JSON value"));
}

Expression JsonRules::object() {
  if (find("JSON object") < 0) add_values();
  return reference(find("JSON object"));
}

Expression JsonRules::array() {
  if (find("JSON array") < 0) add_values();
  return reference(find("JSON array"));
}

int add_json_object(bool compact, Rules& rules) { return JsonRules(rules, compact).object().rule; }
int add_json_value(bool compact, Rules& rules) { return JsonRules(rules, compact).value().rule; }

}  // namespace vllm

#include "constrain/json_rules.h"

#include "base/error.h"
#include "constrain/front_ends.h"
#include "constrain/json_text.h"

namespace vllm {

JsonRules::JsonRules(Rules& rules, bool compact) : rules_(rules), compact_(compact) {
  // Those that another user of the same rules has added; names of other rules do not begin like this.
  for (size_t i = 0; i < rules.size(); ++i) {
    if (rules[i].name.starts_with("JSON ")) shared_.emplace(rules[i].name, static_cast<int>(i));
  }
}

Expression JsonRules::shared(const std::string& name, const std::function<Expression()>& body) {
  if (const auto known = shared_.find(name); known != shared_.end()) return reference(known->second);
  Expression made = body();
  rules_.push_back({name, std::move(made)});
  shared_.emplace(name, static_cast<int>(rules_.size()) - 1);
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
Expression JsonRules::named_value(const char* name) {
  if (const auto known = shared_.find(name); known != shared_.end()) return reference(known->second);
  const Expression string = this->string(), number = this->number();
  const Expression comma = this->comma(), colon = this->colon();
  int next = static_cast<int>(rules_.size());
  for (const char* each : {"JSON value", "JSON object", "JSON array"}) {
    shared_.emplace(each, next++);
    rules_.push_back({each, {}});
  }
  const Expression value = this->value();
  const Expression member = sequence(string, colon, value);
  rules_[value.rule].body =
      any_of(object(), array(), string, number, literal("true"), literal("false"), literal("null"));
  rules_[object().rule].body = enclosed("{", sequence(member, star(sequence(comma, member))), true, "}");
  rules_[array().rule].body = enclosed("[", sequence(value, star(sequence(comma, value))), true, "]");
  return reference(shared_.at(name));
}

Expression JsonRules::value() { return named_value("JSON value"); }
Expression JsonRules::object() { return named_value("JSON object"); }
Expression JsonRules::array() { return named_value("JSON array"); }

int add_json_object(bool compact, Rules& rules) { return JsonRules(rules, compact).object().rule; }
int add_json_value(bool compact, Rules& rules) { return JsonRules(rules, compact).value().rule; }

}  // namespace vllm

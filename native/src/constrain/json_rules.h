// The rules that all JSON constraints of one grammar share.
#pragma once
#include <functional>
#include <map>
#include <string>

#include "constrain/expression.h"

namespace vllm {

class JsonRules {
 public:
  /// `compact`: no white space between the tokens of JSON. One choice for all of `rules`.
  JsonRules(Rules& rules, bool compact);

  /// The rule with this name, which `body` makes when it is not there yet. `body` must not refer to the rule
  /// itself.
  Expression shared(const std::string& name, const std::function<Expression()>& body);

  Expression space();
  Expression string();
  Expression value();
  Expression object();
  Expression array();
  Expression number();
  Expression integer();

  Expression comma() { return sequence(space(), literal(","), space()); }
  Expression colon() { return sequence(space(), literal(":"), space()); }
  /// `open` space [members space] `close`; members may be absent when `may_be_empty`.
  Expression enclosed(const char* open, Expression members, bool may_be_empty, const char* close);

 private:
  Expression named_value(const char* name);
  Rules& rules_;
  bool compact_;
  std::map<std::string, int> shared_;  // rules by name
};

}  // namespace vllm

// What the front ends (GBNF, regex, JSON Schema, tags) make of their texts, and the grammar is built from.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "constrain/char_set.h"

namespace vllm {

constexpr int kUnbounded = -1;

struct Expression {
  enum class Kind : uint8_t {
    Sequence,      // parts one after the other; none: the empty text
    Alternatives,  // one of parts; none: nothing matches
    Literal,       // the bytes of text
    Chars,         // one character of chars, as UTF-8
    Repeat,        // parts[0], min to max times
    Prefix,        // the first k of parts, min <= k <= their number
    Reference,     // the rule with index `rule`
    Tokens,        // one token of ids, whatever its bytes
    FreeText,      // bytes in which none of texts occurs; and any token of ids
    OtherKey,  // the inside of a JSON string that spells none of texts; escapes only where JSON needs them.
               // With chars: one or more of these, no blank first, that are none of texts
  };
  Kind kind = Kind::Sequence;
  int min = 0;
  int max = 0;
  int rule = 0;
  std::string text;
  CharSet chars;
  std::vector<int32_t> ids;
  std::vector<std::string> texts;
  std::vector<Expression> parts;
};

inline Expression literal(std::string_view text) {
  Expression e;
  e.kind = Expression::Kind::Literal;
  e.text = text;
  return e;
}

inline Expression chars(CharSet set) {
  Expression e;
  e.kind = Expression::Kind::Chars;
  e.chars = std::move(set);
  return e;
}

inline Expression reference(int rule) {
  Expression e;
  e.kind = Expression::Kind::Reference;
  e.rule = rule;
  return e;
}

inline Expression with_parts(Expression::Kind kind, std::vector<Expression> parts) {
  if (parts.size() == 1) return std::move(parts[0]);
  Expression e;
  e.kind = kind;
  e.parts = std::move(parts);
  return e;
}

inline Expression alternatives(std::vector<Expression> parts) {
  return with_parts(Expression::Kind::Alternatives, std::move(parts));
}

inline Expression sequence_of(std::vector<Expression> parts) {
  return with_parts(Expression::Kind::Sequence, std::move(parts));
}

template <typename... Parts>
Expression sequence(Parts&&... parts) {
  std::vector<Expression> list;
  list.reserve(sizeof...(parts));
  (list.push_back(std::forward<Parts>(parts)), ...);
  return sequence_of(std::move(list));
}

template <typename... Parts>
Expression any_of(Parts&&... parts) {
  std::vector<Expression> list;
  list.reserve(sizeof...(parts));
  (list.push_back(std::forward<Parts>(parts)), ...);
  return alternatives(std::move(list));
}

inline Expression repeat(Expression part, int min, int max) {
  Expression e;
  e.kind = Expression::Kind::Repeat;
  e.parts.push_back(std::move(part));
  e.min = min;
  e.max = max;
  return e;
}

inline Expression optional(Expression part) { return repeat(std::move(part), 0, 1); }
inline Expression star(Expression part) { return repeat(std::move(part), 0, kUnbounded); }

/// The first k of `parts`, min <= k.
inline Expression prefix_of(std::vector<Expression> parts, int min) {
  Expression e;
  e.kind = Expression::Kind::Prefix;
  e.parts = std::move(parts);
  e.min = min;
  return e;
}

struct Rule {
  std::string name;  // as the author of the grammar knows it
  Expression body;
};

/// Rules refer to each other by index.
using Rules = std::vector<Rule>;

/// Bounds that all front ends share. Beyond them a text is refused with the limit's name.
struct GrammarLimits {
  static constexpr int kDepth = 256;  // nesting of groups, of schemas
  static constexpr int kRules = 10000;
  static constexpr int kRepetitions = 2000;  // of one element
  static constexpr int kStates = 400000;     // of the automaton; copies of a repeated element count each
  static constexpr size_t kTextBytes = 1 << 20;
  static constexpr size_t kChoices = 10000;
};

}  // namespace vllm

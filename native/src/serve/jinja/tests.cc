#include "serve/jinja/tests.h"

#include "serve/jinja/filters.h"
#include "serve/jinja/operators.h"
#include "serve/jinja/print.h"
#include "serve/jinja/unicode_text.h"

namespace vllm::jinja {
namespace {

template <bool (*Holds)(const Value&)>
bool plain(Runtime& rt, const Value& value, const CallArguments& call) {
  const Bound args(rt, "the test", call, {});
  return Holds(value);
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_boolean(const Value& v) { return v.kind == Kind::Bool; }
bool is_true(const Value& v) { return v.kind == Kind::Bool && v.boolean; }
bool is_false(const Value& v) { return v.kind == Kind::Bool && !v.boolean; }
bool is_integer(const Value& v) { return v.kind == Kind::Int || v.kind == Kind::BigInt; }
bool is_float(const Value& v) { return v.kind == Kind::Float; }
bool is_number(const Value& v) { return v.is_number() || v.kind == Kind::BigInt; }
bool is_string(const Value& v) { return v.is_string(); }
bool is_mapping(const Value& v) { return v.kind == Kind::Dict; }
bool is_escaped(const Value& v) { return v.is_string() && v.is_markup; }

bool is_sequence(const Value& v) {
  switch (v.kind) {
    case Kind::Undefined:
    case Kind::Str:
    case Kind::List:
    case Kind::Tuple:
    case Kind::Dict:
    case Kind::Range:
      return true;
    default:
      return false;
  }
}

bool is_callable(const Value& v) {
  switch (v.kind) {
    case Kind::Undefined:
    case Kind::Macro:
    case Kind::Function:
    case Kind::Method:
    case Kind::Joiner:
    case Kind::Loop:
      return true;
    default:
      return false;
  }
}

template <CompareOp Op>
bool comparison(Runtime& rt, const Value& value, const CallArguments& call) {
  return compare(rt, Op, value, Bound(rt, "the test", call, {"other"}, 1)[0]);
}

bool remainder_is(Runtime& rt, const Value& value, const Value& by, int64_t rest) {
  return equals(rt, binary(rt, BinaryOp::Modulo, value, by), make_int(rest));
}
bool odd(Runtime& rt, const Value& value, const CallArguments& call) {
  const Bound args(rt, "odd", call, {});
  return remainder_is(rt, value, make_int(2), 1);
}
bool even(Runtime& rt, const Value& value, const CallArguments& call) {
  const Bound args(rt, "even", call, {});
  return remainder_is(rt, value, make_int(2), 0);
}
bool divisible_by(Runtime& rt, const Value& value, const CallArguments& call) {
  return remainder_is(rt, value, Bound(rt, "divisibleby", call, {"num"}, 1)[0], 0);
}

bool same_as(Runtime& rt, const Value& value, const CallArguments& call) {
  const Bound args(rt, "sameas", call, {"other"}, 1);
  const Value& other = args[0];
  if (value.kind != other.kind) return false;
  if (value.is_none() || value.is_undefined()) return value.is_none() || value.undefined == other.undefined;
  if (value.is_string()) return value.text == other.text && value.size == other.size;
  if (value.kind == Kind::Bool) return value.boolean == other.boolean;
  return value.integer == other.integer;  // also the bits of a float and the address of an object
}

template <CharTest Test>
bool letters(Runtime& rt, const Value& value, const CallArguments& call) {
  const Bound args(rt, "the test", call, {});
  return all_are(Test, text_of(rt, value));
}

bool iterable(Runtime& rt, const Value& value, const CallArguments& call) {
  const Bound args(rt, "iterable", call, {});
  return is_iterable(value);
}
bool is_filter(Runtime& rt, const Value& value, const CallArguments& call) {
  const Bound args(rt, "filter", call, {});
  return value.is_string() && find_filter(value.str());
}
bool is_test(Runtime& rt, const Value& value, const CallArguments& call) {
  const Bound args(rt, "test", call, {});
  return value.is_string() && find_test(value.str());
}

constexpr TestInfo kTable[] = {
    {"defined", plain<is_defined>},
    {"undefined", plain<is_undefined>},
    {"none", plain<is_none>},
    {"string", plain<is_string>},
    {"mapping", plain<is_mapping>},
    {"iterable", iterable},
    {"sequence", plain<is_sequence>},
    {"true", plain<is_true>},
    {"false", plain<is_false>},
    {"boolean", plain<is_boolean>},
    {"integer", plain<is_integer>},
    {"float", plain<is_float>},
    {"number", plain<is_number>},
    {"callable", plain<is_callable>},
    {"escaped", plain<is_escaped>},
    {"odd", odd},
    {"even", even},
    {"divisibleby", divisible_by},
    {"sameas", same_as},
    {"lower", letters<CharTest::Lower>},
    {"upper", letters<CharTest::Upper>},
    {"filter", is_filter},
    {"test", is_test},
    {"in", comparison<CompareOp::In>},
    {"==", comparison<CompareOp::Equal>},
    {"eq", comparison<CompareOp::Equal>},
    {"equalto", comparison<CompareOp::Equal>},
    {"!=", comparison<CompareOp::NotEqual>},
    {"ne", comparison<CompareOp::NotEqual>},
    {">", comparison<CompareOp::Greater>},
    {"gt", comparison<CompareOp::Greater>},
    {"greaterthan", comparison<CompareOp::Greater>},
    {">=", comparison<CompareOp::GreaterEqual>},
    {"ge", comparison<CompareOp::GreaterEqual>},
    {"<", comparison<CompareOp::Less>},
    {"lt", comparison<CompareOp::Less>},
    {"lessthan", comparison<CompareOp::Less>},
    {"<=", comparison<CompareOp::LessEqual>},
    {"le", comparison<CompareOp::LessEqual>},
};

}  // namespace

const TestInfo* find_test(std::string_view name) {
  for (const TestInfo& test : kTable) {
    if (test.name == name) return &test;
  }
  return nullptr;
}

}  // namespace vllm::jinja

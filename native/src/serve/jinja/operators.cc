#include "serve/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "serve/jinja/format.h"
#include "serve/jinja/numbers.h"
#include "serve/jinja/print.h"
#include "serve/jinja/unicode_text.h"
#include "text/unicode.h"

namespace vllm::jinja {

std::string type_name(const Value& value) {
  switch (value.kind) {
    case Kind::Missing:
    case Kind::Undefined:
      return "Undefined";
    case Kind::None:
      return "NoneType";
    case Kind::Bool:
      return "bool";
    case Kind::Int:
    case Kind::BigInt:
      return "int";
    case Kind::Float:
      return "float";
    case Kind::Str:
      return value.is_markup ? "Markup" : "str";
    case Kind::List:
      return "list";
    case Kind::Tuple:
      return "tuple";
    case Kind::Dict:
      return "dict";
    case Kind::Range:
      return "range";
    case Kind::View:
      return value.view->what == View::What::Keys     ? "dict_keys"
             : value.view->what == View::What::Values ? "dict_values"
                                                      : "dict_items";
    case Kind::Iterator:
      return std::string(value.iterator->type_name);
    case Kind::Namespace:
      return "Namespace";
    case Kind::Loop:
      return "LoopContext";
    case Kind::Macro:
      return "Macro";
    case Kind::Function:
      return "function";
    case Kind::Method:
      return "builtin_function_or_method";
    case Kind::Joiner:
      return "Joiner";
    case Kind::Cycler:
      return "Cycler";
  }
  return "object";
}

bool length_of(const Value& value, int64_t& length) {
  switch (value.kind) {
    case Kind::Undefined:
      length = 0;
      return true;
    case Kind::Str:
      length = static_cast<int64_t>(count_chars(value.str()));
      return true;
    case Kind::List:
    case Kind::Tuple:
      length = value.sequence->size;
      return true;
    case Kind::Dict:
      length = value.dict->size;
      return true;
    case Kind::Range:
      length = value.range->size;
      return true;
    case Kind::View:
      length = value.view->dict->size;
      return true;
    default:
      return false;
  }
}

bool truth(const Value& value) {
  switch (value.kind) {
    case Kind::Missing:
    case Kind::Undefined:
    case Kind::None:
      return false;
    case Kind::Bool:
      return value.boolean;
    case Kind::Int:
      return value.integer != 0;
    case Kind::Float:
      return value.number != 0;
    case Kind::Str:
      return value.size != 0;
    default: {
      int64_t length = 1;
      return !length_of(value, length) || length != 0;
    }
  }
}

bool is_iterable(const Value& value) {
  switch (value.kind) {
    case Kind::Undefined:
    case Kind::Str:
    case Kind::List:
    case Kind::Tuple:
    case Kind::Dict:
    case Kind::Range:
    case Kind::View:
    case Kind::Iterator:
    case Kind::Loop:
      return true;
    default:
      return false;
  }
}

std::span<const Value> items_of(Runtime& rt, const Value& value) {
  switch (value.kind) {
    case Kind::Undefined:
      return {};
    case Kind::List:
    case Kind::Tuple:
      return {value.sequence->items, value.sequence->size};
    case Kind::Str: {
      const std::string_view text = value.str();
      const size_t count = count_chars(text);
      rt.charge(count);
      Value* items = rt.arena.allocate_array<Value>(count);
      size_t n = 0;
      for (size_t pos = 0; pos < text.size();) {
        const size_t start = pos;
        read_utf8(text, pos);
        items[n++] = make_str(text.substr(start, pos - start));
      }
      return {items, n};
    }
    case Kind::Dict:
    case Kind::View: {
      const Dict& dict = value.kind == Kind::Dict ? *value.dict : *value.view->dict;
      const View::What what = value.kind == Kind::Dict ? View::What::Keys : value.view->what;
      rt.charge(dict.size);
      Value* items = rt.arena.allocate_array<Value>(dict.size);
      for (uint32_t i = 0; i < dict.size; ++i) {
        const Entry& entry = dict.entries[i];
        items[i] = what == View::What::Keys     ? entry.key
                   : what == View::What::Values ? entry.value
                                                : rt.pair(entry.key, entry.value);
      }
      return {items, dict.size};
    }
    case Kind::Range: {
      const auto size = static_cast<size_t>(value.range->size);
      rt.charge(size);
      Value* items = rt.arena.allocate_array<Value>(size);
      for (size_t i = 0; i < size; ++i) {
        items[i] = make_int(value.range->start + static_cast<int64_t>(i) * value.range->step);
      }
      return {items, size};
    }
    case Kind::Iterator: {
      Iterator& it = *value.iterator;
      const std::span<const Value> rest(it.items + it.next, it.size - it.next);
      it.next = it.size;
      return rest;
    }
    default:
      rt.fail("a %s cannot be iterated over.", type_name(value).c_str());
  }
}

std::string html_escape(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 16);
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

namespace {

constexpr const char* kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};

[[noreturn]] void fail_operands(Runtime& rt, BinaryOp op, const Value& a, const Value& b) {
  if (a.is_undefined()) rt.fail_undefined(a);
  if (b.is_undefined()) rt.fail_undefined(b);
  if (a.kind == Kind::BigInt || b.kind == Kind::BigInt)
    rt.fail("integers beyond 64 bits cannot be computed with.");
  rt.fail("'%s' is not possible between %s and %s.", kSymbols[static_cast<int>(op)], type_name(a).c_str(),
          type_name(b).c_str());
}

[[noreturn]] void fail_overflow(Runtime& rt) {
  rt.fail("the result of the computation does not fit in 64 bits.");
}

Value integer_power(Runtime& rt, int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) fail_overflow(rt);
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) fail_overflow(rt);
  }
  return make_int(result);
}

Value integer_binary(Runtime& rt, BinaryOp op, int64_t a, int64_t b) {
  int64_t out = 0;
  switch (op) {
    case BinaryOp::Add:
      if (__builtin_add_overflow(a, b, &out)) fail_overflow(rt);
      return make_int(out);
    case BinaryOp::Subtract:
      if (__builtin_sub_overflow(a, b, &out)) fail_overflow(rt);
      return make_int(out);
    case BinaryOp::Multiply:
      if (__builtin_mul_overflow(a, b, &out)) fail_overflow(rt);
      return make_int(out);
    case BinaryOp::Divide:
      if (b == 0) rt.fail("division by zero.");
      return make_float(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
    case BinaryOp::FloorDivide:
    case BinaryOp::Modulo: {
      if (b == 0) rt.fail("division by zero.");
      if (b == -1) {
        if (op == BinaryOp::Modulo) return make_int(0);
        if (a == INT64_MIN) fail_overflow(rt);
        return make_int(-a);
      }
      int64_t quotient = a / b, rest = a % b;
      if (rest != 0 && (rest < 0) != (b < 0)) {
        --quotient;
        rest += b;
      }
      return make_int(op == BinaryOp::Modulo ? rest : quotient);
    }
    case BinaryOp::Power:
      if (b >= 0) {
        if (a == 0 || a == 1) return make_int(b == 0 ? 1 : a);
        if (a == -1) return make_int(b % 2 == 0 ? 1 : -1);
        return integer_power(rt, a, b);
      }
      if (a == 0) rt.fail("zero cannot be raised to a negative power.");
      return make_float(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
  return make_none();
}

Value float_binary(Runtime& rt, BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::Add:
      return make_float(a + b);
    case BinaryOp::Subtract:
      return make_float(a - b);
    case BinaryOp::Multiply:
      return make_float(a * b);
    case BinaryOp::Power: {
      if (a == 0 && b < 0) rt.fail("zero cannot be raised to a negative power.");
      if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b)) {
        rt.fail("the power of a negative number is complex.");
      }
      const double out = std::pow(a, b);
      if (std::isinf(out) && std::isfinite(a) && std::isfinite(b))
        rt.fail("the result of the power is too large.");
      return make_float(out);
    }
    default:
      break;
  }
  if (b == 0) rt.fail("division by zero.");
  if (op == BinaryOp::Divide) return make_float(a / b);
  return make_float(op == BinaryOp::Modulo ? floor_modulo(a, b) : floor_divide(a, b));
}

Value repeat(Runtime& rt, const Value& value, int64_t times) {
  times = std::max<int64_t>(times, 0);
  if (value.is_string()) {
    if (value.size != 0 && times > static_cast<int64_t>(kMaxText / value.size)) {
      rt.fail("a text is longer than the %zu MiB that are allowed.", kMaxText >> 20);
    }
    const size_t size = value.size * (value.size == 0 ? 0 : static_cast<size_t>(times));
    rt.charge(size / 16);
    char* out = static_cast<char*>(rt.arena.allocate(size));
    for (size_t at = 0; at < size; at += value.size) std::memcpy(out + at, value.text, value.size);
    return make_str({out, size}, value.is_markup);
  }
  const uint32_t size = value.sequence->size;
  if (size != 0 && times > kMaxItems / size) {
    rt.fail("a list has more than the %lld items that are allowed.", static_cast<long long>(kMaxItems));
  }
  std::vector<Value> items;
  for (int64_t i = 0; i < times && size != 0; ++i) {
    items.insert(items.end(), value.sequence->items, value.sequence->items + size);
  }
  return value.kind == Kind::List ? rt.list(items) : rt.tuple(items.data(), items.size());
}

Value concatenate(Runtime& rt, const Value& a, const Value& b) {
  std::string left, right;
  std::string_view x = a.str(), y = b.str();
  const bool is_markup = a.is_markup || b.is_markup;
  if (is_markup && !a.is_markup) x = left = html_escape(x);
  if (is_markup && !b.is_markup) y = right = html_escape(y);
  if (x.size() + y.size() > kMaxText)
    rt.fail("a text is longer than the %zu MiB that are allowed.", kMaxText >> 20);
  const std::string_view joined = rt.arena.concatenate(x, y);
  rt.charge((joined.data() == x.data() ? y.size() : joined.size()) / 256);
  return make_str(joined, is_markup);
}

bool is_sequence(const Value& v) { return v.kind == Kind::List || v.kind == Kind::Tuple; }

}  // namespace

Value binary(Runtime& rt, BinaryOp op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.kind != Kind::Float && b.kind != Kind::Float)
      return integer_binary(rt, op, a.as_integer(), b.as_integer());
    return float_binary(rt, op, a.as_double(), b.as_double());
  }
  if (op == BinaryOp::Add) {
    if (a.is_string() && b.is_string()) return concatenate(rt, a, b);
    if (a.kind == b.kind && is_sequence(a)) {
      std::vector<Value> items(a.sequence->items, a.sequence->items + a.sequence->size);
      items.insert(items.end(), b.sequence->items, b.sequence->items + b.sequence->size);
      return a.kind == Kind::List ? rt.list(items) : rt.tuple(items.data(), items.size());
    }
  }
  if (op == BinaryOp::Multiply) {
    if ((a.is_string() || is_sequence(a)) && b.is_integral()) return repeat(rt, a, b.as_integer());
    if ((b.is_string() || is_sequence(b)) && a.is_integral()) return repeat(rt, b, a.as_integer());
  }
  if (op == BinaryOp::Modulo && a.is_string()) return format_percent(rt, a, b);
  fail_operands(rt, op, a, b);
}

Value negate(Runtime& rt, const Value& value) {
  if (value.is_integral()) {
    if (value.as_integer() == INT64_MIN) fail_overflow(rt);
    return make_int(-value.as_integer());
  }
  if (value.kind == Kind::Float) return make_float(-value.number);
  if (value.is_undefined()) rt.fail_undefined(value);
  rt.fail("'-' is not possible with a %s.", type_name(value).c_str());
}

Value positive(Runtime& rt, const Value& value) {
  if (value.is_integral()) return make_int(value.as_integer());
  if (value.kind == Kind::Float) return value;
  if (value.is_undefined()) rt.fail_undefined(value);
  rt.fail("'+' is not possible with a %s.", type_name(value).c_str());
}

}  // namespace vllm::jinja

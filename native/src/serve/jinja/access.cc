#include "serve/jinja/access.h"

#include <algorithm>

#include "base/error.h"
#include "serve/jinja/ast.h"
#include "serve/jinja/loop.h"
#include "serve/jinja/methods.h"
#include "serve/jinja/numbers.h"
#include "serve/jinja/operators.h"
#include "serve/jinja/print.h"
#include "serve/jinja/unicode_text.h"

namespace vllm::jinja {
namespace {

std::string_view object_type(Runtime& rt, const Value& object) {
  if (object.is_none()) return "None";
  if (object.kind == Kind::Dict) return "dict object";
  return rt.copy_text(type_name(object) + " object").str();
}

Value lacking(Runtime& rt, const Value& object, std::string_view name) {
  return rt.undefined({.hint = {}, .name = name, .object_type = object_type(rt, object)});
}

Value unsafe(Runtime& rt, const Value& object, std::string_view name) {
  return rt.undefined_hint(
      rt.copy_text("access to attribute " + quote(name) + " of '" + type_name(object) + "' object is unsafe.")
          .str());
}

Value method(Runtime& rt, const MethodInfo* info, const Value& self) {
  Value out;
  out.kind = Kind::Method;
  out.method = rt.arena.make(Method{info, self});
  return out;
}

Value loop_attribute(Runtime& rt, const Value& object, std::string_view name) {
  Loop& loop = *object.loop;
  const int64_t index0 = loop.index0();
  if (name == "index0") return make_int(index0);
  if (name == "index") return make_int(index0 + 1);
  if (name == "first") return make_bool(index0 == 0);
  if (name == "last") return make_bool(!loop.peek());
  if (name == "length") return make_int(loop.length());
  if (name == "revindex0") return make_int(loop.length() - index0 - 1);
  if (name == "revindex") return make_int(loop.length() - index0);
  if (name == "depth0") return make_int(loop.depth0);
  if (name == "depth") return make_int(loop.depth0 + 1);
  if (name == "previtem") return index0 == 0 ? rt.undefined_hint("there is no previous item.") : loop.before;
  if (name == "nextitem") {
    const Value* next = loop.peek();
    return next ? *next : rt.undefined_hint("there is no next item.");
  }
  if (name == "cycle") return rt.function(Function::LoopCycle, object);
  if (name == "changed") return rt.function(Function::LoopChanged, object);
  return Value();
}

Value macro_attribute(Runtime& rt, const Value& object, std::string_view name) {
  const Node& node = *object.macro->node;
  if (name == "name") return node.text.empty() ? make_none() : make_str(node.text);
  if (name == "catch_kwargs") return make_bool(node.macro->uses_kwargs);
  if (name == "catch_varargs") return make_bool(node.macro->uses_varargs);
  if (name == "caller") return make_bool(node.macro->uses_caller);
  if (name == "arguments") {
    std::vector<Value> names;
    for (const Node* parameter : node.macro->parameters) names.push_back(make_str(parameter->text));
    return rt.tuple(names.data(), names.size());
  }
  return Value();
}

/// getattr(); Missing when there is none.
Value attribute(Runtime& rt, const Value& object, std::string_view name) {
  switch (object.kind) {
    case Kind::Undefined:
      rt.fail_undefined(object);
    case Kind::Namespace:
      for (uint32_t i = 0; i < object.ns->size; ++i) {
        if (object.ns->entries[i].key.str() == name) return object.ns->entries[i].value;
      }
      break;
    case Kind::Loop:
      if (const Value v = loop_attribute(rt, object, name); v.kind != Kind::Missing) return v;
      break;
    case Kind::Macro:
      if (const Value v = macro_attribute(rt, object, name); v.kind != Kind::Missing) return v;
      break;
    case Kind::Cycler:
      if (name == "current") return object.cycler->items[object.cycler->next];
      if (name == "next") return rt.function(Function::CyclerNext, object);
      if (name == "reset") return rt.function(Function::CyclerReset, object);
      break;
    case Kind::Function:
      if (object.function->function == Function::Dict && name == "fromkeys") {
        return rt.function(Function::DictFromKeys, object);
      }
      break;
    case Kind::Tuple:
      if (object.sequence->is_group && name == "grouper") return object.sequence->items[0];
      if (object.sequence->is_group && name == "list") return object.sequence->items[1];
      break;
    default:
      break;
  }
  if (const MethodInfo* info = find_method(object.kind, name)) return method(rt, info, object);
  if (is_mutating_method(object.kind, name)) return unsafe(rt, object, name);
  if (name.size() > 4 && name.starts_with("__") && name.ends_with("__")) return unsafe(rt, object, name);
  return Value();
}

int64_t length_or_zero(const Value& value) {
  int64_t length = 0;
  length_of(value, length);
  return length;
}

/// obj[key]; Missing when that fails.
Value item(Runtime& rt, const Value& object, const Value& key) {
  if (object.kind == Kind::Dict) {
    if (!is_hashable(rt, key)) return Value();
    const uint32_t at = find_entry(rt, *object.dict, key);
    return at < object.dict->size ? object.dict->entries[at].value : Value();
  }
  if (!key.is_integral()) return Value();
  const bool is_indexed = object.kind == Kind::List || object.kind == Kind::Tuple ||
                          object.kind == Kind::Str || object.kind == Kind::Range;
  if (!is_indexed) return Value();
  int64_t index = key.as_integer();
  const int64_t length = length_or_zero(object);
  if (index < 0) index += length;
  if (index < 0 || index >= length) return Value();
  switch (object.kind) {
    case Kind::Str: {
      const std::string_view text = object.str();
      rt.charge(text.size() / 16);
      if (static_cast<size_t>(length) == text.size())
        return make_str(text.substr(index, 1), object.is_markup);
      const size_t begin = char_offset(text, static_cast<size_t>(index));
      return make_str(text.substr(begin, char_offset(text.substr(begin), 1)), object.is_markup);
    }
    case Kind::Range:
      return make_int(object.range->start + index * object.range->step);
    default:
      return object.sequence->items[index];
  }
}

}  // namespace

Value get_attribute(Runtime& rt, const Value& object, std::string_view name) {
  Value found = attribute(rt, object, name);
  if (found.kind == Kind::Missing) found = item(rt, object, make_str(name));
  return found.kind == Kind::Missing ? lacking(rt, object, name) : found;
}

Value get_item(Runtime& rt, const Value& object, const Value& key) {
  if (object.is_undefined()) rt.fail_undefined(object);
  Value found = item(rt, object, key);
  if (found.kind == Kind::Missing && key.is_string()) found = attribute(rt, object, key.str());
  if (found.kind != Kind::Missing) return found;
  if (key.is_string()) return lacking(rt, object, key.str());
  std::string name;
  append_repr(rt, name, key);
  return rt.undefined({.hint = {},
                       .name = rt.copy_text(name).str(),
                       .object_type = object_type(rt, object),
                       .is_element = true});
}

Value get_slice(Runtime& rt, const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is_undefined()) rt.fail_undefined(object);
  const bool is_sliced = object.kind == Kind::List || object.kind == Kind::Tuple ||
                         object.kind == Kind::Str || object.kind == Kind::Range;
  if (!is_sliced) rt.fail("a %s cannot be sliced.", type_name(object).c_str());
  for (const Value* bound : {&start, &stop, &step}) {
    if (!bound->is_none() && !bound->is_integral()) {
      rt.fail("the bounds of a slice must be integers, not %s.", type_name(*bound).c_str());
    }
  }
  const int64_t length = length_or_zero(object);
  const int64_t by = step.is_none() ? 1 : step.as_integer();
  if (by == 0) rt.fail("the step of a slice cannot be zero.");
  const int64_t lowest = by > 0 ? 0 : -1, highest = by > 0 ? length : length - 1;
  const auto clip = [&](const Value& bound, int64_t otherwise) {
    if (bound.is_none()) return otherwise;
    int64_t at = bound.as_integer();
    if (at < 0) at = at < -length ? lowest : at + length;
    return std::clamp(at, lowest, std::max(lowest, highest));
  };
  const int64_t from = clip(start, by > 0 ? lowest : highest);
  const int64_t to = clip(stop, by > 0 ? highest : lowest);
  int64_t count = 0;
  if (by > 0 ? from < to : from > to) {
    const uint64_t distance = static_cast<uint64_t>(by > 0 ? to - from : from - to) - 1;
    const uint64_t stride = by > 0 ? static_cast<uint64_t>(by) : 0 - static_cast<uint64_t>(by);
    count = static_cast<int64_t>(distance / stride) + 1;
  }
  if (object.is_string()) {
    const std::string_view text = object.str();
    rt.charge(text.size() / 16 + static_cast<uint64_t>(count) / 4);
    if (by == 1) {
      const size_t begin = char_offset(text, static_cast<size_t>(from));
      const std::string_view rest = text.substr(begin);
      return make_str(rest.substr(0, char_offset(rest, static_cast<size_t>(count))), object.is_markup);
    }
    const std::span<const Value> chars = items_of(rt, object);
    std::string out;
    for (int64_t i = 0; i < count; ++i) out += chars[from + i * by].str();
    return rt.copy_text(out, object.is_markup);
  }
  if (object.kind == Kind::Range) {
    const Range& range = *object.range;
    Value out;
    out.kind = Kind::Range;
    out.range = rt.arena.make(
        Range{range.start + from * range.step, range.start + to * range.step, range.step * by, count});
    return out;
  }
  Value* items = rt.arena.allocate_array<Value>(static_cast<size_t>(count));
  rt.charge(static_cast<uint64_t>(count) / 4);
  for (int64_t i = 0; i < count; ++i) items[i] = object.sequence->items[from + i * by];
  Value out;
  out.kind = object.kind;
  out.sequence = rt.arena.make(Sequence{items, static_cast<uint32_t>(count), false});
  return out;
}

Value get_path(Runtime& rt, const Value& object, const Value& path) {
  if (!path.is_string()) return path.is_none() ? object : get_item(rt, object, path);
  Value at = object;
  std::string_view rest = path.str();
  while (true) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    const auto number = all_are(CharTest::Digit, part) ? parse_integer(part, 10) : std::nullopt;
    at = get_item(rt, at, number ? make_int(*number) : make_str(part));
    if (dot == std::string_view::npos) return at;
    rest.remove_prefix(dot + 1);
  }
}

}  // namespace vllm::jinja

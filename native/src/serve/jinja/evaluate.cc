// Expressions and calls.
#include <algorithm>

#include "base/error.h"
#include "serve/jinja/access.h"
#include "serve/jinja/filters.h"
#include "serve/jinja/globals.h"
#include "serve/jinja/methods.h"
#include "serve/jinja/operators.h"
#include "serve/jinja/print.h"
#include "serve/jinja/renderer.h"
#include "serve/jinja/tests.h"

namespace vllm::jinja {

Value Renderer::evaluate(const Node& node, Activation& frame) {
  rt_.check_stack();
  rt_.charge(1);
  switch (node.type) {
    case NodeType::Constant:
      return node.constant;
    case NodeType::Name:
      return evaluate_name(node, frame);
    case NodeType::List:
      return evaluate_items(node, Kind::List, frame);
    case NodeType::Tuple:
      return evaluate_items(node, Kind::Tuple, frame);
    case NodeType::Dict:
      return evaluate_dict(node, frame);
    case NodeType::Not:
      return make_bool(!truth(evaluate(*node.a, frame)));
    case NodeType::Negate:
    case NodeType::Positive: {
      const Value value = evaluate(*node.a, frame);
      rt_.set_position(node.offset);
      return node.type == NodeType::Negate ? negate(rt_, value) : positive(rt_, value);
    }
    case NodeType::Binary: {
      const Value left = evaluate(*node.a, frame);
      const Value right = evaluate(*node.b, frame);
      rt_.set_position(node.offset);
      return binary(rt_, static_cast<BinaryOp>(node.op), left, right);
    }
    case NodeType::And: {
      const Value left = evaluate(*node.a, frame);
      return truth(left) ? evaluate(*node.b, frame) : left;
    }
    case NodeType::Or: {
      const Value left = evaluate(*node.a, frame);
      return truth(left) ? left : evaluate(*node.b, frame);
    }
    case NodeType::Compare:
      return evaluate_comparison(node, frame);
    case NodeType::Concat:
      return evaluate_concat(node, frame);
    case NodeType::Conditional: {
      if (truth(evaluate(*node.b, frame))) return evaluate(*node.a, frame);
      if (node.c) return evaluate(*node.c, frame);
      static constexpr UndefinedInfo kNoElse{
          .hint = "the inline 'if' was false and has no 'else'.", .name = {}, .object_type = {}};
      return make_undefined(&kNoElse);
    }
    case NodeType::Attribute: {
      const Value object = evaluate(*node.a, frame);
      rt_.set_position(node.offset);
      return get_attribute(rt_, object, node.text);
    }
    case NodeType::Subscript:
      return evaluate_subscript(node, frame);
    case NodeType::Call:
      return evaluate_call(node, frame, nullptr);
    case NodeType::Filter:
      return apply_filter(node, evaluate(*node.a, frame), frame);
    case NodeType::Test:
      return evaluate_test(node, frame);
    case NodeType::Slice: {
      // Within a subscript of several parts only, which the parser refuses.
      rt_.set_position(node.offset);
      rt_.fail("a slice stands outside of a subscript.");
    }
    default:
      return make_none();
  }
}

Value Renderer::evaluate_name(const Node& node, Activation& frame) {
  const Value& value = slot_at(frame, node.place);
  return value.kind == Kind::Missing ? make_undefined(&node.undefined) : value;
}

Value Renderer::evaluate_items(const Node& node, Kind kind, Activation& frame) {
  Value* items = rt_.arena.allocate_array<Value>(node.items.size());
  for (size_t i = 0; i < node.items.size(); ++i) items[i] = evaluate(*node.items[i], frame);
  Value out;
  out.kind = kind;
  out.sequence = rt_.arena.make(Sequence{items, static_cast<uint32_t>(node.items.size()), false});
  return out;
}

Value Renderer::evaluate_dict(const Node& node, Activation& frame) {
  std::vector<Entry> entries;
  entries.reserve(node.items.size() / 2);
  for (size_t i = 0; i < node.items.size(); i += 2) {
    const Value key = evaluate(*node.items[i], frame);
    entries.push_back({key, evaluate(*node.items[i + 1], frame)});
  }
  rt_.set_position(node.offset);
  return rt_.dict(entries);
}

Value Renderer::evaluate_comparison(const Node& node, Activation& frame) {
  Value left = evaluate(*node.a, frame);
  for (size_t i = 0; i < node.items.size(); ++i) {
    const Value right = evaluate(*node.items[i], frame);
    rt_.set_position(node.offset);
    if (!compare(rt_, static_cast<CompareOp>(node.ops[i]), left, right)) return make_bool(false);
    left = right;
  }
  return make_bool(true);
}

Value Renderer::evaluate_concat(const Node& node, Activation& frame) {
  std::string out;
  for (const Node* item : node.items) {
    const Value value = evaluate(*item, frame);
    rt_.set_position(node.offset);
    append_str(rt_, out, value);
    if (out.size() > kMaxText)
      rt_.fail("a text is longer than the %zu MiB that are allowed.", kMaxText >> 20);
  }
  return rt_.copy_text(out);
}

Value Renderer::evaluate_subscript(const Node& node, Activation& frame) {
  const Value object = evaluate(*node.a, frame);
  if (node.b->type != NodeType::Slice) {
    const Value key = evaluate(*node.b, frame);
    rt_.set_position(node.offset);
    return get_item(rt_, object, key);
  }
  Value bounds[3];
  const Node* parts[3] = {node.b->a, node.b->b, node.b->c};
  for (int i = 0; i < 3; ++i) bounds[i] = parts[i] ? evaluate(*parts[i], frame) : make_none();
  rt_.set_position(node.offset);
  return get_slice(rt_, object, bounds[0], bounds[1], bounds[2]);
}

CallArguments Renderer::evaluate_arguments(const Arguments& arguments, Activation& frame,
                                           const Value* caller) {
  CallArguments out;
  const size_t count = arguments.positional.size();
  if (count != 0) {
    Value* values = rt_.arena.allocate_array<Value>(count);
    for (size_t i = 0; i < count; ++i) values[i] = evaluate(*arguments.positional[i], frame);
    out.positional = {values, count};
  }
  if (arguments.star) {
    const Value more = evaluate(*arguments.star, frame);
    const std::span<const Value> items = items_of(rt_, more);
    Value* values = rt_.arena.allocate_array<Value>(count + items.size());
    std::copy(items.begin(), items.end(), std::copy(out.positional.begin(), out.positional.end(), values));
    out.positional = {values, count + items.size()};
  }
  if (arguments.named.empty() && !arguments.star_star && !caller) return out;
  std::vector<NamedValue> named;
  for (const auto& [name, value] : arguments.named) named.push_back({name, evaluate(*value, frame)});
  if (caller) named.push_back({"caller", *caller});
  if (arguments.star_star) {
    const Value more = evaluate(*arguments.star_star, frame);
    if (more.kind != Kind::Dict) rt_.fail("'**' needs a dict, not a %s.", type_name(more).c_str());
    for (uint32_t i = 0; i < more.dict->size; ++i) {
      const Entry& entry = more.dict->entries[i];
      if (!entry.key.is_string()) rt_.fail("the names of arguments must be texts.");
      for (const NamedValue& other : named) {
        if (other.name == entry.key.str())
          rt_.fail("the argument %s is given twice.", quote(other.name).c_str());
      }
      named.push_back({entry.key.str(), entry.value});
      rt_.charge(named.size());
    }
  }
  NamedValue* values = rt_.arena.allocate_array<NamedValue>(named.size());
  std::copy(named.begin(), named.end(), values);
  out.named = {values, named.size()};
  return out;
}

Value Renderer::apply_filter(const Node& node, const Value& input, Activation& frame) {
  const CallArguments arguments = evaluate_arguments(*node.arguments, frame, nullptr);
  rt_.set_position(node.offset);
  if (!node.filter) rt_.fail("no filter is named %s.", quote(node.text).c_str());
  return node.filter->run(rt_, input, arguments);
}

Value Renderer::apply_filters(const Node& node, const Value& text, Activation& frame) {
  return apply_filter(node, node.a ? apply_filters(*node.a, text, frame) : text, frame);
}

Value Renderer::evaluate_test(const Node& node, Activation& frame) {
  const Value value = evaluate(*node.a, frame);
  const CallArguments arguments = evaluate_arguments(*node.arguments, frame, nullptr);
  rt_.set_position(node.offset);
  if (!node.test) rt_.fail("no test is named %s.", quote(node.text).c_str());
  return make_bool(node.test->run(rt_, value, arguments));
}

Value Renderer::evaluate_call(const Node& node, Activation& frame, const Value* caller) {
  const Value callee = evaluate(*node.a, frame);
  const CallArguments arguments = evaluate_arguments(*node.arguments, frame, caller);
  rt_.set_position(node.offset);
  return call(callee, arguments);
}

Value Renderer::call(const Value& callee, const CallArguments& arguments) {
  switch (callee.kind) {
    case Kind::Method:
      return call_method(rt_, *callee.method, arguments);
    case Kind::Function:
      return call_function(rt_, *callee.function, arguments);
    case Kind::Macro:
      return call_macro(*callee.macro, arguments);
    case Kind::Undefined:
      rt_.fail_undefined(callee);
    case Kind::Joiner: {
      const Bound args(rt_, "joiner", arguments, {});
      const bool first = !callee.joiner->used;
      callee.joiner->used = true;
      return first ? make_str("") : callee.joiner->separator;
    }
    case Kind::Loop: {
      const Bound args(rt_, "loop", arguments, {"iterable"}, 1);
      const Loop& loop = *callee.loop;
      if (!loop.recursive_node) rt_.fail("the loop must be marked 'recursive' to be called.");
      Capture capture(*this);
      run_recursive(*loop.recursive_node, args[0], loop.outer, loop.depth0 + 1);
      return capture.take();
    }
    default:
      rt_.fail("a %s cannot be called.", type_name(callee).c_str());
  }
}

Value Renderer::call_macro(const MacroObject& macro, const CallArguments& arguments) {
  rt_.check_stack();
  const Node& node = *macro.node;
  const MacroParts& parts = *node.macro;
  const auto name = [&] { return quote(node.text.empty() ? "caller" : std::string_view(node.text)); };
  Activation& frame = *make_activation(parts.num_slots, macro.closure);
  const size_t parameters = parts.parameters.size(), given = arguments.positional.size();
  std::vector<NamedValue> left(arguments.named.begin(), arguments.named.end());
  const auto take = [&](std::string_view key) {
    const auto at =
        std::find_if(left.begin(), left.end(), [&](const NamedValue& one) { return one.name == key; });
    if (at == left.end()) return Value();
    const Value value = at->value;
    left.erase(at);
    return value;
  };
  bool found_caller = given >= parameters && parts.explicit_caller;
  for (size_t i = 0; i < parameters; ++i) {
    const Node& parameter = *parts.parameters[i];
    if (i >= given && parameter.text == "caller") found_caller = true;
    frame.slots[parameter.place.slot] = i < given ? arguments.positional[i] : take(parameter.text);
  }
  if (parts.uses_caller && !found_caller) {
    Value caller = take("caller");
    if (caller.kind == Kind::Missing || caller.is_none()) {
      caller = rt_.undefined_hint("no caller is defined.");
    }
    frame.slots[parts.caller_slot] = caller;
  }
  if (parts.uses_kwargs) {
    std::vector<Entry> entries;
    for (const NamedValue& one : left) entries.push_back({make_str(one.name), one.value});
    frame.slots[parts.kwargs_slot] = rt_.dict(entries);
  } else if (!left.empty()) {
    rt_.fail("the macro %s takes no argument %s.", name().c_str(), quote(left[0].name).c_str());
  }
  if (parts.uses_varargs) {
    const size_t extra = given > parameters ? given - parameters : 0;
    frame.slots[parts.varargs_slot] = rt_.tuple(arguments.positional.data() + (given - extra), extra);
  } else if (given > parameters) {
    rt_.fail("the macro %s takes at most %zu arguments, %zu were given.", name().c_str(), parameters, given);
  }
  Capture capture(*this);
  enter(node.frame, frame);
  for (size_t i = 0; i < parameters; ++i) {
    Value& slot = frame.slots[parts.parameters[i]->place.slot];
    if (slot.kind != Kind::Missing) continue;
    const size_t required = parameters - parts.defaults.size();
    if (i >= required) {
      slot = evaluate(*parts.defaults[i - required], frame);
    } else {
      slot = rt_.undefined_hint(
          rt_.copy_text("the parameter " + quote(parts.parameters[i]->text) + " was not provided.").str());
    }
  }
  execute(node.body, frame);
  return capture.take();
}

}  // namespace vllm::jinja

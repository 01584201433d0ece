#include "serve/jinja/renderer.h"

#include <algorithm>

#include "base/error.h"
#include "serve/jinja/access.h"
#include "serve/jinja/filters.h"
#include "serve/jinja/globals.h"
#include "serve/jinja/methods.h"
#include "serve/jinja/operators.h"
#include "serve/jinja/print.h"
#include "serve/jinja/tests.h"

namespace vllm::jinja {

namespace {

Value& slot_at(Activation& frame, const Place& place) {
  Activation* at = &frame;
  for (uint32_t i = 0; i < place.hops; ++i) at = at->outer;
  return at->slots[place.slot];
}

Activation* make_activation(Runtime& rt, uint32_t num_slots, Activation* outer) {
  Value* slots = rt.arena.allocate_array<Value>(num_slots);
  std::fill_n(slots, num_slots, Value());
  return rt.arena.make(Activation{slots, outer});
}

}  // namespace

/// Collects what is written while it lives.
class Renderer::Capture {
 public:
  explicit Capture(Renderer& renderer) : renderer_(renderer), outer_(renderer.out_) { renderer.out_ = &text_; }
  ~Capture() { renderer_.out_ = outer_; }
  Value take() { return renderer_.rt_.copy_text(text_); }

 private:
  Renderer& renderer_;
  std::string* outer_;
  std::string text_;
};

class Renderer::Condition : public LoopFilter {
 public:
  Condition(Renderer& renderer, const LoopParts& loop, Activation& frame)
      : renderer_(renderer), loop_(loop), frame_(frame) {}
  bool accepts(const Value& item) override {
    renderer_.rt_.charge(1);
    renderer_.assign(*loop_.test_target, item, frame_);
    return truth(renderer_.evaluate(*loop_.test, frame_));
  }

 private:
  Renderer& renderer_;
  const LoopParts& loop_;
  Activation& frame_;
};

Renderer::Renderer(const std::string& source, const Tree& tree, std::optional<std::tm> now)
    : rt_(source, now), tree_(tree) {}

std::string Renderer::run(const Json& variables) {
  if (!variables.is_object()) fail_argument("The variables of a chat template must be a JSON object.");
  variables_ = rt_.from_json(variables);
  std::string out;
  out_ = &out;
  Activation& frame = *make_activation(rt_, tree_.num_slots, nullptr);
  enter(tree_.frame, frame);
  execute(tree_.body, frame);
  return out;
}

Value Renderer::resolve(std::string_view name) {
  if (const Value* found = find_value(rt_, *variables_.dict, name)) return *found;
  return find_global(rt_, name);
}

void Renderer::enter(const Frame& loads, Activation& frame) {
  for (const Load& load : loads) {
    Value& slot = frame.slots[load.slot];
    switch (load.how) {
      case Load::How::Resolve:
        slot = resolve(load.name);
        break;
      case Load::How::Alias:
        slot = slot_at(frame, load.from);
        break;
      case Load::How::Unset:
        slot = Value();
        break;
    }
  }
}

void Renderer::write(std::string_view text) {
  if (out_->size() + text.size() > kMaxText) {
    rt_.fail("the output is longer than the %zu MiB that are allowed.", kMaxText >> 20);
  }
  rt_.charge(text.size() / 64);
  *out_ += text;
}

void Renderer::write(const Value& value) {
  if (value.is_string()) return write(value.str());
  std::string text;
  append_str(rt_, text, value);
  write(text);
}

void Renderer::assign(const Node& target, const Value& value, Activation& frame) {
  switch (target.type) {
    case NodeType::Name:
      slot_at(frame, target.place) = value;
      return;
    case NodeType::NamespaceRef:
      rt_.set_position(target.offset);
      return set_attribute(slot_at(frame, target.a->place), target.text, value);
    default: {
      rt_.set_position(target.offset);
      const std::span<const Value> items = items_of(rt_, value);
      if (items.size() != target.items.size()) {
        rt_.fail("%zu values were expected to be unpacked, there are %zu.", target.items.size(), items.size());
      }
      for (size_t i = 0; i < items.size(); ++i) assign(*target.items[i], items[i], frame);
    }
  }
}

void Renderer::set_attribute(Value& target, std::string_view name, const Value& value) {
  if (target.kind != Kind::Namespace) rt_.fail("attributes can be assigned to a namespace only.");
  if (name.starts_with("_")) rt_.fail("a namespace takes no attribute %s with '_' in front.", quote(name).c_str());
  Namespace& ns = *target.ns;
  for (uint32_t i = 0; i < ns.size; ++i) {
    if (ns.entries[i].key.str() == name) {
      ns.entries[i].value = value;
      return;
    }
  }
  if (ns.size == ns.capacity) {
    Entry* bigger = rt_.arena.allocate_array<Entry>(ns.capacity * 2 + 4);
    std::copy_n(ns.entries, ns.size, bigger);
    ns.entries = bigger;
    ns.capacity = ns.capacity * 2 + 4;
  }
  ns.entries[ns.size++] = {make_str(name), value};
}

// Statements.

Renderer::Flow Renderer::execute(const std::vector<Node*>& nodes, Activation& frame) {
  rt_.check_stack();
  for (const Node* node : nodes) {
    rt_.charge(1);
    const Flow flow = execute_node(*node, frame);
    if (flow != Flow::Normal) return flow;
  }
  return Flow::Normal;
}

Renderer::Flow Renderer::execute_node(const Node& node, Activation& frame) {
  switch (node.type) {
    case NodeType::Text:
      rt_.set_position(node.offset);
      write(node.text);
      return Flow::Normal;
    case NodeType::Print: {
      const Value value = evaluate(*node.a, frame);
      rt_.set_position(node.offset);
      write(value);
      return Flow::Normal;
    }
    case NodeType::If:
      return execute_if(node, frame);
    case NodeType::For: {
      const Value iterable = evaluate(*node.loop->iterable, frame);
      if (!node.loop->recursive) return run_loop(node, iterable, frame, 0);
      run_recursive(node, iterable, &frame, 0);
      return Flow::Normal;
    }
    case NodeType::Set:
      assign(*node.a, evaluate(*node.b, frame), frame);
      return Flow::Normal;
    case NodeType::SetBlock:
      return execute_set_block(node, frame);
    case NodeType::Macro: {
      Value macro;
      macro.kind = Kind::Macro;
      macro.macro = rt_.arena.make(MacroObject{&node, &frame});
      assign(*node.a, macro, frame);
      return Flow::Normal;
    }
    case NodeType::CallBlock: {
      Value caller;
      caller.kind = Kind::Macro;
      caller.macro = rt_.arena.make(MacroObject{&node, &frame});
      write(evaluate_call(*node.a, frame, &caller));
      return Flow::Normal;
    }
    case NodeType::FilterBlock:
      return execute_filter_block(node, frame);
    case NodeType::With:
      return execute_with(node, frame);
    case NodeType::Scope:
      enter(node.frame, frame);
      return execute(node.body, frame);
    case NodeType::Break:
      return Flow::Break;
    case NodeType::Continue:
      return Flow::Continue;
    default:
      return Flow::Normal;
  }
}

Renderer::Flow Renderer::execute_if(const Node& node, Activation& frame) {
  if (truth(evaluate(*node.a, frame))) return execute(node.body, frame);
  for (const Node* branch : node.items) {
    if (truth(evaluate(*branch->a, frame))) return execute(branch->body, frame);
  }
  return execute(node.else_body, frame);
}

Renderer::Flow Renderer::execute_set_block(const Node& node, Activation& frame) {
  enter(node.frame, frame);
  Value text;
  {
    Capture capture(*this);
    const Flow flow = execute(node.body, frame);
    if (flow != Flow::Normal) return flow;
    text = capture.take();
  }
  assign(*node.a, node.b ? apply_filters(*node.b, text, frame) : text, frame);
  return Flow::Normal;
}

Renderer::Flow Renderer::execute_filter_block(const Node& node, Activation& frame) {
  enter(node.frame, frame);
  Value text;
  {
    Capture capture(*this);
    const Flow flow = execute(node.body, frame);
    if (flow != Flow::Normal) return flow;
    text = capture.take();
  }
  const Value result = apply_filters(*node.a, text, frame);
  if (!result.is_string()) rt_.fail("a filter block must end in a text, not a %s.", type_name(result).c_str());
  write(result.str());
  return Flow::Normal;
}

Renderer::Flow Renderer::execute_with(const Node& node, Activation& frame) {
  enter(node.frame, frame);
  for (size_t i = 0; i < node.items.size(); ++i) {
    assign(*node.items[i], evaluate(*node.arguments->positional[i], frame), frame);
  }
  return execute(node.body, frame);
}

Renderer::Flow Renderer::run_loop(const Node& node, const Value& iterable, Activation& frame, int64_t depth0) {
  const LoopParts& parts = *node.loop;
  rt_.set_position(parts.iterable->offset);
  const std::span<const Value> items = items_of(rt_, iterable);
  Condition condition(*this, parts, frame);
  Loop* loop = rt_.arena.make(Loop{&rt_, items.data(), static_cast<uint32_t>(items.size()), nullptr});
  loop->depth0 = depth0;
  if (parts.recursive) {
    loop->recursive_node = &node;
    loop->outer = frame.outer;
  }
  if (parts.test) {
    enter(parts.test_frame, frame);
    loop->filter = &condition;
  }
  Value variable;
  variable.kind = Kind::Loop;
  variable.loop = loop;
  // As in Jinja, an iteration that ends by `break` or `continue` does not keep `else` away.
  bool completed = false;
  while (loop->advance()) {
    rt_.charge(1);
    if (parts.uses_loop) frame.slots[parts.loop_slot] = variable;
    assign(*parts.target, loop->current, frame);
    enter(node.frame, frame);
    const Flow flow = execute(node.body, frame);
    if (flow == Flow::Break) break;
    completed |= flow == Flow::Normal;
  }
  loop->finish();
  if (completed || node.else_body.empty()) return Flow::Normal;
  enter(parts.else_frame, frame);
  return execute(node.else_body, frame);
}

void Renderer::run_recursive(const Node& node, const Value& iterable, Activation* outer, int64_t depth0) {
  run_loop(node, iterable, *make_activation(rt_, node.loop->num_slots, outer), depth0);
}

// Expressions.

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
    if (out.size() > kMaxText) rt_.fail("a text is longer than the %zu MiB that are allowed.", kMaxText >> 20);
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

CallArguments Renderer::evaluate_arguments(const Arguments& arguments, Activation& frame, const Value* caller) {
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
        if (other.name == entry.key.str()) rt_.fail("the argument %s is given twice.", quote(other.name).c_str());
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
  Activation& frame = *make_activation(rt_, parts.num_slots, macro.closure);
  const size_t parameters = parts.parameters.size(), given = arguments.positional.size();
  std::vector<NamedValue> left(arguments.named.begin(), arguments.named.end());
  const auto take = [&](std::string_view key) {
    const auto at = std::find_if(left.begin(), left.end(), [&](const NamedValue& one) { return one.name == key; });
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

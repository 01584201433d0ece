#include "serve/jinja/renderer.h"

#include <algorithm>

#include "base/error.h"
#include "serve/jinja/globals.h"
#include "serve/jinja/operators.h"
#include "serve/jinja/print.h"

namespace vllm::jinja {

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
  Activation& frame = *make_activation(tree_.num_slots, nullptr);
  enter(tree_.frame, frame);
  execute(tree_.body, frame);
  return out;
}

Value Renderer::resolve(std::string_view name) {
  if (const Value* found = find_value(rt_, *variables_.dict, name)) return *found;
  return find_global(rt_, name);
}

Value& Renderer::slot_at(Activation& frame, const Place& place) {
  Activation* at = &frame;
  for (uint32_t i = 0; i < place.hops; ++i) at = at->outer;
  return at->slots[place.slot];
}

Activation* Renderer::make_activation(uint32_t num_slots, Activation* outer) {
  Value* slots = rt_.arena.allocate_array<Value>(num_slots);
  std::fill_n(slots, num_slots, Value());
  return rt_.arena.make(Activation{slots, outer});
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
        rt_.fail("%zu values were expected to be unpacked, there are %zu.", target.items.size(),
                 items.size());
      }
      for (size_t i = 0; i < items.size(); ++i) assign(*target.items[i], items[i], frame);
    }
  }
}

void Renderer::set_attribute(Value& target, std::string_view name, const Value& value) {
  if (target.kind != Kind::Namespace) rt_.fail("attributes can be assigned to a namespace only.");
  if (name.starts_with("_"))
    rt_.fail("a namespace takes no attribute %s with '_' in front.", quote(name).c_str());
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
  if (!result.is_string())
    rt_.fail("a filter block must end in a text, not a %s.", type_name(result).c_str());
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

Renderer::Flow Renderer::run_loop(const Node& node, const Value& iterable, Activation& frame,
                                  int64_t depth0) {
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
  run_loop(node, iterable, *make_activation(node.loop->num_slots, outer), depth0);
}

}  // namespace vllm::jinja

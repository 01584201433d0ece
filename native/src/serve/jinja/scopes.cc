#include "serve/jinja/scopes.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "base/error.h"
#include "serve/jinja/lexer.h"

namespace vllm::jinja {
namespace {

/// A piece of code with slots of its own: the template, a macro, a recursive loop.
struct FunctionScope {
  uint32_t level;
  size_t* work;  // entries that branches copied, in the whole template
  uint32_t num_slots = 0;
};

constexpr size_t kMaxWork = 5000000;

struct Address {
  uint32_t level;  // of the function
  uint32_t slot;
};

struct Initial {
  enum class How : uint8_t { Parameter, Resolve, Alias, Unset } how;
  Address from{};
  std::string_view name;
};

class Symbols {
 public:
  Symbols(const Symbols* parent, FunctionScope& function)
      : parent_(parent),
        function_(&function),
        slots_(std::make_shared<std::map<std::string_view, uint32_t>>()) {}

  const FunctionScope& function() const { return *function_; }
  size_t size() const { return known_.size(); }

  const Address* find(std::string_view name) const {
    for (const Symbols* at = this; at; at = at->parent_) {
      const auto found = at->known_.find(name);
      if (found != at->known_.end()) return &found->second;
    }
    return nullptr;
  }

  void load(std::string_view name) {
    if (!find(name)) define(name, {Initial::How::Resolve, {}, name});
  }

  void store(std::string_view name) {
    assigned_.insert(name);
    if (known_.count(name)) return;
    const Address* outer = parent_ ? parent_->find(name) : nullptr;
    define(name, outer ? Initial{Initial::How::Alias, *outer, name} : Initial{Initial::How::Unset, {}, name});
  }

  Address parameter(std::string_view name) {
    assigned_.insert(name);
    return define(name, {Initial::How::Parameter, {}, name});
  }

  /// After the branches of an `if`, each of which started as a copy of this.
  void merge(const std::vector<Symbols>& branches) {
    std::set<std::string_view> fresh;
    for (const Symbols& branch : branches) {
      for (const std::string_view name : branch.assigned_) {
        if (!assigned_.count(name)) fresh.insert(name);
      }
    }
    for (const Symbols& branch : branches) {
      for (const auto& [name, address] : branch.known_) known_[name] = address;
      for (const auto& [slot, initial] : branch.initial_) initial_[slot] = initial;
      assigned_.insert(branch.assigned_.begin(), branch.assigned_.end());
    }
    for (const std::string_view name : fresh) {
      const Address* outer = parent_ ? parent_->find(name) : nullptr;
      initial_[known_.at(name).slot] =
          outer ? Initial{Initial::How::Alias, *outer, name} : Initial{Initial::How::Resolve, {}, name};
    }
  }

  Frame frame() const {
    Frame out;
    for (const auto& [slot, initial] : initial_) {
      Load load{Load::How::Unset, slot, {}, initial.name};
      if (initial.how == Initial::How::Parameter) continue;
      if (initial.how == Initial::How::Resolve) load.how = Load::How::Resolve;
      if (initial.how == Initial::How::Alias) {
        load.how = Load::How::Alias;
        load.from = place(initial.from);
      }
      out.push_back(load);
    }
    return out;
  }

  Place place(const Address& address) const { return {function_->level - address.level, address.slot}; }

 private:
  Address define(std::string_view name, const Initial& initial) {
    const auto [slot, is_new] = slots_->emplace(name, function_->num_slots);
    if (is_new) ++function_->num_slots;
    initial_[slot->second] = initial;
    return known_[name] = {function_->level, slot->second};
  }

  const Symbols* parent_;
  FunctionScope* function_;
  std::shared_ptr<std::map<std::string_view, uint32_t>> slots_;  // shared with the branches of an `if`
  std::map<std::string_view, Address> known_;
  std::map<uint32_t, Initial> initial_;  // of the slots of this scope
  std::set<std::string_view> assigned_;
};

template <typename Visit>
void for_each_argument(const Arguments* arguments, Visit visit) {
  if (!arguments) return;
  for (Node* node : arguments->positional) visit(*node);
  for (const auto& [key, node] : arguments->named) visit(*node);
  if (arguments->star) visit(*arguments->star);
  if (arguments->star_star) visit(*arguments->star_star);
}

/// The parts of an expression.
template <typename Visit>
void for_each_part(Node& node, Visit visit) {
  for (Node* part : {node.a, node.b, node.c}) {
    if (part) visit(*part);
  }
  for (Node* part : node.items) visit(*part);
  for_each_argument(node.arguments, visit);
}

/// Notes what `node` reads and assigns in the scope it stands in; what a scope inside does is its own matter.
void collect(Node& node, Symbols& symbols) {
  const auto again = [&](Node& part) { collect(part, symbols); };
  switch (node.type) {
    case NodeType::Name:
      if (node.use == NameUse::Parameter) {
        symbols.parameter(node.text);
      } else if (node.use == NameUse::Store) {
        symbols.store(node.text);
      } else {
        symbols.load(node.text);
      }
      return;
    case NodeType::NamespaceRef:
      symbols.load(node.a->text);
      return;
    case NodeType::If: {
      collect(*node.a, symbols);
      *symbols.function().work += symbols.size();
      if (*symbols.function().work > kMaxWork)
        fail_argument("The chat template assigns too many variables in branches.");
      std::vector<Symbols> branches(3, symbols);
      for (Node* item : node.body) collect(*item, branches[0]);
      for (Node* item : node.items) collect(*item, branches[1]);
      for (Node* item : node.else_body) collect(*item, branches[2]);
      symbols.merge(branches);
      return;
    }
    case NodeType::Set:
      collect(*node.b, symbols);
      collect(*node.a, symbols);
      return;
    case NodeType::For:
      collect(*node.loop->iterable, symbols);
      return;
    case NodeType::Macro:
      symbols.store(node.text);
      return;
    case NodeType::SetBlock:
    case NodeType::CallBlock:
    case NodeType::FilterBlock:
      collect(*node.a, symbols);
      return;
    case NodeType::With:
      for_each_argument(node.arguments, again);
      return;
    case NodeType::Scope:
    case NodeType::Text:
    case NodeType::Break:
    case NodeType::Continue:
      return;
    default:
      for_each_part(node, again);
  }
}

void collect(const std::vector<Node*>& nodes, Symbols& symbols) {
  for (Node* node : nodes) collect(*node, symbols);
}

/// Which of the special names are read below `nodes` before they are assigned there.
class FreeNames {
 public:
  FreeNames(const std::vector<Node*>& nodes, std::initializer_list<const char*> names) {
    names_.insert(names.begin(), names.end());
    for (Node* node : nodes) visit(*node);
  }
  bool has(std::string_view name) const { return free_.count(name) != 0; }

 private:
  void visit(Node& node) {
    if (node.type == NodeType::Name) {
      if (!names_.count(node.text)) return;
      if (node.use == NameUse::Load) {
        free_.insert(*names_.find(node.text));
      } else {
        names_.erase(node.text);
      }
      return;
    }
    if (node.loop) {
      visit(*node.loop->target);
      visit(*node.loop->iterable);
    }
    if (node.macro && node.type == NodeType::Macro) parameters(*node.macro);
    if (node.type == NodeType::Set) {
      visit(*node.a);
      visit(*node.b);
    } else if (node.type != NodeType::Macro) {
      for_each_part(node, [this](Node& part) { visit(part); });
    }
    if (node.macro && node.type == NodeType::CallBlock) parameters(*node.macro);
    for (Node* part : node.body) visit(*part);
    for (Node* part : node.else_body) visit(*part);
    if (node.loop && node.loop->test) visit(*node.loop->test);
  }

  void parameters(MacroParts& macro) {
    for (Node* part : macro.parameters) visit(*part);
    for (Node* part : macro.defaults) visit(*part);
  }

  std::set<std::string, std::less<>> names_;
  std::set<std::string, std::less<>> free_;
};

class Binder {
 public:
  Binder(const std::string& source, Tree& tree) : source_(source), tree_(tree) {}

  void run() {
    FunctionScope root{0, &work_};
    Symbols symbols(nullptr, root);
    collect(tree_.body, symbols);
    tree_.frame = symbols.frame();
    statements(tree_.body, symbols, false);
    tree_.num_slots = root.num_slots;
  }

 private:
  /// `soft`: inside of an `if`, where an unknown filter only counts when it is used.
  void expression(Node& node, const Symbols& symbols, bool soft) {
    if (node.type == NodeType::Name) {
      if (node.use == NameUse::Load) node.undefined = {.hint = {}, .name = node.text, .object_type = {}};
      node.place = symbols.place(*symbols.find(node.text));
      return;
    }
    if (node.type == NodeType::Filter && !node.filter && !soft)
      fail(node, "no filter is named " + quote(node.text) + ".");
    if (node.type == NodeType::Test && !node.test && !soft)
      fail(node, "no test is named " + quote(node.text) + ".");
    const bool inner = soft || node.type == NodeType::Conditional;
    for_each_part(node, [&](Node& part) { expression(part, symbols, inner); });
  }

  void statements(const std::vector<Node*>& nodes, const Symbols& symbols, bool soft) {
    for (Node* node : nodes) statement(*node, symbols, soft);
  }

  void statement(Node& node, const Symbols& symbols, bool soft) {
    switch (node.type) {
      case NodeType::If:
        expression(*node.a, symbols, true);
        statements(node.body, symbols, true);
        statements(node.items, symbols, true);
        statements(node.else_body, symbols, true);
        return;
      case NodeType::For:
        return loop(node, symbols, soft);
      case NodeType::Set:
        expression(*node.b, symbols, soft);
        expression(*node.a, symbols, soft);
        return;
      case NodeType::SetBlock: {
        Symbols inner(&symbols, *function_of(symbols));
        collect(node.body, inner);
        if (node.b) collect(*node.b, inner);
        body(node, inner);
        if (node.b) expression(*node.b, inner, false);
        expression(*node.a, symbols, soft);
        return;
      }
      case NodeType::Macro:
        expression(*node.a, symbols, soft);
        return macro(node, symbols);
      case NodeType::CallBlock:
        macro(node, symbols);
        expression(*node.a, symbols, soft);
        return;
      case NodeType::FilterBlock: {
        Symbols inner(&symbols, *function_of(symbols));
        collect(node.body, inner);
        body(node, inner);
        expression(*node.a, inner, false);
        return;
      }
      case NodeType::With: {
        Symbols inner(&symbols, *function_of(symbols));
        collect(node.items, inner);
        collect(node.body, inner);
        for_each_argument(node.arguments, [&](Node& value) { expression(value, symbols, soft); });
        for (Node* target : node.items) expression(*target, inner, false);
        body(node, inner);
        return;
      }
      case NodeType::Scope: {
        Symbols inner(&symbols, *function_of(symbols));
        collect(node.body, inner);
        body(node, inner);
        return;
      }
      case NodeType::Print:
        expression(*node.a, symbols, soft);
        return;
      default:
        return;
    }
  }

  void body(Node& node, const Symbols& inner) {
    node.frame = inner.frame();
    statements(node.body, inner, false);
  }

  static FunctionScope* function_of(const Symbols& symbols) {
    return const_cast<FunctionScope*>(&symbols.function());
  }

  Node* copy_target(const Node& target) {
    tree_.nodes.push_back(target);
    Node* copy = &tree_.nodes.back();
    for (Node*& item : copy->items) item = copy_target(*item);
    return copy;
  }

  static void declare_target(Node& target, Symbols& symbols) {
    if (target.type == NodeType::Name) {
      symbols.parameter(target.text);
    } else {
      for (Node* item : target.items) declare_target(*item, symbols);
    }
  }

  void loop(Node& node, const Symbols& symbols, bool soft) {
    LoopParts& parts = *node.loop;
    FunctionScope own{symbols.function().level + 1, &work_};
    FunctionScope& function = parts.recursive ? own : *function_of(symbols);

    Symbols inner(&symbols, function);
    parts.uses_loop = parts.recursive || FreeNames(node.body, {"loop"}).has("loop");
    if (parts.uses_loop) parts.loop_slot = inner.parameter("loop").slot;
    declare_target(*parts.target, inner);
    collect(node.body, inner);
    if (parts.test) {
      parts.test_target = copy_target(*parts.target);
      Symbols test(&symbols, function);
      declare_target(*parts.test_target, test);
      collect(*parts.test, test);
      parts.test_frame = test.frame();
      expression(*parts.test_target, test, false);
      expression(*parts.test, test, false);
    }
    expression(*parts.target, inner, false);
    expression(*parts.iterable, symbols, soft);
    body(node, inner);
    if (!node.else_body.empty()) {
      Symbols otherwise(&symbols, function);
      collect(node.else_body, otherwise);
      parts.else_frame = otherwise.frame();
      statements(node.else_body, otherwise, false);
    }
    parts.num_slots = own.num_slots;
  }

  void macro(Node& node, const Symbols& symbols) {
    MacroParts& parts = *node.macro;
    FunctionScope own{symbols.function().level + 1, &work_};
    Symbols inner(&symbols, own);
    const auto gather = [&] {
      for (Node* parameter : parts.parameters) {
        inner.parameter(parameter->text);
        if (parameter->text == "caller") parts.explicit_caller = true;
      }
      for (Node* value : parts.defaults) collect(*value, inner);
      collect(node.body, inner);
    };
    gather();
    const auto is_parameter = [&](const char* name) {
      return std::any_of(parts.parameters.begin(), parts.parameters.end(),
                         [&](const Node* parameter) { return parameter->text == name; });
    };
    const FreeNames free(node.body, {"caller", "kwargs", "varargs"});
    if (free.has("caller")) {
      parts.uses_caller = true;
      if (!parts.explicit_caller) parts.caller_slot = inner.parameter("caller").slot;
      for (size_t i = 0; i < parts.parameters.size(); ++i) {
        if (parts.parameters[i]->text == "caller" && i < parts.parameters.size() - parts.defaults.size()) {
          fail(node, "the parameter 'caller' needs a default.");
        }
      }
    }
    if (free.has("kwargs") && !is_parameter("kwargs")) {
      parts.uses_kwargs = true;
      parts.kwargs_slot = inner.parameter("kwargs").slot;
    }
    if (free.has("varargs") && !is_parameter("varargs")) {
      parts.uses_varargs = true;
      parts.varargs_slot = inner.parameter("varargs").slot;
    }
    for (Node* parameter : parts.parameters) expression(*parameter, inner, false);
    for (Node* value : parts.defaults) expression(*value, inner, false);
    body(node, inner);
    parts.num_slots = own.num_slots;
  }

  [[noreturn]] void fail(const Node& node, const std::string& message) const {
    fail_at(source_, node.offset, message);
  }

  const std::string& source_;
  Tree& tree_;
  size_t work_ = 0;
};

}  // namespace

void bind_names(const std::string& source, Tree& tree) { Binder(source, tree).run(); }

}  // namespace vllm::jinja

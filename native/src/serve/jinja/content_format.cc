#include "serve/jinja/content_format.h"

#include <map>
#include <set>
#include <string>

namespace vllm::jinja {
namespace {

/// What a variable or expression may hold, as bits.
enum Holds : uint8_t { kNothing = 0, kMessages = 1, kMessage = 2, kContent = 4 };

/// Names are followed through the whole template, whatever scope they stand in: a wrong guess needs a
/// template that uses the name of the messages or the content for something else that it walks.
class Search {
 public:
  explicit Search(const Tree& tree) : tree_(tree) {
    held_["messages"] = kMessages;
    for (const Node& node : tree.nodes) {
      if (node.type == NodeType::Macro) macros_[node.text] = &node;
    }
  }

  bool run() {
    for (int round = 0; round < 10 && changed_; ++round) {
      changed_ = false;
      for (const Node& node : tree_.nodes) visit(node);
    }
    return found_;
  }

 private:
  uint8_t holds(const Node* node) const {
    if (!node) return kNothing;
    switch (node->type) {
      case NodeType::Name: {
        const auto at = held_.find(node->text);
        return at == held_.end() ? static_cast<uint8_t>(kNothing) : at->second;
      }
      case NodeType::Filter:
        return holds(node->a) & (kMessages | kContent);
      case NodeType::Attribute:
        return node->text == "content" && (holds(node->a) & kMessage) ? kContent : kNothing;
      case NodeType::Subscript: {
        const uint8_t object = holds(node->a);
        if (node->b->type == NodeType::Slice) return object & (kMessages | kContent);
        const Value& key = node->b->constant;
        if (node->b->type == NodeType::Constant && key.is_string()) {
          return key.str() == "content" && (object & kMessage) ? kContent : kNothing;
        }
        return object & kMessages ? kMessage : kNothing;
      }
      case NodeType::Conditional:
        return holds(node->a) | holds(node->c);
      case NodeType::Or:
      case NodeType::And:
      case NodeType::Binary:
        return holds(node->a) | holds(node->b);
      case NodeType::Call:
        // message.get('content')
        if (node->a->type == NodeType::Attribute && node->a->text == "get" &&
            (holds(node->a->a) & kMessage) && !node->arguments->positional.empty()) {
          const Node& key = *node->arguments->positional[0];
          if (key.type == NodeType::Constant && key.constant.is_string() && key.constant.str() == "content")
            return kContent;
        }
        return kNothing;
      default:
        return kNothing;
    }
  }

  void mark(const Node* target, uint8_t what) {
    if (what == kNothing) return;
    if (target->type == NodeType::Name || target->type == NodeType::NamespaceRef) {
      uint8_t& held = held_[target->text];
      if ((held | what) != held) changed_ = true;
      held |= what;
    }
  }

  void visit(const Node& node) {
    switch (node.type) {
      case NodeType::Set:
        return mark(node.a, holds(node.b));
      case NodeType::For: {
        const uint8_t walked = holds(node.loop->iterable);
        if (walked & kContent) found_ = true;
        if (walked & kMessages) mark(node.loop->target, kMessage);
        return;
      }
      case NodeType::Call: {
        if (node.a->type != NodeType::Name) return;
        const auto macro = macros_.find(node.a->text);
        if (macro == macros_.end()) return;
        const auto& parameters = macro->second->macro->parameters;
        for (size_t i = 0; i < node.arguments->positional.size() && i < parameters.size(); ++i) {
          mark(parameters[i], holds(node.arguments->positional[i]));
        }
        for (const auto& [name, value] : node.arguments->named) {
          for (const Node* parameter : parameters) {
            if (parameter->text == name) mark(parameter, holds(value));
          }
        }
        return;
      }
      default:
        return;
    }
  }

  const Tree& tree_;
  std::map<std::string, uint8_t> held_;
  std::map<std::string, const Node*> macros_;
  bool changed_ = true;
  bool found_ = false;
};

}  // namespace

bool iterates_content(const Tree& tree) { return Search(tree).run(); }

}  // namespace vllm::jinja

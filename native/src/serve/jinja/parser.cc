#include "serve/jinja/parser.h"

#include <algorithm>

#include "base/error.h"
#include "serve/jinja/expression_parser.h"

namespace vllm::jinja {
namespace {

class Parser : private ExpressionParser {
 public:
  Parser(const std::string& source, Tree& tree) : ExpressionParser(source, tree) {}

  void run() { tree_.body = statements({}); }

 private:
  /// Where `break` may stand and `loop` may not be assigned, for the time of a block.
  struct LoopState {
    LoopState(Parser& parser, bool may_break, bool in_for)
        : parser_(parser), break_(parser.may_break_), for_(parser.in_for_) {
      parser.may_break_ = may_break;
      parser.in_for_ = in_for;
    }
    ~LoopState() {
      parser_.may_break_ = break_;
      parser_.in_for_ = for_;
    }
    Parser& parser_;
    bool break_;
    bool for_;
  };

  std::vector<Node*> statements(const std::vector<std::string>& ends) {
    const Nesting nesting(*this);
    std::vector<Node*> out;
    while (true) {
      const Token& token = now();
      switch (token.type) {
        case TokenType::Text: {
          Node* node = make(NodeType::Text, token);
          node->text = token.text;
          out.push_back(node);
          take();
          break;
        }
        case TokenType::PrintBegin: {
          take();
          Node* node = make(NodeType::Print, token);
          node->a = tuple(true, {}, false);
          expect(TokenType::PrintEnd, "'}}'");
          out.push_back(node);
          break;
        }
        case TokenType::BlockBegin: {
          take();
          if (now().type == TokenType::Name && std::find(ends.begin(), ends.end(), now().text) != ends.end())
            return out;
          statement(out);
          expect(TokenType::BlockEnd, "'%}'");
          break;
        }
        default:
          if (ends.empty()) return out;
          fail(token, format("the template ends, but '%s' is still missing.", ends.back().c_str()));
      }
    }
  }

  /// The body of a tag whose arguments were read; stops at the name of one of `ends`.
  std::vector<Node*> block(const std::vector<std::string>& ends) {
    skip_operator(":");
    expect(TokenType::BlockEnd, "'%}'");
    return statements(ends);
  }
  std::vector<Node*> block_to(const char* end) {
    std::vector<Node*> out = block({end});
    take();
    return out;
  }

  void statement(std::vector<Node*>& out) {
    const Token& token = now();
    if (token.type != TokenType::Name)
      fail(token, format("expected the name of a tag, found %s.", describe(token).c_str()));
    const std::string& tag = token.text;
    if (tag == "for") return out.push_back(for_statement());
    if (tag == "if") return out.push_back(if_statement());
    if (tag == "set") return out.push_back(set_statement());
    if (tag == "macro") return out.push_back(macro_statement());
    if (tag == "call") return out.push_back(call_statement());
    if (tag == "filter") return out.push_back(filter_statement());
    if (tag == "with") return out.push_back(with_statement());
    if (tag == "print") return print_statement(out);
    if (tag == "generation") {
      take();
      Node* node = make(NodeType::Scope, token);
      const LoopState state(*this, false, in_for_);
      node->body = block_to("endgeneration");
      return out.push_back(node);
    }
    if (tag == "break" || tag == "continue") {
      if (!may_break_) fail(token, "'" + tag + "' outside of a loop.");
      take();
      return out.push_back(make(tag == "break" ? NodeType::Break : NodeType::Continue, token));
    }
    for (const char* other : {"block", "extends", "include", "import", "from", "autoescape"}) {
      if (tag == other) fail(token, "the tag '" + tag + "' is not supported: a chat template stands alone.");
    }
    fail(token, "unknown tag " + quote(tag) + ".");
  }

  Node* for_statement() {
    Node* node = make(NodeType::For, take());
    tree_.loops.emplace_back();
    LoopParts& loop = *(node->loop = &tree_.loops.back());
    const bool outer_break = may_break_;
    const LoopState state(*this, true, true);
    loop.target = assign_target({"in"}, false);
    expect_name("in");
    loop.iterable = tuple(false, {"recursive"}, false);
    if (skip_name("if")) loop.test = expression();
    loop.recursive = skip_name("recursive");
    node->body = block({"endfor", "else"});
    if (take().text == "else") {
      may_break_ = outer_break && !loop.recursive;
      node->else_body = block_to("endfor");
    }
    return node;
  }

  Node* if_statement() {
    Node* first = make(NodeType::If, take());
    Node* node = first;
    while (true) {
      node->a = tuple(false, {}, false);
      node->body = block({"elif", "else", "endif"});
      const Token& end = take();
      if (end.text == "elif") {
        node = make(NodeType::If, end);
        first->items.push_back(node);
        continue;
      }
      if (end.text == "else") first->else_body = block_to("endif");
      return first;
    }
  }

  Node* set_statement() {
    const Token& token = take();
    Node* target = assign_target({}, true);
    if (skip_operator("=")) {
      Node* node = make(NodeType::Set, token);
      node->a = target;
      node->b = tuple(true, {}, false);
      return node;
    }
    Node* node = make(NodeType::SetBlock, token);
    node->a = target;
    node->b = filters(nullptr);
    node->body = block_to("endset");
    return node;
  }

  Node* parameter(const Token& token, const std::string& text) {
    Node* node = make(NodeType::Name, token);
    node->text = text;
    node->use = NameUse::Parameter;
    return node;
  }

  void signature(MacroParts& macro) {
    expect_operator("(");
    while (!at_operator(")")) {
      if (!macro.parameters.empty()) expect_operator(",");
      const Token& token = now();
      Node* node = parameter(token, name());
      check_target_name(*node);
      if (skip_operator("=")) {
        macro.defaults.push_back(expression());
      } else if (!macro.defaults.empty()) {
        fail(token, "a parameter without a default follows one with a default.");
      }
      for (const Node* other : macro.parameters) {
        if (other->text == node->text) fail(token, "the parameter " + quote(node->text) + " stands twice.");
      }
      macro.parameters.push_back(node);
    }
    expect_operator(")");
  }

  Node* macro_statement() {
    const Token& token = take();
    Node* node = make(NodeType::Macro, token);
    tree_.macros.emplace_back();
    node->macro = &tree_.macros.back();
    node->a = make(NodeType::Name, now());
    node->a->use = NameUse::Store;
    node->text = node->a->text = name();
    check_target_name(*node->a);
    signature(*node->macro);
    const LoopState state(*this, false, in_for_);
    node->body = block_to("endmacro");
    return node;
  }

  Node* call_statement() {
    const Token& token = take();
    Node* node = make(NodeType::CallBlock, token);
    tree_.macros.emplace_back();
    node->macro = &tree_.macros.back();
    if (at_operator("(")) signature(*node->macro);
    node->a = expression();
    if (node->a->type != NodeType::Call) fail(token, "'call' needs the call of a macro.");
    const LoopState state(*this, false, in_for_);
    node->body = block_to("endcall");
    return node;
  }

  Node* filter_statement() {
    Node* node = make(NodeType::FilterBlock, take());
    node->a = filters(one_filter(nullptr));
    node->body = block_to("endfilter");
    return node;
  }

  Node* with_statement() {
    Node* node = make(NodeType::With, take());
    tree_.arguments.emplace_back();
    node->arguments = &tree_.arguments.back();
    while (now().type != TokenType::BlockEnd) {
      if (!node->items.empty()) expect_operator(",");
      Node* target = assign_target({}, false);
      set_use(*target, NameUse::Parameter);
      node->items.push_back(target);
      expect_operator("=");
      node->arguments->positional.push_back(expression());
    }
    node->body = block_to("endwith");
    return node;
  }

  void print_statement(std::vector<Node*>& out) {
    const Token& token = take();
    bool first = true;
    while (now().type != TokenType::BlockEnd) {
      if (!first) expect_operator(",");
      first = false;
      Node* node = make(NodeType::Print, token);
      node->a = expression();
      out.push_back(node);
    }
  }

  void set_use(Node& node, NameUse use) {
    if (node.type == NodeType::Name) node.use = use;
    for (Node* item : node.items) set_use(*item, use);
  }

  void check_target_name(const Node& node) const {
    if (in_for_ && node.text == "loop" && node.use == NameUse::Store) {
      fail_at(source_, node.offset, "'loop' cannot be assigned inside of a loop.");
    }
    for (const char* word : {"true", "false", "none", "True", "False", "None"}) {
      if (node.text == word) fail_at(source_, node.offset, std::string("'") + word + "' cannot be assigned.");
    }
  }

  void check_target(const Node& node) const {
    if (node.type == NodeType::Tuple) {
      for (const Node* item : node.items) check_target(*item);
    } else if (node.type == NodeType::Name) {
      check_target_name(node);
    } else if (node.type != NodeType::NamespaceRef) {
      fail_at(source_, node.offset, "this cannot be assigned to.");
    }
  }

  Node* assign_target(const std::vector<std::string>& end_names, bool with_namespace) {
    simple_ = true;
    simple_namespace_ = with_namespace;
    Node* target = tuple(true, end_names, false);
    set_use(*target, NameUse::Store);
    check_target(*target);
    return target;
  }

  bool may_break_ = false;
  bool in_for_ = false;
};

}  // namespace

void parse_tree(const std::string& source, Tree& tree) { Parser(source, tree).run(); }

}  // namespace vllm::jinja

#include "serve/jinja/parser.h"

#include <algorithm>
#include <initializer_list>

#include "base/error.h"
#include "serve/jinja/filters.h"
#include "serve/jinja/lexer.h"
#include "serve/jinja/operators.h"
#include "serve/jinja/tests.h"

namespace vllm::jinja {
namespace {

std::string describe(const Token& token) {
  switch (token.type) {
    case TokenType::Text:
      return "text";
    case TokenType::PrintBegin:
      return "'{{'";
    case TokenType::PrintEnd:
      return "'}}'";
    case TokenType::BlockBegin:
      return "'{%'";
    case TokenType::BlockEnd:
      return "'%}'";
    case TokenType::String:
      return "a string";
    case TokenType::Integer:
    case TokenType::Float:
      return "a number";
    case TokenType::End:
      return "the end of the template";
    default:
      return quote(token.text);
  }
}

class Parser {
 public:
  Parser(const std::string& source, Tree& tree) : source_(source), tree_(tree), tokens_(tokenize(source)) {}

  void run() { tree_.body = statements({}); }

 private:
  struct Nesting {
    explicit Nesting(Parser& parser) : parser_(parser) {
      if (++parser_.nesting_ > kMaxNesting) {
        parser_.fail(parser_.now(), format("the template is nested deeper than the %d levels that are allowed.", kMaxNesting));
      }
    }
    ~Nesting() { --parser_.nesting_; }
    Parser& parser_;
  };

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

  [[noreturn]] void fail(const Token& token, const std::string& message) const {
    fail_at(source_, token.offset, message);
  }

  const Token& now() const { return tokens_[next_]; }
  const Token& peek() const { return tokens_[std::min(next_ + 1, tokens_.size() - 1)]; }
  const Token& take() { return tokens_[next_ + 1 < tokens_.size() ? next_++ : next_]; }
  bool at_operator(std::string_view symbol) const { return now().is_operator(symbol); }
  bool at_name(std::string_view name) const { return now().is_name(name); }
  bool skip_operator(std::string_view symbol) { return at_operator(symbol) && (++next_, true); }
  bool skip_name(std::string_view name) { return at_name(name) && (++next_, true); }

  void expect_operator(const char* symbol) {
    if (!skip_operator(symbol)) fail(now(), format("expected '%s', found %s.", symbol, describe(now()).c_str()));
  }
  void expect_name(const char* name) {
    if (!skip_name(name)) fail(now(), format("expected '%s', found %s.", name, describe(now()).c_str()));
  }
  void expect(TokenType type, const char* what) {
    if (now().type != type) fail(now(), format("expected %s, found %s.", what, describe(now()).c_str()));
    take();
  }
  std::string name() {
    if (now().type != TokenType::Name) fail(now(), format("expected a name, found %s.", describe(now()).c_str()));
    return take().text;
  }
  std::string dotted_name() {
    std::string out = name();
    while (skip_operator(".")) out += "." + name();
    return out;
  }

  Node* make(NodeType type, const Token& token) { return make_at(type, token.offset); }
  Node* make_at(NodeType type, uint32_t offset) {
    tree_.nodes.push_back({});
    Node* node = &tree_.nodes.back();
    node->type = type;
    node->offset = offset;
    return node;
  }

  /// Sets the height of an expression from its parts.
  Node* over(Node* node, std::initializer_list<const Node*> parts) {
    for (const Node* part : parts) {
      if (part) node->height = std::max(node->height, part->height + 1);
    }
    for (const Node* part : node->items) node->height = std::max(node->height, part->height + 1);
    if (node->arguments) {
      for (const Node* part : node->arguments->positional) node->height = std::max(node->height, part->height + 1);
      for (const auto& [key, part] : node->arguments->named) node->height = std::max(node->height, part->height + 1);
      for (const Node* part : {node->arguments->star, node->arguments->star_star}) {
        if (part) node->height = std::max(node->height, part->height + 1);
      }
    }
    if (node->height > kMaxHeight) {
      fail_at(source_, node->offset,
              format("the expression is nested deeper than the %u levels that are allowed.", kMaxHeight));
    }
    return node;
  }

  Node* constant(const Token& token, const Value& value) {
    Node* node = make(NodeType::Constant, token);
    node->constant = value;
    return node;
  }

  // Statements.

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
          if (now().type == TokenType::Name && std::find(ends.begin(), ends.end(), now().text) != ends.end()) return out;
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
    if (token.type != TokenType::Name) fail(token, format("expected the name of a tag, found %s.", describe(token).c_str()));
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

  // Expressions, from the weakest binding to the strongest.

  Node* expression(bool with_condition = true) {
    const Nesting nesting(*this);
    return with_condition ? conditional() : or_chain();
  }

  /// One expression, or several with commas between them as a tuple.
  Node* tuple(bool with_condition, const std::vector<std::string>& end_names, bool in_parentheses) {
    const bool simple = simple_, with_namespace = simple_namespace_;
    simple_ = simple_namespace_ = false;
    const Nesting nesting(*this);
    const Token& start = now();
    std::vector<Node*> items;
    bool is_tuple = false;
    while (true) {
      if (!items.empty()) expect_operator(",");
      const Token& token = now();
      if (token.type == TokenType::PrintEnd || token.type == TokenType::BlockEnd || token.is_operator(")")) break;
      if (token.type == TokenType::Name &&
          std::find(end_names.begin(), end_names.end(), token.text) != end_names.end()) {
        break;
      }
      items.push_back(simple ? primary(with_namespace) : expression(with_condition));
      if (!at_operator(",")) break;
      is_tuple = true;
    }
    if (!is_tuple) {
      if (!items.empty()) return items[0];
      if (!in_parentheses) fail(now(), format("expected an expression, found %s.", describe(now()).c_str()));
    }
    Node* node = make(NodeType::Tuple, start);
    node->items = std::move(items);
    return over(node, {});
  }

  Node* conditional() {
    Node* value = or_chain();
    while (at_name("if")) {
      Node* node = make(NodeType::Conditional, take());
      node->a = value;
      node->b = or_chain();
      if (skip_name("else")) node->c = expression();
      value = over(node, {node->a, node->b, node->c});
    }
    return value;
  }

  Node* joined(NodeType type, const Token& token, Node* a, Node* b, BinaryOp op = BinaryOp::Add) {
    Node* node = make(type, token);
    node->a = a;
    node->b = b;
    node->op = static_cast<uint8_t>(op);
    return over(node, {a, b});
  }

  Node* or_chain() {
    Node* left = and_chain();
    while (at_name("or")) {
      const Token& token = take();
      left = joined(NodeType::Or, token, left, and_chain());
    }
    return left;
  }

  Node* and_chain() {
    Node* left = negation();
    while (at_name("and")) {
      const Token& token = take();
      left = joined(NodeType::And, token, left, negation());
    }
    return left;
  }

  Node* negation() {
    if (!at_name("not")) return comparison();
    const Nesting nesting(*this);
    Node* node = make(NodeType::Not, take());
    node->a = negation();
    return over(node, {node->a});
  }

  bool take_comparison(CompareOp& op) {
    static constexpr std::pair<const char*, CompareOp> kOps[] = {
        {"==", CompareOp::Equal},      {"!=", CompareOp::NotEqual}, {"<", CompareOp::Less},
        {"<=", CompareOp::LessEqual}, {">", CompareOp::Greater},    {">=", CompareOp::GreaterEqual}};
    for (const auto& [symbol, value] : kOps) {
      if (skip_operator(symbol)) {
        op = value;
        return true;
      }
    }
    if (skip_name("in")) {
      op = CompareOp::In;
      return true;
    }
    if (at_name("not") && peek().is_name("in")) {
      next_ += 2;
      op = CompareOp::NotIn;
      return true;
    }
    return false;
  }

  Node* comparison() {
    Node* first = sum();
    const Token& token = now();
    CompareOp op;
    if (!take_comparison(op)) return first;
    Node* node = make(NodeType::Compare, token);
    node->a = first;
    do {
      node->ops.push_back(static_cast<uint8_t>(op));
      node->items.push_back(sum());
    } while (take_comparison(op));
    return over(node, {first});
  }

  Node* sum() {
    Node* left = concatenation();
    while (at_operator("+") || at_operator("-")) {
      const Token& token = take();
      const BinaryOp op = token.text == "+" ? BinaryOp::Add : BinaryOp::Subtract;
      left = joined(NodeType::Binary, token, left, concatenation(), op);
    }
    return left;
  }

  Node* concatenation() {
    Node* first = product();
    if (!at_operator("~")) return first;
    Node* node = make(NodeType::Concat, now());
    node->items.push_back(first);
    while (skip_operator("~")) node->items.push_back(product());
    return over(node, {});
  }

  Node* product() {
    Node* left = power();
    while (true) {
      BinaryOp op;
      if (at_operator("*")) {
        op = BinaryOp::Multiply;
      } else if (at_operator("/")) {
        op = BinaryOp::Divide;
      } else if (at_operator("//")) {
        op = BinaryOp::FloorDivide;
      } else if (at_operator("%")) {
        op = BinaryOp::Modulo;
      } else {
        return left;
      }
      const Token& token = take();
      left = joined(NodeType::Binary, token, left, power(), op);
    }
  }

  Node* power() {
    Node* left = unary(true);
    while (at_operator("**")) {
      const Token& token = take();
      left = joined(NodeType::Binary, token, left, unary(true), BinaryOp::Power);
    }
    return left;
  }

  Node* unary(bool with_filter) {
    Node* node;
    if (at_operator("-") || at_operator("+")) {
      const Nesting nesting(*this);
      const Token& token = take();
      node = make(token.text == "-" ? NodeType::Negate : NodeType::Positive, token);
      node->a = unary(false);
      over(node, {node->a});
    } else {
      node = primary(false);
    }
    node = postfix(node);
    return with_filter ? filters_and_tests(node) : node;
  }

  Node* primary(bool with_namespace) {
    const Token& token = now();
    switch (token.type) {
      case TokenType::Name: {
        take();
        const std::string& text = token.text;
        if (text == "true" || text == "True") return constant(token, make_bool(true));
        if (text == "false" || text == "False") return constant(token, make_bool(false));
        if (text == "none" || text == "None") return constant(token, make_none());
        Node* node = make(NodeType::Name, token);
        node->text = text;
        if (!with_namespace || !at_operator(".")) return node;
        take();
        Node* ref = make(NodeType::NamespaceRef, token);
        ref->a = node;
        ref->text = name();
        return ref;
      }
      case TokenType::String: {
        Node* node = make(NodeType::Constant, token);
        while (now().type == TokenType::String) node->text += take().text;
        node->constant = make_str(node->text);
        return node;
      }
      case TokenType::Integer:
        return constant(token, make_int(take().integer));
      case TokenType::Float:
        return constant(token, make_float(take().number));
      default:
        break;
    }
    if (skip_operator("(")) {
      simple_ = simple_namespace_ = false;
      Node* node = tuple(true, {}, true);
      expect_operator(")");
      return node;
    }
    if (at_operator("[")) return list();
    if (at_operator("{")) return dict();
    fail(token, format("unexpected %s.", describe(token).c_str()));
  }

  Node* list() {
    Node* node = make(NodeType::List, take());
    while (!at_operator("]")) {
      if (!node->items.empty()) expect_operator(",");
      if (at_operator("]")) break;
      node->items.push_back(expression());
    }
    expect_operator("]");
    return over(node, {});
  }

  Node* dict() {
    Node* node = make(NodeType::Dict, take());
    while (!at_operator("}")) {
      if (!node->items.empty()) expect_operator(",");
      if (at_operator("}")) break;
      node->items.push_back(expression());
      expect_operator(":");
      node->items.push_back(expression());
    }
    expect_operator("}");
    return over(node, {});
  }

  Node* postfix(Node* node) {
    while (true) {
      if (at_operator(".")) {
        node = attribute(node);
      } else if (at_operator("[")) {
        node = subscript(node);
      } else if (at_operator("(")) {
        node = call(node);
      } else {
        return node;
      }
    }
  }

  Node* attribute(Node* object) {
    const Token& dot = take();
    const Token& token = take();
    if (token.type == TokenType::Name) {
      Node* node = make(NodeType::Attribute, dot);
      node->a = object;
      node->text = token.text;
      return over(node, {object});
    }
    if (token.type != TokenType::Integer) fail(token, format("expected a name, found %s.", describe(token).c_str()));
    Node* node = make(NodeType::Subscript, dot);
    node->a = object;
    node->b = constant(token, make_int(token.integer));
    return over(node, {object});
  }

  Node* subscript(Node* object) {
    Node* node = make(NodeType::Subscript, take());
    node->a = object;
    std::vector<Node*> parts;
    while (!at_operator("]")) {
      if (!parts.empty()) expect_operator(",");
      parts.push_back(slice_or_expression());
    }
    const Token& end = take();
    if (parts.size() == 1) {
      node->b = parts[0];
    } else {
      for (const Node* part : parts) {
        if (part->type == NodeType::Slice) fail(end, "a subscript with commas cannot hold a slice.");
      }
      node->b = make(NodeType::Tuple, end);
      node->b->items = std::move(parts);
      over(node->b, {});
    }
    return over(node, {object, node->b});
  }

  Node* slice_or_expression() {
    const Token& token = now();
    Node* first = nullptr;
    if (!at_operator(":")) {
      first = expression();
      if (!at_operator(":")) return first;
    }
    take();
    Node* node = make(NodeType::Slice, token);
    node->a = first;
    const auto at_end = [&] { return at_operator("]") || at_operator(","); };
    if (!at_operator(":") && !at_end()) node->b = expression();
    if (skip_operator(":") && !at_end()) node->c = expression();
    return over(node, {node->a, node->b, node->c});
  }

  Arguments* call_arguments() {
    const Token& open = now();
    expect_operator("(");
    tree_.arguments.emplace_back();
    Arguments& out = tree_.arguments.back();
    const auto ensure = [&](bool good) {
      if (!good) fail(open, "the arguments of the call stand in a wrong order.");
    };
    bool first = true;
    while (!at_operator(")")) {
      if (!first) {
        expect_operator(",");
        if (at_operator(")")) break;
      }
      first = false;
      if (skip_operator("*")) {
        ensure(!out.star && !out.star_star);
        out.star = expression();
      } else if (skip_operator("**")) {
        ensure(!out.star_star);
        out.star_star = expression();
      } else if (now().type == TokenType::Name && peek().is_operator("=")) {
        ensure(!out.star_star);
        const Token& token = now();
        std::string key = name();
        take();
        for (const auto& [other, value] : out.named) {
          if (other == key) fail(token, "the argument " + quote(key) + " is given twice.");
        }
        out.named.emplace_back(std::move(key), expression());
      } else {
        ensure(!out.star && !out.star_star && out.named.empty());
        out.positional.push_back(expression());
      }
    }
    expect_operator(")");
    return &out;
  }

  Node* call(Node* callee) {
    Node* node = make(NodeType::Call, now());
    node->a = callee;
    node->arguments = call_arguments();
    return over(node, {callee});
  }

  Node* filters_and_tests(Node* node) {
    while (true) {
      if (at_operator("|")) {
        node = filters(node);
      } else if (at_name("is")) {
        node = test(node);
      } else if (at_operator("(")) {
        node = call(node);
      } else {
        return node;
      }
    }
  }

  Node* filters(Node* node) {
    while (skip_operator("|")) node = one_filter(node);
    return node;
  }

  /// A filter whose name comes next.
  Node* one_filter(Node* input) {
    Node* node = make(NodeType::Filter, now());
    node->text = dotted_name();
    node->a = input;
    node->filter = find_filter(node->text);
    if (at_operator("(")) {
      node->arguments = call_arguments();
    } else {
      tree_.arguments.emplace_back();
      node->arguments = &tree_.arguments.back();
    }
    return over(node, {input});
  }

  Node* test(Node* value) {
    take();
    const Token& start = now();
    const bool negated = skip_name("not");
    Node* node = make(NodeType::Test, now());
    node->a = value;
    node->text = dotted_name();
    node->test = find_test(node->text);
    if (at_operator("(")) {
      node->arguments = call_arguments();
    } else {
      tree_.arguments.emplace_back();
      node->arguments = &tree_.arguments.back();
      const TokenType type = now().type;
      const bool starts_value = type == TokenType::Name || type == TokenType::String || type == TokenType::Integer ||
                                type == TokenType::Float || at_operator("[") || at_operator("{");
      if (starts_value && !at_name("else") && !at_name("or") && !at_name("and")) {
        if (at_name("is")) fail(now(), "tests cannot be chained with 'is'.");
        const Nesting nesting(*this);
        node->arguments->positional.push_back(postfix(primary(false)));
      }
    }
    over(node, {value});
    if (!negated) return node;
    Node* opposite = make(NodeType::Not, start);
    opposite->a = node;
    return over(opposite, {node});
  }

  const std::string& source_;
  Tree& tree_;
  std::vector<Token> tokens_;
  size_t next_ = 0;
  int nesting_ = 0;
  bool may_break_ = false;
  bool in_for_ = false;
  bool simple_ = false;  // the next tuple() reads an assignment target
  bool simple_namespace_ = false;
};

}  // namespace

void parse_tree(const std::string& source, Tree& tree) { Parser(source, tree).run(); }

}  // namespace vllm::jinja

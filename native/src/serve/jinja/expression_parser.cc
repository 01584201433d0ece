#include "serve/jinja/expression_parser.h"

#include <utility>

#include "base/error.h"
#include "serve/jinja/filters.h"
#include "serve/jinja/parser.h"
#include "serve/jinja/tests.h"

namespace vllm::jinja {

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

ExpressionParser::Nesting::Nesting(ExpressionParser& parser) : parser_(parser) {
  if (++parser_.nesting_ > kMaxNesting) {
    parser_.fail(parser_.now(),
                 format("the template is nested deeper than the %d levels that are allowed.", kMaxNesting));
  }
}

void ExpressionParser::fail(const Token& token, const std::string& message) const {
  fail_at(source_, token.offset, message);
}

void ExpressionParser::expect_operator(const char* symbol) {
  if (!skip_operator(symbol))
    fail(now(), format("expected '%s', found %s.", symbol, describe(now()).c_str()));
}

void ExpressionParser::expect_name(const char* name) {
  if (!skip_name(name)) fail(now(), format("expected '%s', found %s.", name, describe(now()).c_str()));
}

void ExpressionParser::expect(TokenType type, const char* what) {
  if (now().type != type) fail(now(), format("expected %s, found %s.", what, describe(now()).c_str()));
  take();
}

std::string ExpressionParser::name() {
  if (now().type != TokenType::Name)
    fail(now(), format("expected a name, found %s.", describe(now()).c_str()));
  return take().text;
}

std::string ExpressionParser::dotted_name() {
  std::string out = name();
  while (skip_operator(".")) out += "." + name();
  return out;
}

Node* ExpressionParser::make_at(NodeType type, uint32_t offset) {
  tree_.nodes.push_back({});
  Node* node = &tree_.nodes.back();
  node->type = type;
  node->offset = offset;
  return node;
}

Node* ExpressionParser::over(Node* node, std::initializer_list<const Node*> parts) {
  for (const Node* part : parts) {
    if (part) node->height = std::max(node->height, part->height + 1);
  }
  for (const Node* part : node->items) node->height = std::max(node->height, part->height + 1);
  if (node->arguments) {
    for (const Node* part : node->arguments->positional)
      node->height = std::max(node->height, part->height + 1);
    for (const auto& [key, part] : node->arguments->named)
      node->height = std::max(node->height, part->height + 1);
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

Node* ExpressionParser::constant(const Token& token, const Value& value) {
  Node* node = make(NodeType::Constant, token);
  node->constant = value;
  return node;
}

Node* ExpressionParser::expression(bool with_condition) {
  const Nesting nesting(*this);
  return with_condition ? conditional() : or_chain();
}

Node* ExpressionParser::tuple(bool with_condition, const std::vector<std::string>& end_names,
                              bool in_parentheses) {
  const bool simple = simple_, with_namespace = simple_namespace_;
  simple_ = simple_namespace_ = false;
  const Nesting nesting(*this);
  const Token& start = now();
  std::vector<Node*> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) expect_operator(",");
    const Token& token = now();
    if (token.type == TokenType::PrintEnd || token.type == TokenType::BlockEnd || token.is_operator(")"))
      break;
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

Node* ExpressionParser::conditional() {
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

Node* ExpressionParser::joined(NodeType type, const Token& token, Node* a, Node* b, BinaryOp op) {
  Node* node = make(type, token);
  node->a = a;
  node->b = b;
  node->op = static_cast<uint8_t>(op);
  return over(node, {a, b});
}

Node* ExpressionParser::or_chain() {
  Node* left = and_chain();
  while (at_name("or")) {
    const Token& token = take();
    left = joined(NodeType::Or, token, left, and_chain());
  }
  return left;
}

Node* ExpressionParser::and_chain() {
  Node* left = negation();
  while (at_name("and")) {
    const Token& token = take();
    left = joined(NodeType::And, token, left, negation());
  }
  return left;
}

Node* ExpressionParser::negation() {
  if (!at_name("not")) return comparison();
  const Nesting nesting(*this);
  Node* node = make(NodeType::Not, take());
  node->a = negation();
  return over(node, {node->a});
}

bool ExpressionParser::take_comparison(CompareOp& op) {
  static constexpr std::pair<const char*, CompareOp> kOps[] = {
      {"==", CompareOp::Equal},     {"!=", CompareOp::NotEqual}, {"<", CompareOp::Less},
      {"<=", CompareOp::LessEqual}, {">", CompareOp::Greater},   {">=", CompareOp::GreaterEqual}};
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

Node* ExpressionParser::comparison() {
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

Node* ExpressionParser::sum() {
  Node* left = concatenation();
  while (at_operator("+") || at_operator("-")) {
    const Token& token = take();
    const BinaryOp op = token.text == "+" ? BinaryOp::Add : BinaryOp::Subtract;
    left = joined(NodeType::Binary, token, left, concatenation(), op);
  }
  return left;
}

Node* ExpressionParser::concatenation() {
  Node* first = product();
  if (!at_operator("~")) return first;
  Node* node = make(NodeType::Concat, now());
  node->items.push_back(first);
  while (skip_operator("~")) node->items.push_back(product());
  return over(node, {});
}

Node* ExpressionParser::product() {
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

Node* ExpressionParser::power() {
  Node* left = unary(true);
  while (at_operator("**")) {
    const Token& token = take();
    left = joined(NodeType::Binary, token, left, unary(true), BinaryOp::Power);
  }
  return left;
}

Node* ExpressionParser::unary(bool with_filter) {
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

Node* ExpressionParser::primary(bool with_namespace) {
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

Node* ExpressionParser::list() {
  Node* node = make(NodeType::List, take());
  while (!at_operator("]")) {
    if (!node->items.empty()) expect_operator(",");
    if (at_operator("]")) break;
    node->items.push_back(expression());
  }
  expect_operator("]");
  return over(node, {});
}

Node* ExpressionParser::dict() {
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

Node* ExpressionParser::postfix(Node* node) {
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

Node* ExpressionParser::attribute(Node* object) {
  const Token& dot = take();
  const Token& token = take();
  if (token.type == TokenType::Name) {
    Node* node = make(NodeType::Attribute, dot);
    node->a = object;
    node->text = token.text;
    return over(node, {object});
  }
  if (token.type != TokenType::Integer)
    fail(token, format("expected a name, found %s.", describe(token).c_str()));
  Node* node = make(NodeType::Subscript, dot);
  node->a = object;
  node->b = constant(token, make_int(token.integer));
  return over(node, {object});
}

Node* ExpressionParser::subscript(Node* object) {
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

Node* ExpressionParser::slice_or_expression() {
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

Arguments* ExpressionParser::call_arguments() {
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

Node* ExpressionParser::call(Node* callee) {
  Node* node = make(NodeType::Call, now());
  node->a = callee;
  node->arguments = call_arguments();
  return over(node, {callee});
}

Node* ExpressionParser::filters_and_tests(Node* node) {
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

Node* ExpressionParser::filters(Node* node) {
  while (skip_operator("|")) node = one_filter(node);
  return node;
}

Node* ExpressionParser::one_filter(Node* input) {
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

Node* ExpressionParser::test(Node* value) {
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
    const bool starts_value = type == TokenType::Name || type == TokenType::String ||
                              type == TokenType::Integer || type == TokenType::Float || at_operator("[") ||
                              at_operator("{");
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

}  // namespace vllm::jinja

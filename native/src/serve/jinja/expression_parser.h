// The expressions of a template, from tokens to a tree.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "serve/jinja/ast.h"
#include "serve/jinja/lexer.h"
#include "serve/jinja/operators.h"

namespace vllm::jinja {

class ExpressionParser {
 protected:
  ExpressionParser(const std::string& source, Tree& tree)
      : source_(source), tree_(tree), tokens_(tokenize(source)) {}

  /// One level of brackets or blocks, for its lifetime.
  struct Nesting {
    explicit Nesting(ExpressionParser& parser);
    ~Nesting() { --parser_.nesting_; }
    ExpressionParser& parser_;
  };

  const Token& now() const { return tokens_[next_]; }
  const Token& peek() const { return tokens_[std::min(next_ + 1, tokens_.size() - 1)]; }
  const Token& take() { return tokens_[next_ + 1 < tokens_.size() ? next_++ : next_]; }
  bool at_operator(std::string_view symbol) const { return now().is_operator(symbol); }
  bool at_name(std::string_view name) const { return now().is_name(name); }
  bool skip_operator(std::string_view symbol) { return at_operator(symbol) && (++next_, true); }
  bool skip_name(std::string_view name) { return at_name(name) && (++next_, true); }
  Node* make(NodeType type, const Token& token) { return make_at(type, token.offset); }
  [[noreturn]] void fail(const Token& token, const std::string& message) const;
  void expect_operator(const char* symbol);
  void expect_name(const char* name);
  void expect(TokenType type, const char* what);
  std::string name();
  std::string dotted_name();
  Node* make_at(NodeType type, uint32_t offset);
  /// Sets the height of an expression from its parts.
  Node* over(Node* node, std::initializer_list<const Node*> parts);
  Node* constant(const Token& token, const Value& value);

  // From the weakest binding to the strongest.
  Node* expression(bool with_condition = true);
  /// One expression, or several with commas between them as a tuple.
  Node* tuple(bool with_condition, const std::vector<std::string>& end_names, bool in_parentheses);
  Node* conditional();
  Node* joined(NodeType type, const Token& token, Node* a, Node* b, BinaryOp op = BinaryOp::Add);
  Node* or_chain();
  Node* and_chain();
  Node* negation();
  bool take_comparison(CompareOp& op);
  Node* comparison();
  Node* sum();
  Node* concatenation();
  Node* product();
  Node* power();
  Node* unary(bool with_filter);
  Node* primary(bool with_namespace);
  Node* list();
  Node* dict();
  Node* postfix(Node* node);
  Node* attribute(Node* object);
  Node* subscript(Node* object);
  Node* slice_or_expression();
  Arguments* call_arguments();
  Node* call(Node* callee);
  Node* filters_and_tests(Node* node);
  Node* filters(Node* node);
  /// A filter whose name comes next.
  Node* one_filter(Node* input);
  Node* test(Node* value);

  const std::string& source_;
  Tree& tree_;
  std::vector<Token> tokens_;
  size_t next_ = 0;
  int nesting_ = 0;
  bool simple_ = false;  // the next tuple() reads an assignment target
  bool simple_namespace_ = false;
};

/// A token for a message.
std::string describe(const Token& token);

}  // namespace vllm::jinja

// Source of a template to tokens, with the white space rules of trim_blocks and lstrip_blocks.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vllm::jinja {

enum class TokenType : uint8_t {
  Text,
  PrintBegin,
  PrintEnd,
  BlockBegin,
  BlockEnd,
  Name,
  String,
  Integer,
  Float,
  Operator,  // text holds it
  End,
};

struct Token {
  TokenType type;
  uint32_t offset = 0;
  std::string text;  // of a String: unescaped
  int64_t integer = 0;
  double number = 0;

  bool is_operator(std::string_view symbol) const { return type == TokenType::Operator && text == symbol; }
  bool is_name(std::string_view name) const { return type == TokenType::Name && text == name; }
};

/// Line ends become "\n", the last one is dropped.
std::string normalize_source(std::string_view source);

/// `source` is normalized. Throws Error(InvalidArgument) that names line and column.
std::vector<Token> tokenize(const std::string& source);

/// Throws the error for a fault in the source.
[[noreturn]] void fail_at(std::string_view source, size_t offset, const std::string& message);

}  // namespace vllm::jinja

#include "serve/parsing/json_scanner.h"

namespace vllm {
namespace {

bool is_json_space(char byte) { return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r'; }
bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }
bool is_hex(char byte) {
  return is_digit(byte) || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
}

}  // namespace

JsonScanner JsonScanner::inside_object() {
  JsonScanner scanner;
  scanner.stack_.push_back('{');
  return scanner;
}

size_t JsonScanner::scan(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size() && state_ == State::More) {
    if (token_ == Token::Number) {
      bool ended = false;
      if (!number(bytes[at], &ended)) {
        state_ = State::Invalid;
      } else if (ended) {
        token_ = Token::None;
        value_ends();
      } else {
        ++at;
      }
      continue;
    }
    if (!step(bytes[at])) {
      state_ = State::Invalid;
      break;
    }
    ++at;
  }
  return at;
}

void JsonScanner::finish() {
  if (state_ != State::More) return;
  bool ended = false;
  if (token_ == Token::Number && number('\0', &ended) && ended) {
    token_ = Token::None;
    value_ends();
  }
  if (state_ == State::More) state_ = State::Invalid;
}

bool JsonScanner::step(char byte) {
  switch (token_) {
    case Token::String:
      if (byte == '"') {
        token_ = Token::None;
        if (key_) {
          expect_ = Expect::Colon;
        } else {
          value_ends();
        }
      } else if (byte == '\\') {
        token_ = Token::Escape;
      } else if (static_cast<unsigned char>(byte) < 0x20) {
        return false;
      }
      return true;
    case Token::Escape:
      token_ = Token::String;
      if (byte == 'u') {
        token_ = Token::Hex;
        hex_left_ = 4;
        return true;
      }
      return std::string_view("\"\\/bfnrt").find(byte) != std::string_view::npos;
    case Token::Hex:
      if (!is_hex(byte)) return false;
      if (--hex_left_ == 0) token_ = Token::String;
      return true;
    case Token::Word:
      if (byte != word_.front()) return false;
      word_.remove_prefix(1);
      if (word_.empty()) {
        token_ = Token::None;
        value_ends();
      }
      return true;
    default:
      return begin(byte);
  }
}

bool JsonScanner::begin(char byte) {
  if (is_json_space(byte)) return true;
  switch (expect_) {
    case Expect::Colon:
      expect_ = Expect::Value;
      return byte == ':';
    case Expect::CommaOrEnd:
      if (byte == ',') {
        expect_ = stack_.back() == '{' ? Expect::Key : Expect::Value;
        return true;
      }
      return close(byte);
    case Expect::KeyOrEnd:
      if (byte == '}') return close(byte);
      [[fallthrough]];
    case Expect::Key:
      token_ = Token::String;
      key_ = true;
      return byte == '"';
    case Expect::ValueOrEnd:
      if (byte == ']') return close(byte);
      break;
    case Expect::Value:
      break;
  }
  switch (byte) {
    case '{':
    case '[':
      if (stack_.size() >= kMaxDepth) return false;
      stack_ += byte;
      expect_ = byte == '{' ? Expect::KeyOrEnd : Expect::ValueOrEnd;
      return true;
    case '"':
      token_ = Token::String;
      key_ = false;
      return true;
    case 't':
    case 'f':
    case 'n':
      token_ = Token::Word;
      word_ = byte == 't' ? "rue" : byte == 'f' ? "alse" : "ull";
      return true;
    default:
      token_ = Token::Number;
      number_ = byte == '-' ? Number::Sign : byte == '0' ? Number::Zero : Number::Whole;
      return byte == '-' || is_digit(byte);
  }
}

/// RFC 8259: -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [-+]? [0-9]+)?
bool JsonScanner::number(char byte, bool* ended) {
  const bool digit = is_digit(byte);
  switch (number_) {
    case Number::Sign:
      number_ = byte == '0' ? Number::Zero : Number::Whole;
      return digit;
    case Number::Zero:
    case Number::Whole:
      if (digit) return number_ == Number::Whole;
      if (byte == '.') {
        number_ = Number::Point;
        return true;
      }
      break;
    case Number::Point:
      number_ = Number::Fraction;
      return digit;
    case Number::Fraction:
      if (digit) return true;
      break;
    case Number::Exponent:
      number_ = digit ? Number::ExponentDigits : Number::ExponentSign;
      return digit || byte == '-' || byte == '+';
    case Number::ExponentSign:
      number_ = Number::ExponentDigits;
      return digit;
    case Number::ExponentDigits:
      if (digit) return true;
      *ended = true;
      return true;
  }
  if (byte == 'e' || byte == 'E') {
    number_ = Number::Exponent;
    return true;
  }
  *ended = true;
  return true;
}

void JsonScanner::value_ends() {
  if (stack_.empty()) {
    state_ = State::Done;
  } else {
    expect_ = Expect::CommaOrEnd;
  }
}

bool JsonScanner::close(char byte) {
  const char open = byte == '}' ? '{' : byte == ']' ? '[' : '\0';
  if (open == '\0' || stack_.back() != open) return false;
  stack_.pop_back();
  value_ends();
  return true;
}

}  // namespace vllm

// Finds the end of a JSON text (RFC 8259) that arrives in pieces, and where it stops being JSON.
#pragma once
#include <string>
#include <string_view>

namespace vllm {

class JsonScanner {
 public:
  enum class State { More, Done, Invalid };

  /// Starts in front of a value.
  JsonScanner() = default;
  /// Starts inside an object, behind a key and its colon.
  static JsonScanner inside_object();

  /// Reads bytes up to the end of the value or the first byte that cannot be part of it, and returns how many
  /// it read. Space in front of the value is part of it, space behind it is not.
  size_t scan(std::string_view bytes);
  /// Says that no bytes follow: a number may end here.
  void finish();
  State state() const { return state_; }

  static constexpr size_t kMaxDepth = 512;

 private:
  enum class Expect : char { Value, ValueOrEnd, KeyOrEnd, Key, Colon, CommaOrEnd };
  enum class Token : char { None, String, Escape, Hex, Number, Word };
  /// Where a number stands: each state may be followed by few bytes.
  enum class Number : char { Sign, Zero, Whole, Point, Fraction, Exponent, ExponentSign, ExponentDigits };

  bool step(char byte);
  bool begin(char byte);
  bool number(char byte, bool* ended);
  void value_ends();
  bool close(char byte);

  State state_ = State::More;
  Expect expect_ = Expect::Value;
  Token token_ = Token::None;
  Number number_ = Number::Sign;
  bool key_ = false;  // the string is a key
  int hex_left_ = 0;
  std::string_view word_;  // what is left of true, false, null
  std::string stack_;      // open brackets
};

}  // namespace vllm

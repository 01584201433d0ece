// Python literals and call arguments, written as JSON.
#pragma once
#include <string>
#include <string_view>

namespace vllm {

/// JSON text of a literal: str, int, float, True, False, None (also true, false, null), list, tuple, set (as
/// a list), dict. False when `text` is none.
bool python_literal_json(std::string_view text, std::string* json);

/// JSON object of `a=1, b='x'`, the text between the parentheses of a call. False when it is none: a
/// positional argument, a name given twice, an expression.
bool python_arguments_json(std::string_view text, std::string* json);

/// Finds the end of a bracketed text that arrives in pieces; brackets in strings do not count.
class BracketScanner {
 public:
  enum class State { More, Done, Invalid };
  /// Reads bytes up to the bracket that closes the first, and returns how many it read.
  size_t scan(std::string_view bytes);
  State state() const { return state_; }

 private:
  State state_ = State::More;
  std::string open_;
  char quote_ = '\0';
  bool triple_ = false;
  bool escaped_ = false;
  int run_ = 0;           // equal quotes in a row
  bool opening_ = false;  // those of `run_` open a string
};

}  // namespace vllm

// Reads a large JSON text in place: a tokenizer.json holds half a million strings.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace vllm {

/// A cursor over JSON text. Every fault is Error(ModelLoad) naming `what` and the byte offset.
class JsonScanner {
 public:
  JsonScanner(std::string_view text, std::string what) : text_(text), what_(std::move(what)) {}

  /// The next value must be an object: calls `member` for each key; it must read exactly the value.
  void object(const std::function<void(std::string_view key)>& member);
  /// The next value must be an array: calls `item` before each; it must read exactly the value.
  void array(const std::function<void()>& item);
  /// The next value must be a string. The view is valid until the next call.
  std::string_view string();
  /// The next value must be an integer.
  int64_t integer();
  /// Passes over any value and returns its text.
  std::string_view value();
  /// First character of the next value.
  char peek();
  /// Nothing but white space may be left.
  void end();
  [[noreturn]] void fail(const std::string& need) const;

 private:
  void skip_space();
  void expect(char c);
  void skip_string();
  void unescape();
  std::string_view text_;
  std::string what_;
  size_t pos_ = 0;
  int depth_ = 0;
  std::string buffer_;  // of a string with escapes
};

}  // namespace vllm

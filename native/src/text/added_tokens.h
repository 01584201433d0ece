// Tokens that are found in the text before anything else is done with it.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vllm {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;      // found only where special tokens are asked for
  bool single_word = false;  // not beside a word character
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and behind it
};

/// A part of a text: a token, or (id -1) what lies between tokens.
struct TokenSpan {
  size_t begin, end;
  int32_t id;
};

/// Finds tokens from left to right, the longest at each place.
class AddedTokenFinder {
 public:
  AddedTokenFinder();
  static constexpr size_t kMaxLength = 1024;  // bytes of a token
  void add(AddedToken token);
  bool empty() const { return tokens_.empty(); }
  /// Cuts valid UTF-8 into spans; none is empty, together they are `text`.
  std::vector<TokenSpan> split(std::string_view text, bool special) const;

 private:
  struct Node {
    uint8_t byte;
    int32_t token = -1;  // index into tokens_
    int32_t child = -1, sibling = -1;
  };
  int32_t child_of(int32_t node, uint8_t byte) const;
  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<int32_t, 256> roots_;
};

}  // namespace vllm

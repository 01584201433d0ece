// Token ids to text, one at a time, never splitting a character.
#pragma once
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace vllm {

/// Text of a generated sequence as it grows. What add() and finish() returned, joined, is valid UTF-8: a byte
/// run that cannot become a character is replaced by one U+FFFD as soon as that is known.
class Detokenizer {
 public:
  Detokenizer(const Tokenizer& tokenizer, bool skip_special);
  /// Text completed by this token; bytes of an unfinished character are kept back.
  std::string add(int32_t id);
  /// What is kept back, at the end of the sequence.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::string pending_;          // bytes of an unfinished character
  bool in_invalid_run_ = false;  // the replacement for the bytes before is out
};

/// Finds stop strings in text that arrives in pieces.
class StopMatcher {
 public:
  /// `stops`: non-empty strings (Error(InvalidArgument)). `include`: the matched string belongs to the
  /// output.
  StopMatcher(std::vector<std::string> stops, bool include);
  /// Appends `text` and returns what may be shown now: everything that cannot be part of a later match, in
  /// time linear in it. After a match
  /// matched() is the index of the stop that completed first in the text (list order on ties) and later calls
  /// return "".
  std::string add(const std::string& text);
  /// The text kept back, at the end of a sequence without match.
  std::string finish();
  int matched() const { return matched_; }  // -1: none

 private:
  struct Node {
    char byte = 0;
    int32_t child = -1, sibling = -1;
    int32_t fallback = 0;  // node of the longest proper suffix
    int32_t depth = 0;
    int32_t stop = -1;  // first of the list that ends here
  };
  int32_t child_of(int32_t node, char byte) const;
  int32_t step(int32_t node, char byte) const;

  std::vector<std::string> stops_;
  bool include_;
  std::vector<Node> nodes_;  // of the trie; 0 is its root
  std::vector<int32_t> roots_ = std::vector<int32_t>(256, -1);
  int32_t state_ = 0;
  std::string held_;  // what the state stands for: it may still become a match
  int matched_ = -1;
};

/// Whole text of a finished id sequence (with the tokenizer's leading-space rule).
std::string decode(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip_special);

}  // namespace vllm

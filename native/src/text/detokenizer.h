// Token ids to text, one at a time, never splitting a character.
#pragma once
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace vllm {

/// Text of a generated sequence as it grows. What add() and finish() returned, joined, is valid UTF-8: a byte run that
/// cannot become a character is replaced by one U+FFFD as soon as that is known.
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
  std::string pending_;  // bytes of an unfinished character
};

/// Finds stop strings in text that arrives in pieces.
class StopMatcher {
 public:
  /// `stops`: non-empty strings. `include`: the matched string belongs to the output.
  StopMatcher(std::vector<std::string> stops, bool include);
  /// Appends `text` and returns what may be shown now: everything that cannot be part of a later match. After a match
  /// matched() is the index of the stop that completed first in the text (list order on ties) and later calls return "".
  std::string add(const std::string& text);
  /// The text kept back, at the end of a sequence without match.
  std::string finish();
  int matched() const { return matched_; }  // -1: none

 private:
  std::vector<std::string> stops_;
  bool include_;
  std::string held_;
  int matched_ = -1;
};

/// Whole text of a finished id sequence (with the tokenizer's leading-space rule).
std::string decode(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip_special);

}  // namespace vllm

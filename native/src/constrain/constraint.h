// A grammar being followed: which tokens may come next.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace vllm {

/// State of one request's constraint. Accepting several tokens and taking them back again is part of the
/// interface so that drafts can be checked and rejected. None of the calls throws for a token or a state.
class Constraint {
 public:
  virtual ~Constraint() = default;
  /// Sets the bit (LSB first) of every token that may come next and clears all others. `bits`: at least
  /// (vocabulary + 31) / 32 words; bits beyond the vocabulary are cleared. End ids are among the
  /// tokens when the output may end. After an end id was accepted every token of the vocabulary is allowed.
  virtual void mask(std::span<uint32_t> bits) = 0;
  /// Takes the longest acceptable prefix of `tokens` and returns its length. An end id is acceptable where
  /// the output may end; nothing is acceptable after it.
  virtual int accept(std::span<const int32_t> tokens) = 0;
  /// Takes back the last `count` accepted tokens (an end id counts as one); all when there are fewer.
  virtual void rollback(int count) = 0;
  /// True when the output may end here.
  virtual bool can_end() const = 0;

  /// The only token that may come next, when there is just one and the output may not end here: what a jump
  /// forward emits without sampling.
  virtual std::optional<int32_t> forced_token() { return std::nullopt; }
  /// True when the output may end here and no token but an end id may follow: the request is complete.
  virtual bool must_end() { return false; }
  /// True after an end id was accepted.
  virtual bool is_terminated() const { return false; }
  /// True when the output may not end and no token may follow, so that the request has to end with an error.
  /// It happens when the vocabulary cannot spell what the grammar needs, or the grammar became too ambiguous
  /// to follow.
  virtual bool is_dead() { return false; }
  /// Why is_dead(), one sentence; empty otherwise.
  virtual std::string error() const { return {}; }
};

}  // namespace vllm

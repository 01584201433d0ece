// A grammar being followed: which tokens may come next.
#pragma once
#include <cstdint>
#include <span>

namespace vllm {

/// State of one request's constraint. Accepting several tokens and taking them back again is part of the
/// interface so that drafts can be checked and rejected.
class Constraint {
 public:
  virtual ~Constraint() = default;
  /// Sets the bit (LSB first) of every token that may come next. `bits`: (vocabulary + 31) / 32 words.
  virtual void mask(std::span<uint32_t> bits) = 0;
  /// Takes the longest acceptable prefix of `tokens` and returns its length.
  virtual int accept(std::span<const int32_t> tokens) = 0;
  /// Takes back the last `count` accepted tokens.
  virtual void rollback(int count) = 0;
  /// True when the output may end here.
  virtual bool can_end() const = 0;
};

}  // namespace vllm

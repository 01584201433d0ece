// A request's place in a grammar.
#pragma once
#include <memory>
#include <vector>

#include "constrain/constraint.h"
#include "constrain/matcher.h"

namespace vllm {

class GrammarConstraint : public Constraint {
 public:
  explicit GrammarConstraint(std::shared_ptr<Matcher> matcher);

  void mask(std::span<uint32_t> bits) override;
  int accept(std::span<const int32_t> tokens) override;
  void rollback(int count) override;
  bool can_end() const override;
  std::optional<int32_t> forced_token() override;
  bool must_end() override;
  bool is_terminated() const override { return terminated_; }
  bool is_dead() override;
  std::string error() const override;

  /// Bytes of states after which a request moves to a fresh matcher.
  static constexpr size_t kStateBytes = 32 << 20;

 private:
  int32_t state() const { return states_.back(); }
  const TokenSet& allowed();
  void move_on();

  std::shared_ptr<Matcher> matcher_;
  std::vector<int32_t> states_;  // before each accepted token and now
  std::vector<int32_t> tokens_;  // accepted, without the end id
  bool terminated_ = false;
  size_t limit_ = kStateBytes;
  int32_t allowed_state_ = -1;
  std::shared_ptr<const TokenSet> allowed_;  // in allowed_state_
};

}  // namespace vllm

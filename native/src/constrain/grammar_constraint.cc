#include "constrain/grammar_constraint.h"

#include <algorithm>

namespace vllm {

GrammarConstraint::GrammarConstraint(std::shared_ptr<Matcher> matcher)
    : matcher_(std::move(matcher)), states_{matcher_->initial()} {}

const TokenSet& GrammarConstraint::allowed() {
  if (allowed_state_ != state()) {
    allowed_ = matcher_->mask(state());
    allowed_state_ = state();
  }
  return *allowed_;
}

void GrammarConstraint::mask(std::span<uint32_t> bits) {
  std::fill(bits.begin(), bits.end(), 0);
  if (terminated_) {
    const int32_t vocab = matcher_->trie()->vocab_size();
    std::fill(bits.begin(), bits.begin() + vocab / 32, ~0u);
    if (vocab % 32 != 0) bits[vocab / 32] = (1u << vocab % 32) - 1;
    return;
  }
  allowed().add_to(bits);
  if (!can_end()) return;
  for (const int32_t id : matcher_->trie()->end_ids()) bits[id / 32] |= 1u << id % 32;
}

int GrammarConstraint::accept(std::span<const int32_t> tokens) {
  int count = 0;
  for (const int32_t token : tokens) {
    if (terminated_) break;
    if (matcher_->trie()->is_end(token)) {
      if (!can_end()) break;
      terminated_ = true;
      ++count;
      break;
    }
    const int32_t next = matcher_->next(state(), token);
    if (next == StateSpace::kDead) break;
    states_.push_back(next);
    tokens_.push_back(token);
    ++count;
  }
  move_on();
  return count;
}

void GrammarConstraint::rollback(int count) {
  if (count > 0 && terminated_) {
    terminated_ = false;
    --count;
  }
  const size_t left = tokens_.size() - std::min(tokens_.size(), static_cast<size_t>(std::max(count, 0)));
  tokens_.resize(left);
  states_.resize(left + 1);
}

/// Leaves a matcher that has collected too many states. What was accepted is followed again in the next one.
void GrammarConstraint::move_on() {
  const std::shared_ptr<Matcher> next = matcher_->successor(limit_);
  if (next == nullptr) return;
  std::vector<int32_t> states{next->initial()};
  for (const int32_t token : tokens_) {
    states.push_back(next->next(states.back(), token));
    if (states.back() == StateSpace::kDead) return;  // too ambiguous for the work of one call: stay
  }
  matcher_ = next;
  states_ = std::move(states);
  allowed_state_ = -1;
  // A text that needs as much by itself gets on for as long again.
  limit_ = std::max(limit_, 2 * next->bytes());
}

bool GrammarConstraint::can_end() const { return !terminated_ && matcher_->can_end(state()); }

std::optional<int32_t> GrammarConstraint::forced_token() {
  if (terminated_ || can_end() || allowed().count() != 1) return std::nullopt;
  return allowed().only();
}

bool GrammarConstraint::must_end() { return can_end() && allowed().count() == 0; }

bool GrammarConstraint::is_dead() { return !terminated_ && !can_end() && allowed().count() == 0; }

std::string GrammarConstraint::error() const {
  if (terminated_ || can_end()) return {};
  // A mask that was cut may hold more when it is computed again: the reason is for the one that was given
  // out.
  const auto given = allowed_state_ == state() ? allowed_ : matcher_->mask(state());
  if (given->count() > 0) return {};
  if (matcher_->exhausted())
    return "The grammar cannot continue: it is too ambiguous to be followed further.";
  return "The grammar cannot continue: no token of the vocabulary spells what it needs next.";
}

}  // namespace vllm

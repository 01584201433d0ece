#include "constrain/matcher.h"

#include <algorithm>
#include <bit>

namespace vllm {
namespace {

// A list of this many tokens is as large as the bits of a small vocabulary, and faster.
constexpr int kListTokens = 512;
// Work of one call: a token's bytes or one mask. A few 100 ms.
constexpr uint64_t kWorkOfCall = 5'000'000;
constexpr size_t kMaskBytes = 8 << 20;

}  // namespace

TokenSet::TokenSet(std::span<const uint32_t> bits) {
  for (const uint32_t word : bits) count_ += std::popcount(word);
  if (count_ > kListTokens) {
    bits_.assign(bits.begin(), bits.end());
    return;
  }
  list_.reserve(count_);
  for (size_t w = 0; w < bits.size(); ++w) {
    for (uint32_t rest = bits[w]; rest != 0; rest &= rest - 1) {
      list_.push_back(static_cast<int32_t>(w * 32 + std::countr_zero(rest)));
    }
  }
}

void TokenSet::add_to(std::span<uint32_t> bits) const {
  for (size_t w = 0; w < bits_.size(); ++w) bits[w] |= bits_[w];
  for (const int32_t id : list_) bits[id / 32] |= 1u << id % 32;
}

bool TokenSet::contains(int32_t id) const {
  if (!bits_.empty()) return bits_[id / 32] >> id % 32 & 1;
  return std::binary_search(list_.begin(), list_.end(), id);
}

Matcher::Matcher(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie)
    : grammar_(std::move(grammar)), trie_(std::move(trie)), space_(grammar_), initial_(space_.initial()) {
  bits_.resize((trie_->vocab_size() + 31) / 32);
  exhausted_ = space_.exhausted();
}

/// Runs `compute` with bounded work.
template <typename Compute>
auto Matcher::limited(Compute&& compute) {
  space_.clear_exhausted();
  space_.set_work_limit(space_.work() + kWorkOfCall);
  auto result = compute();
  if (space_.exhausted()) exhausted_ = true;
  return result;
}

int32_t Matcher::next(int32_t state, int32_t token) {
  if (token < 0 || token >= trie_->vocab_size() || trie_->is_end(token)) return StateSpace::kDead;
  const std::lock_guard lock(mutex_);
  return limited([&] {
    int32_t by_bytes = trie_->is_text(token) ? state : StateSpace::kDead;
    for (const char byte : trie_->text_of(token)) {
      by_bytes = space_.next(by_bytes, static_cast<uint8_t>(byte));
      if (by_bytes == StateSpace::kDead) break;
    }
    return space_.next_token(state, token, by_bytes);
  });
}

bool Matcher::can_end(int32_t state) const {
  const std::lock_guard lock(mutex_);
  return space_.leaves(state);
}

bool Matcher::exhausted() const {
  const std::lock_guard lock(mutex_);
  return exhausted_;
}

std::shared_ptr<const TokenSet> Matcher::mask(int32_t state) {
  const std::lock_guard lock(mutex_);
  if (const auto known = masks_.find(state); known != masks_.end()) return known->second;
  auto set = limited([&] {
    std::vector<Item> items(space_.items(state).begin(), space_.items(state).end());
    for (const Item& item : items) local(item.node);
    std::fill(bits_.begin(), bits_.end(), 0);
    for (const Item& item : items) {
      const Local& inside = local(item.node);
      inside.tokens.add_to(bits_);
      if (item.frame != StateSpace::kOutermost && !inside.leaving.empty()) {
        const int32_t after = space_.after_frame(item.frame);
        for (const uint32_t node : inside.leaving) walk(node, after, 0, nullptr);
      }
      for (const Edge& edge : grammar_->edges(item.node)) {
        if (edge.kind != Edge::Kind::Tokens) continue;
        for (const int32_t id : grammar_->token_set(edge.arg)) bits_[id / 32] |= 1u << id % 32;
      }
    }
    return std::make_shared<const TokenSet>(bits_);
  });
  if (space_.exhausted()) return set;
  if (mask_bytes_ > kMaskBytes) {
    masks_.clear();
    locals_.clear();
    mask_bytes_ = 0;
  }
  mask_bytes_ += set->bytes() + 64;
  masks_.emplace(state, set);
  return set;
}

const Matcher::Local& Matcher::local(int32_t node) {
  if (const auto known = locals_.find(node); known != locals_.end()) return known->second;
  const Grammar::Alias alias = grammar_->alias(node);
  Local result;
  std::vector<uint32_t> bits;
  if (alias.node >= 0) {
    const Local& uncounted = local(alias.node);
    std::fill(bits_.begin(), bits_.end(), 0);
    walk(0, space_.at_node(node), alias.bytes, &result.leaving);
    // Shorter tokens are as for the alias: those are taken over one by one, for a set does not know lengths.
    bits.assign(bits_.size(), 0);
    uncounted.tokens.add_to(bits);
    for (size_t w = 0; w < bits.size(); ++w) {
      for (uint32_t rest = bits[w]; rest != 0; rest &= rest - 1) {
        const int bit = std::countr_zero(rest);
        if (trie_->text_of(static_cast<int32_t>(w * 32 + bit)).size() <= static_cast<size_t>(alias.bytes)) {
          bits_[w] |= 1u << bit;
        }
      }
    }
    for (const uint32_t leaving : uncounted.leaving) {
      if (trie_->nodes()[leaving].depth <= alias.bytes) result.leaving.push_back(leaving);
    }
  } else {
    std::fill(bits_.begin(), bits_.end(), 0);
    walk(0, space_.at_node(node), 0, &result.leaving);
  }
  result.tokens = TokenSet(bits_);
  mask_bytes_ += result.tokens.bytes() + result.leaving.size() * 4 + 128;
  return locals_.emplace(node, std::move(result)).first->second;
}

void Matcher::walk(uint32_t root, int32_t state, int skip_bytes, std::vector<uint32_t>* leaving) {
  const std::span<const TokenTrie::Node> nodes = trie_->nodes();
  if (state == StateSpace::kDead) return;
  const int base = nodes[root].depth;
  const uint32_t end = nodes[root].skip;
  if (state_stack_.size() <= nodes[root].longest) state_stack_.resize(nodes[root].longest + 1);
  state_stack_[base] = state;
  for (uint32_t n = root + 1; n < end;) {
    const TokenTrie::Node& node = nodes[n];
    const int32_t next = node.longest <= skip_bytes ? StateSpace::kDead : space_.next(state_stack_[node.depth - 1], node.byte);
    if (next == StateSpace::kDead) {
      n = node.skip;
      continue;
    }
    state_stack_[node.depth] = next;
    if (node.depth > skip_bytes) {
      for (const int32_t id : trie_->tokens_at(n)) bits_[id / 32] |= 1u << id % 32;
      if (leaving != nullptr && node.skip > n + 1 && space_.leaves(next)) leaving->push_back(n);
    }
    ++n;
  }
}

std::shared_ptr<Matcher> Matcher::successor(size_t limit) {
  const std::lock_guard lock(mutex_);
  if (space_.bytes() <= limit) return nullptr;
  if (successor_ == nullptr) successor_ = std::make_shared<Matcher>(grammar_, trie_);
  return successor_;
}

size_t Matcher::bytes() const {
  const std::lock_guard lock(mutex_);
  return grammar_->bytes() + space_.bytes() + mask_bytes_;
}

}  // namespace vllm

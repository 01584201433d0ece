#include "constrain/matcher.h"

#include <algorithm>
#include <bit>

namespace vllm {
namespace {

// A list of this many tokens is as large as the bits of a small vocabulary, and faster.
constexpr int kListTokens = 512;
// Work of one call: a token's bytes or one mask. A few 100 ms.
constexpr uint64_t kWorkOfCall = 5'000'000;
// Nodes of the trie that cost as much as one item.
constexpr uint64_t kNodesOfWork = 16;
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

Matcher::Matcher(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie,
                 std::shared_ptr<LocalMasks> shared)
    : grammar_(std::move(grammar)),
      trie_(std::move(trie)),
      shared_(std::move(shared)),
      space_(grammar_),
      initial_(space_.initial()) {
  bits_.resize((trie_->vocab_size() + 31) / 32);
  exhausted_ = space_.exhausted();
  bytes_ = grammar_->bytes() + space_.bytes();
}

/// Runs `compute` with bounded work.
template <typename Compute>
auto Matcher::limited(Compute&& compute) {
  space_.clear_exhausted();
  space_.set_work_limit(space_.work() + kWorkOfCall);
  auto result = compute();
  if (space_.exhausted()) exhausted_ = true;
  bytes_ = grammar_->bytes() + space_.bytes() + mask_bytes_;
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
    for (const Item& item : items) local(item.node, item.frame != StateSpace::kOutermost);
    std::fill(bits_.begin(), bits_.end(), 0);
    for (const Item& item : items) {
      const bool returns = item.frame != StateSpace::kOutermost;
      const LocalMask& inside = local(item.node, returns);
      inside.tokens.add_to(bits_);
      if (returns && !inside.leaving.empty()) {
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

const LocalMask& Matcher::local(int32_t node, bool returns) {
  const int64_t key = int64_t{node} * 2 + returns;
  if (const auto known = locals_.find(key); known != locals_.end()) return *known->second;
  std::string shape = grammar_->alias(node).node >= 0 ? std::string() : shape_of(space_.at_node(node));
  if (!shape.empty()) shape += returns ? 'r' : 'o';
  std::shared_ptr<const LocalMask> mask = shape.empty() ? nullptr : shared_->find(shape);
  if (mask == nullptr) {
    LocalMask computed = compute_local(node, returns);
    if (space_.exhausted()) {
      unfinished_ = std::move(computed);
      return unfinished_;
    }
    mask = std::make_shared<const LocalMask>(std::move(computed));
    if (!shape.empty()) shared_->add(shape, mask);
    mask_bytes_ += mask->tokens.bytes() + mask->leaving.size() * 4;
  }
  mask_bytes_ += 128;
  return *locals_.emplace(key, std::move(mask)).first->second;
}

LocalMask Matcher::compute_local(int32_t node, bool returns) {
  const Grammar::Alias alias = grammar_->alias(node);
  LocalMask result;
  std::vector<uint32_t>* leaving = returns ? &result.leaving : nullptr;
  if (alias.node < 0) {
    std::fill(bits_.begin(), bits_.end(), 0);
    walk(0, space_.at_node(node), 0, leaving);
    result.tokens = TokenSet(bits_);
    return result;
  }
  // Short tokens are as for the alias, longer ones are followed.
  const LocalMask& uncounted = local(alias.node, returns);
  const int same = std::min(alias.bytes, TokenTrie::kShort);
  std::vector<uint32_t> bits(bits_.size());
  uncounted.tokens.add_to(bits);
  std::fill(bits_.begin(), bits_.end(), 0);
  walk(0, space_.at_node(node), same, leaving);
  const std::span<const uint32_t> short_tokens = trie_->tokens_up_to(same);
  for (size_t w = 0; w < bits.size(); ++w) bits_[w] |= bits[w] & short_tokens[w];
  for (const uint32_t node_below : uncounted.leaving) {
    if (trie_->nodes()[node_below].depth <= same) result.leaving.push_back(node_below);
  }
  result.tokens = TokenSet(bits_);
  return result;
}

std::string Matcher::shape_of(int32_t state) {
  constexpr int kManyBytes = 64;
  constexpr size_t kMaxStates = 100;
  int allowed = 0;
  for (int byte = 0; byte < 256; ++byte)
    allowed += space_.next(state, static_cast<uint8_t>(byte)) != StateSpace::kDead;
  if (allowed < kManyBytes) return {};
  std::string shape;
  std::vector<int32_t> states{StateSpace::kDead, state};
  for (size_t i = 1; i < states.size(); ++i) {
    shape += space_.leaves(states[i]) ? '!' : '.';
    size_t last = states.size();
    for (int byte = 0; byte < 256; ++byte) {
      const int32_t next = space_.next(states[i], static_cast<uint8_t>(byte));
      const size_t index = std::find(states.begin(), states.end(), next) - states.begin();
      if (index == states.size()) states.push_back(next);
      if (states.size() > kMaxStates) return {};
      if (index == last && byte > 0) continue;
      shape += static_cast<char>(byte);
      shape += static_cast<char>(index);
      last = index;
    }
    shape += "\xff\xff";  // no index is that large
  }
  return space_.exhausted() ? std::string() : shape;
}

std::shared_ptr<const LocalMask> LocalMasks::find(const std::string& shape) const {
  const std::lock_guard lock(mutex_);
  const auto found = masks_.find(shape);
  return found == masks_.end() ? nullptr : found->second;
}

void LocalMasks::add(const std::string& shape, std::shared_ptr<const LocalMask> mask) {
  const std::lock_guard lock(mutex_);
  if (masks_.size() >= kEntries) masks_.clear();
  masks_.emplace(shape, std::move(mask));
}

void Matcher::prepare(std::string_view beginning) {
  int32_t state = initial_;
  {
    const std::lock_guard lock(mutex_);
    for (const char byte : beginning) state = space_.next(state, static_cast<uint8_t>(byte));
  }
  mask(state);
}

void Matcher::walk(uint32_t root, int32_t state, int skip_bytes, std::vector<uint32_t>* leaving) {
  const std::span<const TokenTrie::Node> nodes = trie_->nodes();
  if (state == StateSpace::kDead) return;
  const int base = nodes[root].depth;
  const uint32_t end = nodes[root].skip;
  if (state_stack_.size() <= nodes[root].longest) state_stack_.resize(nodes[root].longest + 1);
  state_stack_[base] = state;
  uint64_t visited = 0;
  for (uint32_t n = root + 1; n < end; ++visited) {
    const TokenTrie::Node& node = nodes[n];
    const int32_t next =
        node.longest <= skip_bytes ? StateSpace::kDead : space_.next(state_stack_[node.depth - 1], node.byte);
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
  space_.add_work(visited / kNodesOfWork);
}

std::shared_ptr<Matcher> Matcher::successor(size_t limit) {
  const std::lock_guard lock(mutex_);
  if (space_.bytes() <= limit) return nullptr;
  if (successor_ == nullptr) successor_ = std::make_shared<Matcher>(grammar_, trie_, shared_);
  return successor_;
}

}  // namespace vllm

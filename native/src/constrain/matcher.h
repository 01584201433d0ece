// Token masks of one grammar over one vocabulary, shared by all requests that use the grammar.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "constrain/grammar.h"
#include "constrain/state_space.h"
#include "constrain/token_trie.h"

namespace vllm {

/// Tokens as a list when they are few, else as bits.
class TokenSet {
 public:
  TokenSet() = default;
  /// `bits`: one bit per token.
  explicit TokenSet(std::span<const uint32_t> bits);
  void add_to(std::span<uint32_t> bits) const;
  bool contains(int32_t id) const;
  int count() const { return count_; }
  /// The only token when count() is 1.
  int32_t only() const { return list_[0]; }
  size_t bytes() const { return list_.size() * 4 + bits_.size() * 4; }

 private:
  int count_ = 0;
  std::vector<int32_t> list_;
  std::vector<uint32_t> bits_;
};

/// What a node's own edges allow while its rule goes on: the same for every caller of the rule.
struct LocalMask {
  TokenSet tokens;
  std::vector<uint32_t> leaving;  // trie nodes where the rule may end although tokens go on
};

/// Local masks that the grammars of one vocabulary share, by what they match: the inside of a JSON string is
/// in most grammars, and allows most of the vocabulary. Thread-safe.
class LocalMasks {
 public:
  std::shared_ptr<const LocalMask> find(const std::string& shape) const;
  void add(const std::string& shape, std::shared_ptr<const LocalMask> mask);

 private:
  static constexpr size_t kEntries = 256;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const LocalMask>> masks_;
};

/// Safe to use from several threads.
class Matcher {
 public:
  Matcher(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie,
          std::shared_ptr<LocalMasks> shared);

  /// States are numbers that stay valid as long as the matcher.
  int32_t initial() const { return initial_; }
  /// The state after a token, kDead when it does not fit. End ids never fit.
  int32_t next(int32_t state, int32_t token);
  bool can_end(int32_t state) const;
  /// Tokens that may follow, end ids not among them.
  std::shared_ptr<const TokenSet> mask(int32_t state);
  /// True when states were cut because the grammar was too ambiguous there.
  bool exhausted() const;

  /// Another matcher of the grammar once this one has collected more states than it should, else null. The
  /// states of the two have different numbers.
  std::shared_ptr<Matcher> successor(size_t limit);

  /// Computes the mask behind a beginning of the text, so that it is known when it is needed.
  void prepare(std::string_view beginning);

  const std::shared_ptr<const TokenTrie>& trie() const { return trie_; }
  /// Memory held.
  size_t bytes() const { return bytes_; }

 private:
  /// `returns`: the rule has a caller to go on in; without one `leaving` is not needed, and may be very long.
  const LocalMask& local(int32_t node, bool returns);
  LocalMask compute_local(int32_t node, bool returns);
  /// The automaton from `state` on as text, equal for equal languages of equal form; empty when it is large,
  /// or allows so few bytes that its mask is quickly computed.
  std::string shape_of(int32_t state);
  /// Marks in `bits_` the tokens longer than `skip_bytes` below `root` that `state` (at `root`) allows; trie
  /// nodes deeper than that where the state leaves are appended to `leaving`.
  void walk(uint32_t root, int32_t state, int skip_bytes, std::vector<uint32_t>* leaving);
  template <typename Compute>
  auto limited(Compute&& compute);

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<const TokenTrie> trie_;
  std::shared_ptr<LocalMasks> shared_;
  mutable std::mutex mutex_;
  StateSpace space_;
  int32_t initial_;
  std::unordered_map<int64_t, std::shared_ptr<const LocalMask>> locals_;  // by node * 2 + returns
  std::unordered_map<int32_t, std::shared_ptr<const TokenSet>> masks_;
  LocalMask unfinished_;  // of the last node whose computation was cut
  size_t mask_bytes_ = 0;
  std::atomic<size_t> bytes_ = 0;
  std::vector<uint32_t> bits_;        // scratch
  std::vector<int32_t> state_stack_;  // scratch of walk, by depth
  bool exhausted_ = false;
  std::shared_ptr<Matcher> successor_;
};

}  // namespace vllm

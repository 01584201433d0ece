// The one form of all constraints: rules over bytes as non-deterministic automata that may call each other.
//
// Bytes, because a token may end inside a character. Automata with calls (a recursive transition network),
// because the parts that repeat (strings, numbers, white space) then cost a byte comparison, and only nesting
// needs a stack.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "constrain/expression.h"

namespace vllm {

struct Edge {
  enum class Kind : uint8_t { Empty, Bytes, Call, Tokens };
  Kind kind;
  uint8_t low = 0;  // Bytes: low..high
  uint8_t high = 0;
  int32_t arg = 0;  // Call: rule; Tokens: index of a token set
  int32_t target;
};

/// Immutable after compile(); safe to share between threads.
class Grammar {
 public:
  /// Throws Error(InvalidArgument) when a rule calls itself before any text (its name is given), the grammar
  /// matches no text at all, or it needs more than GrammarLimits::kStates states.
  static std::shared_ptr<const Grammar> compile(const Rules& rules, int root);

  int node_count() const { return static_cast<int>(accepts_.size()); }
  int rule_count() const { return static_cast<int>(starts_.size()); }
  int root() const { return root_; }
  std::span<const Edge> edges(int node) const {
    return {edges_.data() + offsets_[node], static_cast<size_t>(offsets_[node + 1] - offsets_[node])};
  }
  /// The rule may end at this node.
  bool accepts(int node) const { return accepts_[node]; }
  /// The rule ends at this node and can do nothing else.
  bool ends(int node) const { return ends_[node]; }
  int start(int rule) const { return starts_[rule]; }
  /// The rule can match the empty text.
  bool nullable(int rule) const { return nullable_[starts_[rule]]; }
  /// If rule a can call rule b before any text, a's rank is below b's.
  int rank(int rule) const { return ranks_[rule]; }
  const std::vector<int32_t>& token_set(int index) const { return token_sets_[index]; }

  /// Inside a counted repetition: for the next `bytes` bytes the node behaves as `node` does, whose
  /// repetition has no count. Lets all copies share most of one node's token mask. `node` is -1 for other
  /// nodes.
  struct Alias {
    int32_t node;
    int32_t bytes;
  };
  Alias alias(int node) const { return aliases_.empty() ? Alias{-1, 0} : aliases_[node]; }

  /// Bytes that no edge tells apart are one class.
  int class_count() const { return class_count_; }
  const std::array<uint8_t, 256>& byte_class() const { return byte_class_; }
  /// A byte of each class.
  uint8_t class_byte(int byte_class) const { return class_bytes_[byte_class]; }

  size_t bytes() const;

 protected:
  Grammar() = default;

 private:
  friend class GrammarBuilder;
  /// Removes edges that no match can take; `canonical`: nodes to keep although nothing leads out of them.
  void analyse(const Rules& rules, const std::vector<int>& canonical);
  std::vector<bool> find_nodes(bool through_text, const std::vector<int>& seeds) const;
  void find_ends();
  void refuse_left_recursion(const Rules& rules);
  void find_classes();

  int root_ = 0;
  std::vector<int32_t> offsets_;  // node_count + 1
  std::vector<Edge> edges_;
  std::vector<bool> accepts_, ends_, nullable_;
  std::vector<int32_t> starts_, ranks_;
  std::vector<std::vector<int32_t>> token_sets_;
  std::vector<Alias> aliases_;
  std::array<uint8_t, 256> byte_class_{};
  std::array<uint8_t, 256> class_bytes_{};
  int class_count_ = 0;
};

}  // namespace vllm

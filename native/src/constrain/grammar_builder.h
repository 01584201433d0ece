// Turns expressions into the automata of a Grammar.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "constrain/grammar.h"

namespace vllm {

class GrammarBuilder {
 public:
  explicit GrammarBuilder(const Rules& rules) : rules_(rules) {}
  std::shared_ptr<const Grammar> build(int root);

 private:
  /// Nodes that lead through the rest of a character's bytes to one target, so that characters share them.
  using Suffixes = std::map<std::pair<int, ByteRanges>, int>;

  int new_node();
  void connect(int source, Edge edge);
  void empty_edge(int source, int target) { connect(source, {.kind = Edge::Kind::Empty, .target = target}); }
  void byte_edge(int source, int low, int high, int target) {
    connect(source, {.kind = Edge::Kind::Bytes,
                     .low = static_cast<uint8_t>(low),
                     .high = static_cast<uint8_t>(high),
                     .target = target});
  }
  void token_edge(int source, const std::vector<int32_t>& ids, int target);
  void char_edges(int source, const CharSet& set, int target, Suffixes& suffixes);
  int bytes_from(int source, std::string_view bytes);

  /// Adds what matches `e` after `source` and gives the node behind it. Adds no edge into `source`.
  int add(const Expression& e, int source);
  int add_alternatives(const Expression& e, int source);
  int add_literals(std::vector<std::string_view> texts, int source, int end);
  int add_repeat(const Expression& e, int source);
  int add_free_text(const Expression& e, int source);
  int add_other_key(const Expression& e, int source);

  void find_inlined();
  struct Extent {
    int64_t bytes;  // longest match
    int64_t nodes;  // estimate
    bool nullable;
  };
  /// `bytes` and `nodes` are kMany when unlimited or when a rule is called.
  Extent extent(const Expression& e) const;
  static constexpr int64_t kMany = int64_t{1} << 40;

  const Rules& rules_;
  std::shared_ptr<Grammar> grammar_;
  std::vector<std::pair<int, Edge>> edges_;
  std::vector<bool> inlined_;
  std::vector<int> queue_;      // rules that are called and not built yet
  std::vector<int> canonical_;  // first nodes of loops that exist for Grammar::alias only
};

}  // namespace vllm

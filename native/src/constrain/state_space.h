// The states that following a grammar byte by byte can reach, made when they are met and numbered once.
//
// A state is a set of items (node, frame): the node in a rule's automaton, and what follows when that rule
// ends. A frame is the set of (node to return to, its frame) of all callers that stood at one place of the
// text, so that ambiguity shares frames instead of multiplying stacks (as item sets do in Earley's
// algorithm). Items, frames and states with equal content are one, which makes the transitions of a state a
// table that is filled on demand.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "constrain/grammar.h"

namespace vllm {

struct Item {
  int32_t node;
  int32_t frame;
  auto operator<=>(const Item&) const = default;
};

class StateSpace {
 public:
  static constexpr int32_t kDead = 0;       // state: nothing matches
  static constexpr int32_t kOutermost = 0;  // frame: the caller is unknown; returning to it sets leaves()
  /// Items of one state, and steps of one computation, beyond which the grammar counts as too ambiguous.
  static constexpr size_t kMaxItems = 100000;

  explicit StateSpace(std::shared_ptr<const Grammar> grammar);

  /// Where a text begins.
  int32_t initial() const { return initial_; }
  int32_t next(int32_t state, uint8_t byte) {
    const int c = byte_class_[byte];
    const int32_t known = transitions_[static_cast<size_t>(state) * class_count_ + c];
    return known >= 0 ? known : make_transition(state, byte);
  }
  /// After a token of the edges' sets, in union with `state_by_bytes` (kDead: none).
  int32_t next_token(int32_t state, int32_t token, int32_t state_by_bytes);
  /// The state that consists of the node's own edges, called from outermost.
  int32_t at_node(int32_t node);
  /// After the rule whose frame this is has ended.
  int32_t after_frame(int32_t frame);

  /// The outermost rule may end here: for states reached from initial(), the text may end.
  bool leaves(int32_t state) const { return states_[state].leaves; }
  std::span<const Item> items(int32_t state) const {
    return {state_items_.data() + states_[state].first, states_[state].count};
  }
  const Grammar& grammar() const { return *grammar_; }

  /// Work done so far, in items looked at.
  uint64_t work() const { return work_; }
  void add_work(uint64_t work) { work_ += work; }
  /// States beyond this much work are kDead and set exhausted().
  void set_work_limit(uint64_t limit) { work_limit_ = limit; }
  bool exhausted() const { return exhausted_; }
  void clear_exhausted() { exhausted_ = false; }
  size_t bytes() const;

 private:
  struct Range {
    uint32_t first;
    uint32_t count;
    bool leaves;
  };

  int32_t make_transition(int32_t state, uint8_t byte);
  void visit(Item item);
  /// Follows everything but text from the visited items on and numbers the result.
  int32_t close();
  void process(Item item);
  int32_t intern_frame(std::vector<Item>& content);
  int32_t intern_state(std::vector<Item>& content, bool leaves);
  void reset_visited();

  std::shared_ptr<const Grammar> grammar_;
  std::array<uint8_t, 256> byte_class_;
  int class_count_;
  int32_t initial_ = kDead;
  std::vector<Range> states_, frames_;
  std::vector<Item> state_items_, frame_items_;
  std::vector<int32_t> transitions_;  // states x classes, -1: not known
  std::vector<int32_t> after_frame_;  // -1: not known
  std::unordered_multimap<uint64_t, int32_t> state_index_, frame_index_;
  std::unordered_map<int32_t, int32_t> at_node_;

  // Scratch of one close().
  std::vector<Item> work_list_, scanning_;
  std::vector<uint64_t> visited_;  // open addressing; ~0: free
  size_t visited_count_ = 0;
  std::vector<std::vector<Item>> callers_;            // by rule
  std::vector<std::pair<int32_t, int32_t>> pending_;  // heap of (rank, rule), lowest rank on top
  bool leaves_ = false;
  uint64_t work_ = 0;
  uint64_t work_limit_ = ~uint64_t{0};
  bool exhausted_ = false;
};

}  // namespace vllm

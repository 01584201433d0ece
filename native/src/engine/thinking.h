// Where a model's thought begins and ends in its tokens, and how long it may be.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vllm {

struct ThinkingSpec {
  std::vector<std::string> starts;  // of a thought that the model opens itself; none: it never does
  std::vector<std::string> ends;  // any of them closes a thought; one that is forced is that beside its start
  bool open_at_start = false;     // the output begins inside a thought
  size_t opened_with = 0;         // the start of that thought
  bool may_open = false;          // a constrained output may begin with a thought all the same
  int64_t budget = -1;            // tokens of thought before an end is forced; -1: no limit
};

/// Follows the bytes of one request's output. Constraints are held back while thinking().
class Thinking {
 public:
  explicit Thinking(ThinkingSpec spec);

  bool thinking() const { return state_ == State::Open; }
  /// True when the thought has had its tokens: its end marker is due.
  bool budget_used() const { return thinking() && spec_.budget >= 0 && tokens_ >= spec_.budget; }
  /// True when the output is empty and may begin with a thought that its constraint knows nothing of.
  bool may_open() const { return state_ == State::Before && spec_.may_open && seen_.empty(); }
  /// What models open a thought with.
  const std::string& start_marker() const { return spec_.starts.front(); }
  /// The end that belongs to the thought's start.
  const std::string& end_marker() const { return spec_.ends[std::min(opened_, spec_.ends.size() - 1)]; }
  /// One token of the output.
  void add(std::string_view bytes);

 private:
  enum class State : uint8_t { Before, Open, After };
  ThinkingSpec spec_;
  size_t longest_end_ = 0;
  size_t opened_;  // index of the thought's start
  State state_;
  bool at_start_;       // of a thought that was open: a start marker is not part of it
  int64_t tokens_ = 0;  // of the thought
  std::string seen_;    // of the output before the thought, or its tail inside it
};

}  // namespace vllm

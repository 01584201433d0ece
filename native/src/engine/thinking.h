// Where a model's thought begins and ends in its tokens, and how long it may be.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace vllm {

struct ThinkingSpec {
  std::string start_marker;  // of a thought that the model opens itself; empty: it never does
  std::string end_marker;
  bool open_at_start = false;  // the output begins inside a thought
  bool may_open = false;       // a constrained output may begin with a thought all the same
  int64_t budget = -1;         // tokens of thought before the end marker is forced; -1: no limit
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
  const std::string& start_marker() const { return spec_.start_marker; }
  const std::string& end_marker() const { return spec_.end_marker; }
  /// One token of the output.
  void add(std::string_view bytes);

 private:
  enum class State : uint8_t { Before, Open, After };
  ThinkingSpec spec_;
  State state_;
  bool at_start_;       // of a thought that was open: a start marker is not part of it
  int64_t tokens_ = 0;  // of the thought
  std::string seen_;    // of the output before the thought, or its tail inside it
};

}  // namespace vllm

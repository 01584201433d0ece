// The `loop` variable.
#pragma once
#include "serve/jinja/runtime.h"

namespace vllm::jinja {

/// The condition of `for ... if`.
class LoopFilter {
 public:
  virtual bool accepts(const Value& item) = 0;

 protected:
  ~LoopFilter() = default;
};

/// Items are asked for one at a time, so that the condition of a later one sees what the body did before.
struct Loop {
  Runtime* rt;
  const Value* items;
  uint32_t size;
  LoopFilter* filter;  // null: takes all
  const Node* recursive_node = nullptr;
  Activation* outer = nullptr;  // of the recursive loop's function
  int64_t depth0 = 0;
  Value current{};
  Value before{};
  Value last_changed{};

  /// Moves to the next item; false at the end.
  bool advance();
  int64_t index0() const { return index0_; }
  int64_t length();
  /// Null when there is no next item.
  const Value* peek();
  /// The loop is over: the condition is no longer there.
  void finish();

  uint32_t next_ = 0;
  int64_t index0_ = -1;
  int64_t length_ = -1;
  bool has_after_ = false;
  Value after_{};

 private:
  bool pull(Value& out);
};

}  // namespace vllm::jinja

#include "serve/jinja/loop.h"

namespace vllm::jinja {

bool Loop::pull(Value& out) {
  while (next_ < size) {
    const Value& item = items[next_++];
    if (filter && !filter->accepts(item)) continue;
    out = item;
    return true;
  }
  return false;
}

bool Loop::advance() {
  Value item;
  if (has_after_) {
    item = after_;
    has_after_ = false;
  } else if (!pull(item)) {
    return false;
  }
  ++index0_;
  before = current;
  current = item;
  return true;
}

const Value* Loop::peek() {
  if (!has_after_) has_after_ = pull(after_);
  return has_after_ ? &after_ : nullptr;
}

int64_t Loop::length() {
  if (length_ >= 0) return length_;
  if (!filter) return length_ = size;
  std::vector<Value> rest;
  Value item;
  while (pull(item)) rest.push_back(item);
  const Value list = rt->list(rest);
  items = list.sequence->items;
  size = list.sequence->size;
  next_ = 0;
  filter = nullptr;
  return length_ = size + index0_ + 1 + (has_after_ ? 1 : 0);
}

void Loop::finish() {
  filter = nullptr;
  size = next_;
}

}  // namespace vllm::jinja

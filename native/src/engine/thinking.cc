#include "engine/thinking.h"

#include <utility>

namespace vllm {

Thinking::Thinking(ThinkingSpec spec)
    : spec_(std::move(spec)),
      opened_(spec_.opened_with),
      state_(spec_.open_at_start ? State::Open : State::Before),
      at_start_(spec_.open_at_start) {
  if (spec_.ends.empty() || (state_ == State::Before && spec_.starts.empty())) state_ = State::After;
  for (const std::string& end : spec_.ends) longest_end_ = std::max(longest_end_, end.size());
}

void Thinking::add(std::string_view bytes) {
  if (state_ == State::After) return;
  if (std::exchange(at_start_, false)) {
    const auto start = std::find(spec_.starts.begin(), spec_.starts.end(), bytes);
    if (start != spec_.starts.end()) {
      opened_ = static_cast<size_t>(start - spec_.starts.begin());
      return;
    }
  }
  seen_ += bytes;
  if (state_ == State::Before) {
    const size_t begin = seen_.find_first_not_of(" \t\r\n");
    if (begin == std::string::npos) return;
    const std::string_view text = std::string_view(seen_).substr(begin);
    bool may_follow = false;
    for (size_t i = 0; i < spec_.starts.size(); ++i) {
      if (text.starts_with(spec_.starts[i])) {
        state_ = State::Open;
        opened_ = i;
        seen_.erase(0, begin + spec_.starts[i].size());
        return;
      }
      may_follow = may_follow || std::string_view(spec_.starts[i]).starts_with(text);
    }
    if (!may_follow) state_ = State::After;
    return;
  }
  ++tokens_;
  for (const std::string& end : spec_.ends) {
    if (seen_.find(end) == std::string::npos) continue;
    state_ = State::After;
    return;
  }
  if (seen_.size() > longest_end_) seen_.erase(0, seen_.size() - longest_end_);
}

}  // namespace vllm

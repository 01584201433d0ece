#include "engine/thinking.h"

#include <utility>

namespace vllm {

Thinking::Thinking(ThinkingSpec spec)
    : spec_(std::move(spec)),
      state_(spec_.open_at_start ? State::Open : State::Before),
      at_start_(spec_.open_at_start) {
  if (state_ == State::Before && spec_.start_marker.empty()) state_ = State::After;
}

void Thinking::add(std::string_view bytes) {
  if (state_ == State::After) return;
  if (std::exchange(at_start_, false) && !bytes.empty() && bytes == spec_.start_marker) return;
  seen_ += bytes;
  if (state_ == State::Before) {
    const size_t begin = seen_.find_first_not_of(" \t\r\n");
    if (begin == std::string::npos) return;
    const std::string_view text = std::string_view(seen_).substr(begin);
    if (text.starts_with(spec_.start_marker)) {
      state_ = State::Open;
      seen_.erase(0, begin + spec_.start_marker.size());
    } else if (!std::string_view(spec_.start_marker).starts_with(text)) {
      state_ = State::After;
    }
    return;
  }
  ++tokens_;
  if (seen_.find(spec_.end_marker) != std::string::npos) {
    state_ = State::After;
    return;
  }
  if (seen_.size() > spec_.end_marker.size()) seen_.erase(0, seen_.size() - spec_.end_marker.size());
}

}  // namespace vllm

#include "engine/stream.h"

#include <iterator>

namespace vllm {

void Stream::push(Delta delta) {
  {
    const std::lock_guard lock(mutex_);
    if (!pending_) {
      pending_ = std::move(delta);
    } else {
      delta.text.insert(0, pending_->text);
      delta.token_ids.insert(delta.token_ids.begin(), pending_->token_ids.begin(), pending_->token_ids.end());
      delta.logprobs.insert(delta.logprobs.begin(), std::make_move_iterator(pending_->logprobs.begin()),
                            std::make_move_iterator(pending_->logprobs.end()));
      pending_ = std::move(delta);
    }
  }
  changed_.notify_one();
}

Delta Stream::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return pending_.has_value(); });
  Delta out = std::move(*pending_);
  pending_.reset();
  return out;
}

}  // namespace vllm

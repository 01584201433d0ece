#include "engine/stream.h"

#include <algorithm>
#include <iterator>

namespace vllm {

void Stream::push(Delta delta) {
  {
    const std::lock_guard lock(mutex_);
    if (!pending_) {
      pending_ = std::move(delta);
    } else {
      // The new goes behind the old, which is not copied: a consumer may be slow for a whole answer.
      Delta old = std::move(*pending_);
      old.text += delta.text;
      old.token_ids.insert(old.token_ids.end(), delta.token_ids.begin(), delta.token_ids.end());
      std::move(delta.logprobs.begin(), delta.logprobs.end(), std::back_inserter(old.logprobs));
      delta.text = std::move(old.text);
      delta.token_ids = std::move(old.token_ids);
      delta.logprobs = std::move(old.logprobs);
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

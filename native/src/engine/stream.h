// The output of one request, pushed by the engine thread and pulled by one consumer.
#pragma once
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "sample/sampler.h"
#include "schedule/request.h"

namespace vllm {

struct Timings {
  double queue_ms = 0;       // submission to the first step
  double prompt_ms = 0;      // first step to first token
  double generation_ms = 0;  // first to last token
};

/// What became known since the delta before. Counts and timings are totals.
struct Delta {
  std::string text;  // valid UTF-8, whole characters
  std::vector<int32_t> token_ids;
  std::vector<SampledToken> logprobs;  // one a token, when asked for
  int prompt_tokens = 0;
  int cached_tokens = 0;  // of the prompt
  int completion_tokens = 0;
  Timings timings;
  FinishReason finish = FinishReason::None;
  int stop_token = -1;         // token id that stopped it, when it was one of stop_token_ids
  std::string stop_string;     // that stopped it
  std::optional<Error> error;  // with FinishReason::Error

  bool finished() const { return finish != FinishReason::None; }
};

class Stream {
 public:
  /// Adds to what the consumer has not fetched yet; a slow consumer gets several tokens at once.
  void push(Delta delta);
  /// Waits for something new. The last delta is finished(); nothing may be fetched after it.
  Delta wait();
  /// Asks the engine to end the request at its next step; `wake` of the engine must follow (Engine::cancel
  /// does both).
  void request_cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancel_requested() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Delta> pending_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace vllm

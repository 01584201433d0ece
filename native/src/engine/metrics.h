// What an engine counts, and when a change of it is worth a line of log.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace vllm {

struct EngineMetrics {
  int running = 0;
  int waiting = 0;
  int blocks_total = 0;
  int blocks_free = 0;  // also those that hold nothing but cached prefixes
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;
  uint64_t generated_tokens = 0;
  uint64_t forced_tokens = 0;  // of these: the only ones a constraint allowed, taken without sampling
  uint64_t requests_finished = 0;
  uint64_t preemptions = 0;
  double tokens_per_second = 0;         // generation rate of the request that finished last
  double prompt_tokens_per_second = 0;  // of the same

  /// Share of the KV blocks that running requests hold, 0 to 1.
  double kv_usage() const {
    return blocks_total > 0 ? 1.0 - static_cast<double>(blocks_free) / blocks_total : 0;
  }
};

/// Says how long the queue is and how full the KV pool, when one of them has changed much since it was said.
class PressureLog {
 public:
  using Clock = std::chrono::steady_clock;
  /// The line to log; empty when there is none. It comes at most every kPause.
  std::string take_line(const EngineMetrics& metrics, Clock::time_point now);

  static constexpr std::chrono::seconds kPause{5};
  static constexpr double kUsageStep = 0.25;  // of the pool

 private:
  int waiting_ = 0;
  double usage_ = 0;
  std::optional<Clock::time_point> said_;
};

}  // namespace vllm

// How far the reading of the weights is, said at a sane rate.
#pragma once
#include <chrono>
#include <cstddef>
#include <string>

namespace vllm {

class LoadProgress {
 public:
  using Clock = std::chrono::steady_clock;
  LoadProgress(size_t total_bytes, Clock::time_point begin)
      : total_bytes_(total_bytes), begin_(begin), said_(begin) {}

  void add(size_t bytes) { done_bytes_ += bytes; }
  size_t done_bytes() const { return done_bytes_; }
  /// The line to log; empty until kPause after the last one.
  std::string take_line(Clock::time_point now);

  static constexpr std::chrono::seconds kPause{2};

 private:
  size_t total_bytes_;
  size_t done_bytes_ = 0;
  Clock::time_point begin_, said_;
};

}  // namespace vllm

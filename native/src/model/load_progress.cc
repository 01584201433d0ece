#include "model/load_progress.h"

#include <algorithm>

#include "base/error.h"

namespace vllm {

std::string LoadProgress::take_line(Clock::time_point now) {
  if (now - said_ < kPause) return {};
  said_ = now;
  const double done = static_cast<double>(done_bytes_) / 1e9,
               total = static_cast<double>(std::max(total_bytes_, done_bytes_)) / 1e9;
  const double rate = done / std::chrono::duration<double>(now - begin_).count();
  return format("loading weights: %.2f of %.2f GB (%.0f %%), %.2f GB/s", done, total,
                total > 0 ? 100 * done / total : 100.0, rate);
}

}  // namespace vllm

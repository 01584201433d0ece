#include "engine/metrics.h"

#include <cmath>

#include "base/error.h"

namespace vllm {

std::string PressureLog::take_line(const EngineMetrics& metrics, Clock::time_point now) {
  const int waiting = metrics.waiting;
  const double usage = metrics.kv_usage();
  const bool queue_changed = waiting > 2 * waiting_ || (waiting == 0 && waiting_ > 0);
  if (!queue_changed && std::abs(usage - usage_) < kUsageStep) return {};
  if (said_ && now - *said_ < kPause) return {};
  said_ = now;
  waiting_ = waiting;
  usage_ = usage;
  return format("%d running, %d waiting, %.0f %% of %d KV blocks in use, %llu preemptions so far",
                metrics.running, waiting, 100 * usage, metrics.blocks_total,
                static_cast<unsigned long long>(metrics.preemptions));
}

}  // namespace vllm

#include "device/cpu/pool.h"

#include <algorithm>
#include <chrono>
#include <system_error>

#include "base/error.h"
#include "device/cpu/machine.h"

namespace vllm::cpu {
namespace {

// Waking a sleeping thread takes 25-50 us, so spinning covers the gaps between the operations of a step and
// the sampling between two steps, but not the wait for a request.
constexpr auto kSpinTime = std::chrono::microseconds(200);

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Returns when `value` differs from `old`: spins first if allowed, then sleeps.
void await_change(const std::atomic<uint32_t>& value, uint32_t old, bool spin) {
  if (spin) {
    const auto end = std::chrono::steady_clock::now() + kSpinTime;
    do {
      for (int i = 0; i < 64; ++i) {
        if (value.load(std::memory_order_acquire) != old) return;
        relax();
      }
    } while (std::chrono::steady_clock::now() < end);
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int threads) : threads_(std::max(1, threads)), spin_(threads_ <= available_cores()) {
  workers_.reserve(threads_ - 1);
  try {
    for (int i = 1; i < threads_; ++i) workers_.emplace_back([this] { work(); });
  } catch (const std::system_error& error) {
    stop();
    fail_runtime("Only %zu of %d compute threads could be started: %s.", workers_.size() + 1, threads_,
                 error.what());
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stop_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::work() {
  for (uint32_t seen = 0;;) {
    await_change(epoch_, seen, spin_);
    seen = epoch_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) return;
    run_parts(seen);
  }
}

/// Runs free parts of the job `epoch` until there is none, or another job has begun.
void ThreadPool::run_parts(uint32_t epoch) {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  for (;;) {
    const auto part = static_cast<uint32_t>(ticket);
    if (ticket >> 32 != epoch || part >= static_cast<uint32_t>(threads_)) return;
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) continue;
    // The job stays as it is until this part is counted as finished.
    function_(argument_, static_cast<int>(part));
    if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) left_.notify_one();
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

void ThreadPool::run_erased(Function function, void* argument) {
  if (workers_.empty()) return function(argument, 0);
  function_ = function;
  argument_ = argument;
  left_.store(static_cast<uint32_t>(threads_), std::memory_order_relaxed);
  const uint32_t epoch = epoch_.load(std::memory_order_relaxed) + 1;
  ticket_.store(uint64_t{epoch} << 32, std::memory_order_release);
  epoch_.store(epoch, std::memory_order_release);
  epoch_.notify_all();
  run_parts(epoch);
  for (uint32_t left; (left = left_.load(std::memory_order_acquire)) != 0;) await_change(left_, left, spin_);
}

}  // namespace vllm::cpu

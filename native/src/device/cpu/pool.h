// The threads that compute: the caller and others, which spin for a bounded time, then sleep.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace vllm::cpu {

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

/// Part `part` of `parts` nearly equal, contiguous parts of 0 .. n - 1, cut at multiples of `grain`.
inline Range share(int64_t n, int part, int parts, int64_t grain = 1) {
  const int64_t units = (n + grain - 1) / grain;
  const int64_t begin = units * part / parts * grain, end = units * (part + 1) / parts * grain;
  return {begin < n ? begin : n, end < n ? end : n};
}

class ThreadPool {
 public:
  /// Throws Error(Runtime) when the system refuses a thread.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  /// Runs job(part) for every part 0 .. threads() - 1 and returns when all have finished. Each thread takes a
  /// part when it gets there, so that a thread which another process keeps from its core leaves its part to
  /// the others; parts must not wait for each other. `job` must not throw. One thread calls at a time, and
  /// never from inside a job.
  template <class Job>
  void run(Job&& job) {
    run_erased([](void* p, int part) { (*static_cast<std::remove_reference_t<Job>*>(p))(part); },
               const_cast<void*>(static_cast<const void*>(&job)));
  }

 private:
  using Function = void (*)(void*, int);
  void run_erased(Function function, void* argument);
  void run_parts(uint32_t epoch);
  void work();
  void stop();

  int threads_;
  bool spin_;  // false when threads outnumber cores: a spinning thread would hold up the one it waits for
  Function function_ = nullptr;
  void* argument_ = nullptr;
  std::vector<std::thread> workers_;
  alignas(64) std::atomic<uint32_t> epoch_{0};   // counts jobs; workers wait for it to change
  alignas(64) std::atomic<uint64_t> ticket_{0};  // epoch in the high half, next free part in the low one
  alignas(64) std::atomic<uint32_t> left_{0};    // parts not finished
  std::atomic<bool> stop_{false};
};

}  // namespace vllm::cpu

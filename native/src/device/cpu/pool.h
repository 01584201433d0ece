// The threads that compute. The caller is thread 0; the others spin for a bounded time, then sleep.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace vllm::cpu {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  /// Runs job(thread index) on every thread and returns when all have finished. `job` must not throw.
  template <class Job>
  void run(Job&& job) {
    run_erased([](void* p, int thread) { (*static_cast<std::remove_reference_t<Job>*>(p))(thread); },
               const_cast<void*>(static_cast<const void*>(&job)));
  }

 private:
  using Function = void (*)(void*, int);
  void run_erased(Function function, void* argument);
  int threads_;
  // completed by the implementation
};

}  // namespace vllm::cpu

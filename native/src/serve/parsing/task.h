// Coroutines that start at once, run until they need text that has not arrived, and can await one another.
#pragma once
#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

namespace vllm {

template <typename Value>
class Task;

namespace task_detail {

/// Resumes whoever awaits the finished coroutine.
struct FinalAwaiter {
  bool await_ready() const noexcept { return false; }
  template <typename Promise>
  std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> handle) const noexcept {
    return handle.promise().awaiting ? handle.promise().awaiting : std::noop_coroutine();
  }
  void await_resume() const noexcept {}
};

struct PromiseBase {
  std::coroutine_handle<> awaiting = nullptr;
  std::exception_ptr error;

  std::suspend_never initial_suspend() const noexcept { return {}; }
  FinalAwaiter final_suspend() const noexcept { return {}; }
  void unhandled_exception() noexcept { error = std::current_exception(); }
};

template <typename Value>
struct Promise : PromiseBase {
  std::optional<Value> value;
  Task<Value> get_return_object();
  void return_value(Value result) { value.emplace(std::move(result)); }
  Value take() { return std::move(*value); }
};

template <>
struct Promise<void> : PromiseBase {
  Task<void> get_return_object();
  void return_void() const noexcept {}
  void take() const noexcept {}
};

}  // namespace task_detail

/// A task owns its coroutine; destroying it drops the coroutine wherever it stands. Because tasks start at
/// once, a chain of awaits that needs no new text is plain nested calls and returns: the stack does not grow
/// with the text.
template <typename Value = void>
class [[nodiscard]] Task {
 public:
  using promise_type = task_detail::Promise<Value>;

  explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  bool done() const { return handle_.done(); }
  void rethrow() const {
    if (handle_.done() && handle_.promise().error) std::rethrow_exception(handle_.promise().error);
  }

  bool await_ready() const { return handle_.done(); }
  void await_suspend(std::coroutine_handle<> awaiting) { handle_.promise().awaiting = awaiting; }
  Value await_resume() {
    rethrow();
    return handle_.promise().take();
  }

 private:
  std::coroutine_handle<promise_type> handle_;
};

template <typename Value>
Task<Value> task_detail::Promise<Value>::get_return_object() {
  return Task<Value>(std::coroutine_handle<Promise<Value>>::from_promise(*this));
}
inline Task<void> task_detail::Promise<void>::get_return_object() {
  return Task<void>(std::coroutine_handle<Promise<void>>::from_promise(*this));
}

}  // namespace vllm

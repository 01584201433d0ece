#include "abi/handles.h"

#include "base/error.h"

namespace vllm::abi {
namespace {

Delta without_error(Delta delta) {
  delta.error.reset();
  delta.finish = FinishReason::None;
  return delta;
}

}  // namespace

void deliver(Engine& engine, Stream& stream, const std::atomic<bool>* cancelled, const Emit& emit) {
  std::exception_ptr thrown;
  bool stopped = false;
  for (;;) {
    const Delta delta = stream.wait();
    stopped = stopped || (cancelled != nullptr && cancelled->load());
    if (!stopped) {
      try {
        // What was generated before a failure goes out before the failure does.
        if (delta.error && !(delta.token_ids.empty() && delta.text.empty()))
          stopped = !emit(without_error(delta));
        if (!stopped) stopped = !emit(delta);
      } catch (...) {
        thrown = std::current_exception();
        stopped = true;
      }
      if (stopped && !delta.finished()) engine.cancel(stream);
    }
    if (delta.finished()) break;
  }
  if (thrown) std::rethrow_exception(thrown);
}

Emit text_emitter(vllm_token_callback callback, void* user_data) {
  return [callback, user_data](const Delta& delta) {
    if (delta.error) throw *delta.error;
    if (delta.text.empty() && !delta.finished()) return true;
    return callback(delta.text.c_str(), delta.finished(), user_data);
  };
}

}  // namespace vllm::abi

vllm_request::vllm_request(vllm::Engine& engine, std::shared_ptr<vllm::Stream> stream, vllm::abi::Emit emit)
    : engine_(engine), stream_(std::move(stream)) {
  // The lock holds the thread back until thread_ is set: a callback may ask in_own_callback() at once.
  const std::lock_guard lock(join_mutex_);
  const auto consume = [this, emit = std::move(emit)] {
    {
      const std::lock_guard started(join_mutex_);
    }
    try {
      vllm::abi::deliver(engine_, *stream_, &cancelled_, emit);
    } catch (const vllm::Error& error) {
      error_ = error;
    } catch (const std::exception& error) {
      error_ = vllm::Error(vllm::Status::Runtime, std::string("the callback failed: ") + error.what());
    } catch (...) {
      error_ = vllm::Error(vllm::Status::Unknown, "the callback failed with something that is no exception");
    }
    done_.store(true, std::memory_order_release);
    done_.notify_all();
  };
  try {
    thread_ = std::thread(consume);
  } catch (...) {
    engine_.cancel(*stream_);  // nobody would read what it generates
    throw;
  }
}

vllm_request::~vllm_request() {
  cancel();
  if (thread_.joinable()) thread_.join();
}

void vllm_request::cancel() {
  cancelled_.store(true);
  engine_.cancel(*stream_);
}

void vllm_request::wait() {
  if (in_own_callback()) vllm::fail_argument("a request cannot be waited for from its own callback");
  done_.wait(false, std::memory_order_acquire);
  if (error_.status() != vllm::Status::Ok) throw error_;
}

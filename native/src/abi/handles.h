// The handles of the text engine.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "engine/engine.h"
#include "serve/chat.h"
#include "vllm.h"

struct vllm_engine {
  std::unique_ptr<vllm::Engine> engine;
  std::unique_ptr<vllm::Chat> chat;
};

namespace vllm::abi {

/// Passes one delta on; false: stop the request.
using Emit = std::function<bool(const Delta&)>;

/// Pulls a stream to its end and hands every delta to `emit`, on the calling thread. When emit returns false
/// or throws, or `cancelled` becomes true, the request is ended and nothing more is handed out; what emit
/// threw is thrown again.
void deliver(Engine& engine, Stream& stream, const std::atomic<bool>* cancelled, const Emit& emit);

/// The token callback as an Emit; throws the error of a failed request.
Emit text_emitter(vllm_token_callback callback, void* user_data);

}  // namespace vllm::abi

/// A request with a thread that delivers its output.
struct vllm_request {
  vllm_request(vllm::Engine& engine, std::shared_ptr<vllm::Stream> stream, vllm::abi::Emit emit);
  /// Cancels and waits for the end of delivery.
  ~vllm_request();

  void cancel();
  /// Waits for the end of delivery; throws the request's error.
  void wait();
  bool done() const { return done_.load(std::memory_order_acquire); }
  const char* error() const { return done() ? error_.message().c_str() : ""; }
  bool in_own_callback() const { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  vllm::Engine& engine_;
  std::shared_ptr<vllm::Stream> stream_;
  vllm::Error error_{vllm::Status::Ok, ""};
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> done_{false};
  std::mutex join_mutex_;
  std::thread thread_;
};

#include "abi/guard.h"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <string>

#include "base/error.h"
#include "device/cpu/machine.h"

namespace vllm::abi {
namespace {

constexpr const char* kNoMemoryForMessage = "out of memory while reporting an error";

/// `text` is only good when `fallback` is NULL.
struct Message {
  std::string text;
  const char* fallback = nullptr;

  const char* get() const { return fallback ? fallback : text.c_str(); }
};

struct ThreadError {
  bool made_a_call = false;
  Message message;
};

/// Never destroyed: threads may still fail while the process exits.
struct LatestError {
  std::mutex mutex;
  std::string text;
};

LatestError& latest_error() {
  static LatestError* latest = new LatestError;
  return *latest;
}

thread_local ThreadError thread_error;

std::string out_of_memory() noexcept {
  try {
    return format("out of memory, of which %.1f MB are free",
                  static_cast<double>(cpu::available_memory()) / 1e6);
  } catch (...) {
    return "out of memory";
  }
}

}  // namespace

void set_last_error(const char* function, std::string_view message) noexcept {
  ThreadError& own = thread_error;
  own.made_a_call = true;
  try {
    std::string text = function;
    text += ": ";
    text += message;
    own.message = {std::move(text), nullptr};
    LatestError& latest = latest_error();
    std::lock_guard lock(latest.mutex);
    latest.text = own.message.text;
  } catch (...) {
    own.message.fallback = kNoMemoryForMessage;
  }
}

void clear_last_error() noexcept {
  thread_error.made_a_call = true;
  thread_error.message.text.clear();
  thread_error.message.fallback = nullptr;
}

const char* last_error() noexcept {
  ThreadError& own = thread_error;
  if (own.made_a_call) return own.message.get();
  try {
    LatestError& latest = latest_error();
    std::lock_guard lock(latest.mutex);
    own.message = {latest.text, nullptr};
  } catch (...) {
    own.message.fallback = kNoMemoryForMessage;
  }
  return own.message.get();
}

vllm_status report_exception(const char* function, Status otherwise) noexcept {
  try {
    throw;
  } catch (const Error& error) {
    set_last_error(function, error.message());
    return error.status() == Status::Ok ? VLLM_ERR_UNKNOWN : static_cast<vllm_status>(error.status());
  } catch (const std::bad_alloc&) {
    set_last_error(function, out_of_memory());
    return static_cast<vllm_status>(otherwise);
  } catch (const std::exception& error) {
    set_last_error(function, error.what());
    return static_cast<vllm_status>(otherwise);
  } catch (...) {
    set_last_error(function, "an unknown failure");
    return VLLM_ERR_UNKNOWN;
  }
}

void require(const void* argument, const char* name) {
  if (!argument) fail_argument("%s must not be NULL", name);
}

void require_text(const char* argument, const char* name) {
  if (!argument || !*argument) fail_argument("%s must not be %s", name, argument ? "empty" : "NULL");
}

char* new_string(std::string_view text) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (!copy) throw std::bad_alloc();
  if (!text.empty()) std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

}  // namespace vllm::abi

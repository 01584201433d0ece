// The one error type. Thrown where a fault is found, caught once in abi/.
#pragma once
#include <exception>
#include <string>
#include <string_view>

namespace vllm {

/// Same values as `vllm_status` of vllm.h.
enum class Status : int { Ok = 0, InvalidArgument = 1, ModelLoad = 2, Runtime = 3, Unknown = 4 };

/// `message` is one plain sentence: what is wrong, the value found and the value needed.
class Error : public std::exception {
 public:
  Error(Status status, std::string message) : status_(status), message_(std::move(message)) {}
  Status status() const { return status_; }
  const std::string& message() const { return message_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  Status status_;
  std::string message_;
};

/// printf into a std::string.
__attribute__((format(printf, 1, 2))) std::string format(const char* fmt, ...);

/// `text` from outside, in single quotes and fit for a message of one line: control bytes and invalid UTF-8
/// are written as \xNN, text beyond about `limit` bytes is cut with "...".
std::string quote(std::string_view text, size_t limit = 100);

/// Throw Error with the status of the name. The arguments are as for printf.
[[noreturn]] __attribute__((format(printf, 1, 2))) void fail_argument(const char* fmt, ...);
[[noreturn]] __attribute__((format(printf, 1, 2))) void fail_load(const char* fmt, ...);
[[noreturn]] __attribute__((format(printf, 1, 2))) void fail_runtime(const char* fmt, ...);

}  // namespace vllm

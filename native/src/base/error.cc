#include "base/error.h"

#include <cstdarg>
#include <cstdio>

namespace vllm {
namespace {

std::string vformat(const char* fmt, va_list args) {
  va_list copy;
  va_copy(copy, args);
  const int size = std::vsnprintf(nullptr, 0, fmt, copy);
  va_end(copy);
  std::string out(size > 0 ? static_cast<size_t>(size) : 0, '\0');
  if (size > 0) std::vsnprintf(out.data(), out.size() + 1, fmt, args);
  return out;
}

}  // namespace

std::string format(const char* fmt, ...) {
  va_list args;
  va_start(args, fmt);
  std::string out = vformat(fmt, args);
  va_end(args);
  return out;
}

#define VLLM_DEFINE_FAIL(name, status)           \
  void name(const char* fmt, ...) {              \
    va_list args;                                \
    va_start(args, fmt);                         \
    std::string message = vformat(fmt, args);    \
    va_end(args);                                \
    throw Error(status, std::move(message));     \
  }
VLLM_DEFINE_FAIL(fail_argument, Status::InvalidArgument)
VLLM_DEFINE_FAIL(fail_load, Status::ModelLoad)
VLLM_DEFINE_FAIL(fail_runtime, Status::Runtime)
#undef VLLM_DEFINE_FAIL

}  // namespace vllm

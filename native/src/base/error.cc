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

namespace {

/// Length of the valid UTF-8 character at the start of `text`, or 0.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  const size_t length = lead < 0x80   ? 1
                        : lead < 0xc2 ? 0
                        : lead < 0xe0 ? 2
                        : lead < 0xf0 ? 3
                        : lead < 0xf5 ? 4
                                      : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  if (lead == 0xe0 && byte(1) < 0xa0) return 0;   // overlong
  if (lead == 0xed && byte(1) >= 0xa0) return 0;  // surrogate
  if (lead == 0xf0 && byte(1) < 0x90) return 0;   // overlong
  if (lead == 0xf4 && byte(1) >= 0x90) return 0;  // beyond U+10FFFF
  return length;
}

}  // namespace

std::string quote(std::string_view text, size_t limit) {
  std::string out = "'";
  while (!text.empty()) {
    if (out.size() > limit) {
      out += "...";
      break;
    }
    const size_t length = utf8_length(text);
    const unsigned char lead = static_cast<unsigned char>(text[0]);
    if (length == 0 || lead < 0x20 || lead == 0x7f) {
      out += format("\\x%02x", lead);
      text.remove_prefix(1);
    } else {
      out += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return out + "'";
}

#define VLLM_DEFINE_FAIL(name, status)        \
  void name(const char* fmt, ...) {           \
    va_list args;                             \
    va_start(args, fmt);                      \
    std::string message = vformat(fmt, args); \
    va_end(args);                             \
    throw Error(status, std::move(message));  \
  }
VLLM_DEFINE_FAIL(fail_argument, Status::InvalidArgument)
VLLM_DEFINE_FAIL(fail_load, Status::ModelLoad)
VLLM_DEFINE_FAIL(fail_runtime, Status::Runtime)
#undef VLLM_DEFINE_FAIL

}  // namespace vllm

#include "base/log.h"

#include <cstdarg>
#include <cstdio>

namespace vllm {
namespace {

void write_line(const char* prefix, const char* fmt, va_list args) {
  char line[4096];
  const int head = std::snprintf(line, sizeof line, "%s", prefix);
  std::vsnprintf(line + head, sizeof line - head - 1, fmt, args);
  std::fprintf(stderr, "%s\n", line);
}

}  // namespace

void log_info(const char* fmt, ...) {
  va_list args;
  va_start(args, fmt);
  write_line("vllm: ", fmt, args);
  va_end(args);
}

void log_warning(const char* fmt, ...) {
  va_list args;
  va_start(args, fmt);
  write_line("vllm: warning: ", fmt, args);
  va_end(args);
}

}  // namespace vllm

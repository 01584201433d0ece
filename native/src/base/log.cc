#include "base/log.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace vllm {
namespace {

enum Level { kInfo, kWarning };

bool wanted(Level level) {
  const char* const set = std::getenv("VLLM_LOG_LEVEL");
  if (set == nullptr) return true;
  if (std::strcmp(set, "error") == 0) return false;
  return level == kWarning || std::strcmp(set, "warning") != 0;
}

void write_line(const char* prefix, const char* fmt, va_list args) {
  char line[4096];
  const int head = std::snprintf(line, sizeof line, "%s", prefix);
  std::vsnprintf(line + head, sizeof line - head - 1, fmt, args);
  std::fprintf(stderr, "%s\n", line);
}

}  // namespace

void log_info(const char* fmt, ...) {
  if (!wanted(kInfo)) return;
  va_list args;
  va_start(args, fmt);
  write_line("vllm: ", fmt, args);
  va_end(args);
}

void log_warning(const char* fmt, ...) {
  if (!wanted(kWarning)) return;
  va_list args;
  va_start(args, fmt);
  write_line("vllm: warning: ", fmt, args);
  va_end(args);
}

}  // namespace vllm

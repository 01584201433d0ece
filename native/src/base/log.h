// Plain lines on stderr. Never one a token: a host may keep them all.
#pragma once

namespace vllm {

__attribute__((format(printf, 1, 2))) void log_info(const char* fmt, ...);
__attribute__((format(printf, 1, 2))) void log_warning(const char* fmt, ...);

}  // namespace vllm

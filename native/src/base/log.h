// Plain lines on stderr. Never one a token: a host may keep them all. VLLM_LOG_LEVEL of the environment, one
// of debug, info (the default), warning and error, says which are written.
#pragma once

namespace vllm {

__attribute__((format(printf, 1, 2))) void log_info(const char* fmt, ...);
__attribute__((format(printf, 1, 2))) void log_warning(const char* fmt, ...);

}  // namespace vllm

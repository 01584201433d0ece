// What every entry point shares: nothing thrown gets out, and the last error says why a call failed.
#pragma once
#include <string_view>

#include "base/error.h"
#include "vllm.h"

namespace vllm::abi {

/// Sets the calling thread's last error to "<function>: <message>". Never throws.
void set_last_error(const char* function, std::string_view message) noexcept;

/// The calling thread has no error from now on.
void clear_last_error() noexcept;

/// What vllm_last_error returns.
const char* last_error() noexcept;

/// Sets the last error from the exception being handled and returns its status. `otherwise` is for standard
/// exceptions other than Error; what is no standard exception is Unknown.
vllm_status report_exception(const char* function, Status otherwise) noexcept;

/// Runs the body of the entry point `function` (its name) and returns how it went. `otherwise` as above:
/// ModelLoad for calls that load.
template <typename Body>
vllm_status guarded(const char* function, Body&& body, Status otherwise = Status::Runtime) noexcept {
  try {
    body();
    clear_last_error();
    return VLLM_OK;
  } catch (...) {
    return report_exception(function, otherwise);
  }
}

/// Throws InvalidArgument naming the argument when it is NULL.
void require(const void* argument, const char* name);

/// As require, for a string that must not be empty either.
void require_text(const char* argument, const char* name);

/// A copy that the caller of the library frees (vllm_string_free). Throws std::bad_alloc.
char* new_string(std::string_view text);

}  // namespace vllm::abi

// The last words of a process that a fatal signal ends.
#pragma once
#include <string>

namespace vllm {

/// From now on SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT write one sentence on stderr before they end the
/// process as they would have: the signal, the place in this library, and the model, which is `model` until
/// the next call. For programs whose own these signals are not.
void report_crashes(const std::string& model);

}  // namespace vllm

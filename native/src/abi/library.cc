// Entry points that belong to the library as a whole: its version, its last error, its memory.
#include <cstdlib>

#include "abi/guard.h"
#include "vllm.h"

extern "C" {

int32_t vllm_abi_version(void) { return VLLM_ABI_VERSION; }

const char* vllm_version(void) { return VLLM_VERSION_STRING; }

const char* vllm_last_error(void) { return vllm::abi::last_error(); }

void vllm_string_free(char* s) { std::free(s); }

void vllm_completion_free(vllm_completion* out) {
  if (!out) return;
  std::free(out->text);
  *out = {};
}

}  // extern "C"

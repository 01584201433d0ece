/* Both headers as a C11 compiler sees them: layout against abi_layout.inc, and a program that links and runs.
 */
#include <stdio.h>
#include <string.h>

#include "vllm.h"
#include "vllm_ext.h"

/* A prototype that differs from the header's does not compile. */
#define ABI_VERSION(number) _Static_assert(VLLM_ABI_VERSION == number, "VLLM_ABI_VERSION");
#define ABI_HANDLE(name) typedef name* handle_##name;
#define ABI_CALLBACK(name, returns, params) typedef returns(*same_##name) params;
#define ABI_ENUM(type, name, value) _Static_assert(name == value && sizeof(type) == 4, #name);
#define ABI_STRUCT(name, size, align, ...) \
  _Static_assert(sizeof(name) == size && _Alignof(name) == align, #name);
#define ABI_FIELD(record, name, type, offset, size)                                                          \
  _Static_assert(offsetof(record, name) == offset && sizeof(((record*)0)->name) == size, #record "." #name); \
  _Static_assert(_Generic(((record*)0)->name, type: 1, default: 0), #record "." #name " is a " #type);
#define ABI_FUNCTION(name, returns, params) returns name params;
#include "abi_layout.inc"

int main(void) {
  vllm_video_mux_params params = vllm_video_mux_params_default();
  char** argv = NULL;
  int32_t argc = 0;
  params.frames = "frame_%06d.ppm";
  params.output_path = "video.mp4";
  if (vllm_video_mux_argv(&params, &argv, &argc) != VLLM_OK || argc < 2 ||
      strcmp(argv[argc - 1], "video.mp4") != 0) {
    fprintf(stderr, "mux_argv: %s\n", vllm_last_error());
    return 1;
  }
  vllm_video_mux_argv_free(argv, argc);
  if (vllm_video_mux_argv(NULL, &argv, &argc) != VLLM_ERR_INVALID_ARGUMENT || argv != NULL || argc != 0) {
    fprintf(stderr, "mux_argv took NULL\n");
    return 1;
  }
  return vllm_abi_version() == VLLM_ABI_VERSION ? 0 : 1;
}

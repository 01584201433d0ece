/* Opens libvllm as a C program does that knows nothing of C++, has a load fail, and asks a model:
 *   plain_load LIBRARY MODEL
 */
#include <dlfcn.h>
#include <stdio.h>

#include "vllm.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  /* POSIX wants functions to be read through a pointer to an object. */
#define FIND(name)            \
  __typeof__(&name) p_##name; \
  *(void**)&p_##name = dlsym(library, #name)
  FIND(vllm_abi_version);
  FIND(vllm_model_params_default);
  FIND(vllm_sampling_params_default);
  FIND(vllm_engine_load);
  FIND(vllm_engine_free);
  FIND(vllm_complete);
  FIND(vllm_completion_free);
  FIND(vllm_last_error);
  if (p_vllm_abi_version() != VLLM_ABI_VERSION) return 1;

  vllm_engine* engine = NULL;
  vllm_model_params params = p_vllm_model_params_default();
  params.model_path = "/no/such/model.gguf";
  if (p_vllm_engine_load(&params, &engine) != VLLM_ERR_MODEL_LOAD || *p_vllm_last_error() == 0) {
    fprintf(stderr, "a model that is not there was loaded\n");
    return 1;
  }
  params.model_path = argv[2];
  params.num_blocks = 8;
  params.max_model_len = 64;
  vllm_sampling_params sampling = p_vllm_sampling_params_default();
  sampling.ignore_eos = 1;
  sampling.max_tokens = 8;
  vllm_completion completion;
  if (p_vllm_engine_load(&params, &engine) != VLLM_OK ||
      p_vllm_complete(engine, "Hello", &sampling, &completion) != VLLM_OK) {
    fprintf(stderr, "%s\n", p_vllm_last_error());
    return 1;
  }
  const int right = completion.completion_tokens == sampling.max_tokens;
  printf("%d tokens\n", completion.completion_tokens);
  p_vllm_completion_free(&completion);
  p_vllm_engine_free(engine);
  return right ? 0 : 1;
}

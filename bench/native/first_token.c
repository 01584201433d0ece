/* From nothing to one token, as a program of its own. Use: first_token MODEL */
#include <stdio.h>

#include "vllm.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  vllm_model_params model = vllm_model_params_default();
  model.model_path = argv[1];
  model.max_model_len = 512;
  model.num_blocks = 16;
  model.max_num_seqs = 1;
  vllm_engine* engine = NULL;
  const int32_t prompt = 1000;
  int32_t token = 0, count = 0;
  vllm_sampling_params sampling = vllm_sampling_params_default();
  sampling.max_tokens = 1;
  sampling.temperature = 0;
  sampling.ignore_eos = true;
  if (vllm_engine_load(&model, &engine) != VLLM_OK ||
      vllm_complete_tokens(engine, &prompt, 1, &sampling, &token, 1, &count, NULL) != VLLM_OK || count != 1) {
    fprintf(stderr, "%s\n", vllm_last_error());
    return 1;
  }
  printf("%d\n", token);
  vllm_engine_free(engine);
  return 0;
}

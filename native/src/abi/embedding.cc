// Embedding entry points. No checkpoint that this build loads can embed, so every engine is refused.
#include <cstdlib>

#include "abi/guard.h"
#include "vllm.h"

using namespace vllm;
using namespace vllm::abi;

extern "C" {

vllm_status vllm_embed(vllm_engine* engine, const char* const* texts, int32_t n_texts,
                       vllm_embedding_result* out) {
  return guarded("vllm_embed", [&] {
    if (out) *out = {};
    require(engine, "engine");
    require(texts, "texts");
    require(out, "out");
    if (n_texts <= 0) fail_argument("n_texts must be positive, got %d", n_texts);
    for (int32_t i = 0; i < n_texts; ++i)
      if (!texts[i]) fail_argument("texts[%d] must not be NULL", i);
    fail_argument(
        "this engine generates text and cannot embed, use vllm_complete / vllm_chat; embedding needs an "
        "engine "
        "loaded from a pooling checkpoint, which this build does not support");
  });
}

void vllm_embedding_result_free(vllm_embedding_result* out) {
  if (!out) return;
  std::free(out->values);
  *out = {};
}

}  // extern "C"

// Transcription entry points. No checkpoint that this build loads can transcribe, so every engine is refused.
#include <cstdlib>

#include "abi/guard.h"
#include "vllm.h"

using namespace vllm;
using namespace vllm::abi;

extern "C" {

vllm_transcription_params vllm_transcription_params_default(void) { return {}; }

vllm_status vllm_transcribe(vllm_engine* engine, const vllm_transcription_params* params,
                            vllm_transcription* out) {
  return guarded("vllm_transcribe", [&] {
    if (out) *out = {};
    require(engine, "engine");
    require(params, "params");
    require(out, "out");
    const bool has_path = params->audio_path && *params->audio_path;
    if (has_path == (params->pcm != nullptr))
      fail_argument("%s of audio_path and pcm given, exactly one is needed", has_path ? "both" : "none");
    if (params->pcm && (params->n_samples <= 0 || params->sample_rate <= 0))
      fail_argument("pcm needs a positive n_samples and sample_rate, got %lld and %d",
                    static_cast<long long>(params->n_samples), params->sample_rate);
    fail_argument(
        "this engine generates text and cannot transcribe, use vllm_complete or vllm_chat; transcription "
        "needs "
        "an engine loaded from a transcription-only checkpoint, which this build does not support");
  });
}

void vllm_transcription_free(vllm_transcription* out) {
  if (!out) return;
  std::free(out->text);
  std::free(out->token_ids);
  *out = {};
}

}  // extern "C"

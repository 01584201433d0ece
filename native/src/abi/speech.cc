// Speech and music entry points. No speech family is built in: engines are refused.
#include <cstdlib>
#include <filesystem>

#include "abi/guard.h"
#include "vllm.h"

using namespace vllm;
using namespace vllm::abi;

extern "C" {

vllm_speech_model_params vllm_speech_model_params_default(void) { return {}; }
vllm_speech_params vllm_speech_params_default(void) { return {}; }

vllm_status vllm_speech_engine_load(const vllm_speech_model_params* params, vllm_speech_engine** out) {
  return guarded(
      "vllm_speech_engine_load",
      [&] {
        require(out, "out");
        *out = nullptr;
        require(params, "params");
        require_text(params->path, "path");
        if (params->device != 0 && params->device != 1)
          fail_load("device is %d, needed is 0 (CPU) or 1 (accelerator)", params->device);
        if (params->family && *params->family)
          fail_load("unknown speech family \"%s\", this build has none", params->family);
        std::error_code error;
        if (!std::filesystem::exists(params->path, error))
          fail_load("path \"%s\" does not exist", params->path);
        fail_load(
            "no speech family claims \"%s\", this build has none; a text model is loaded with "
            "vllm_engine_load",
            params->path);
      },
      Status::ModelLoad);
}

// There is no engine that these could be given.
void vllm_speech_engine_free(vllm_speech_engine*) {}
const char* vllm_speech_engine_family(const vllm_speech_engine*) { return nullptr; }
int32_t vllm_speech_engine_sample_rate(const vllm_speech_engine*) { return 0; }
int32_t vllm_speech_engine_requires_reference_audio(const vllm_speech_engine*) { return 0; }
int32_t vllm_speech_engine_device(const vllm_speech_engine*) { return 0; }

vllm_status vllm_synthesize(vllm_speech_engine* engine, const vllm_speech_params* params,
                            vllm_speech_result* out) {
  return guarded("vllm_synthesize", [&] {
    if (out) *out = {};
    require(engine, "engine");
    require(params, "params");
    require(out, "out");
    if (params->n_reference_audio < 0)
      fail_argument("n_reference_audio must not be negative, got %lld",
                    static_cast<long long>(params->n_reference_audio));
    if (params->n_reference_audio > 0) require(params->reference_audio, "reference_audio");
    fail_runtime("this build has no speech family");
  });
}

void vllm_speech_result_free(vllm_speech_result* out) {
  if (!out) return;
  std::free(out->samples);
  std::free(out->wav);
  *out = {};
}

}  // extern "C"

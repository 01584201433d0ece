// Video entry points. No video family is built in: engines are refused, the rest works.
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "abi/guard.h"
#include "vllm.h"

using namespace vllm;
using namespace vllm::abi;

namespace {

void check_extras(const char* const* keys, const char* const* values, int32_t count) {
  if (count < 0) fail_argument("n_extras must not be negative, got %d", count);
  if (count == 0) return;
  require(keys, "extra_keys");
  require(values, "extra_values");
  for (int32_t i = 0; i < count; ++i) {
    if (!keys[i] || !*keys[i]) fail_argument("extra_keys[%d] must not be %s", i, keys[i] ? "empty" : "NULL");
    if (!values[i]) fail_argument("extra_values[%d] must not be NULL", i);
  }
}

/// The partition has a field and an extra of its name; they must not contradict each other.
void check_partition(const vllm_video_model_params& params) {
  if (!params.partition || !*params.partition) return;
  for (int32_t i = 0; i < params.n_extras; ++i) {
    if (std::strcmp(params.extra_keys[i], "partition") == 0 &&
        std::strcmp(params.extra_values[i], params.partition) != 0)
      fail_argument("partition is \"%s\" but the extra of that name is \"%s\"", params.partition,
                    params.extra_values[i]);
  }
}

}  // namespace

extern "C" {

vllm_video_model_params vllm_video_model_params_default(void) { return {}; }
vllm_video_params vllm_video_params_default(void) { return {}; }

vllm_status vllm_video_engine_load(const vllm_video_model_params* params, vllm_video_engine** out) {
  return guarded(
      "vllm_video_engine_load",
      [&] {
        require(out, "out");
        *out = nullptr;
        require(params, "params");
        require_text(params->dit_path, "dit_path");
        check_extras(params->extra_keys, params->extra_values, params->n_extras);
        check_partition(*params);
        if (params->family && *params->family)
          fail_load("unknown video family \"%s\", this build has none", params->family);
        std::error_code error;
        if (!std::filesystem::exists(params->dit_path, error))
          fail_load("dit_path \"%s\" does not exist", params->dit_path);
        fail_load(
            "no video family claims \"%s\", this build has none; a text model is loaded with "
            "vllm_engine_load",
            params->dit_path);
      },
      Status::ModelLoad);
}

// There is no engine that these could be given.
void vllm_video_engine_free(vllm_video_engine*) {}
const char* vllm_video_engine_family(const vllm_video_engine*) { return nullptr; }

vllm_status vllm_video_generate(vllm_video_engine* engine, const vllm_video_params* params,
                                vllm_video_result* out) {
  return guarded("vllm_video_generate", [&] {
    if (out) *out = {};
    require(engine, "engine");
    require(params, "params");
    require(out, "out");
    require_text(params->output_dir, "output_dir");
    check_extras(params->extra_keys, params->extra_values, params->n_extras);
    fail_runtime("this build has no video family");
  });
}

void vllm_video_result_free(vllm_video_result* out) {
  if (!out) return;
  std::free(out->frame_dir);
  std::free(out->audio_path);
  vllm_video_mux_argv_free(out->mux_argv, out->mux_argc);
  *out = {};
}

}  // extern "C"

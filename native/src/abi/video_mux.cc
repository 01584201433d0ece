// The ffmpeg command line that joins rendered frames and sound to an .mp4.
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "abi/guard.h"
#include "vllm.h"

using namespace vllm;
using namespace vllm::abi;

namespace {

constexpr int32_t kDefaultFps = 24;
constexpr int32_t kDefaultCrf = 18;

std::vector<std::string> ffmpeg_command(const vllm_video_mux_params& params) {
  const bool sound = params.audio_path && *params.audio_path;
  std::vector<std::string> command = {"ffmpeg",     "-y",
                                      "-loglevel",  "error",
                                      "-framerate", std::to_string(params.fps > 0 ? params.fps : kDefaultFps),
                                      "-i",         params.frames};
  auto add = [&](std::initializer_list<std::string> words) { command.insert(command.end(), words); };
  if (sound) add({"-i", params.audio_path});
  add({"-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf",
       std::to_string(params.crf > 0 ? params.crf : kDefaultCrf)});
  if (sound) add({"-c:a", "aac", "-b:a", "192k", "-shortest"});
  add({"-movflags", "+faststart", params.output_path});
  return command;
}

/// NULL-terminated, for vllm_video_mux_argv_free.
char** new_argv(const std::vector<std::string>& words) {
  char** argv = static_cast<char**>(std::calloc(words.size() + 1, sizeof(char*)));
  if (!argv) throw std::bad_alloc();
  try {
    for (size_t i = 0; i < words.size(); ++i) argv[i] = new_string(words[i]);
  } catch (...) {
    vllm_video_mux_argv_free(argv, static_cast<int32_t>(words.size()));
    throw;
  }
  return argv;
}

}  // namespace

extern "C" {

vllm_video_mux_params vllm_video_mux_params_default(void) { return {}; }

vllm_status vllm_video_mux_argv(const vllm_video_mux_params* params, char*** out_argv, int32_t* out_argc) {
  return guarded("vllm_video_mux_argv", [&] {
    if (out_argv) *out_argv = nullptr;
    if (out_argc) *out_argc = 0;
    require(params, "params");
    require(out_argv, "out_argv");
    require(out_argc, "out_argc");
    require_text(params->frames, "frames");
    require_text(params->output_path, "output_path");
    const std::vector<std::string> command = ffmpeg_command(*params);
    *out_argv = new_argv(command);
    *out_argc = static_cast<int32_t>(command.size());
  });
}

void vllm_video_mux_argv_free(char** argv, int32_t argc) {
  if (!argv) return;
  for (int32_t i = 0; i < argc; ++i) std::free(argv[i]);
  std::free(argv);
}

}  // extern "C"

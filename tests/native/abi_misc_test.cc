// The entry points beside text: arguments, refusals, results, and the last error of all.
#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "abi/guard.h"
#include "vllm.h"

using namespace vllm;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Checks a call's status, that its message starts with the function's name, and that it has `part`.
void check_failure(vllm_status got, vllm_status wanted, const std::string& function,
                   const std::string& part) {
  const std::string message = vllm_last_error();
  INFO(message);
  CHECK(got == wanted);
  CHECK(message.rfind(function + ": ", 0) == 0);
  CHECK(contains(message, part));
}

std::string in_new_thread(const std::function<std::string()>& body) {
  std::string result;
  std::thread([&] { result = body(); }).join();
  return result;
}

template <typename T>
T dirty() {
  T value;
  std::memset(static_cast<void*>(&value), 0xff, sizeof value);
  return value;
}

/// Any pointer but NULL: the calls tested here look into no handle.
template <typename T>
T* some_handle() {
  static char place;
  return reinterpret_cast<T*>(&place);
}

char* heap(const char* text) { return abi::new_string(text); }

const char* const kNoStrings[] = {nullptr, nullptr};
const char* const kText[] = {"a"};

}  // namespace

TEST_CASE("version calls") {
  CHECK(vllm_abi_version() == 21);
  CHECK(std::string(vllm_version()) == VLLM_VERSION_STRING);
}

TEST_CASE("defaults are all zero") {
  auto is_zero = [](const auto& value) {
    const char zeros[sizeof value] = {};
    return std::memcmp(&value, zeros, sizeof value) == 0;
  };
  CHECK(is_zero(vllm_transcription_params_default()));
  CHECK(is_zero(vllm_video_model_params_default()));
  CHECK(is_zero(vllm_video_params_default()));
  CHECK(is_zero(vllm_video_mux_params_default()));
  CHECK(is_zero(vllm_speech_model_params_default()));
  CHECK(is_zero(vllm_speech_params_default()));
}

TEST_CASE("vllm_transcribe refuses NULL, unusable audio and text engines") {
  auto* engine = some_handle<vllm_engine>();
  vllm_transcription_params params = vllm_transcription_params_default();
  params.audio_path = "a.wav";
  auto fails = [&](vllm_engine* engine, const vllm_transcription_params* params, const char* part) {
    auto out = dirty<vllm_transcription>();
    check_failure(vllm_transcribe(engine, params, &out), VLLM_ERR_INVALID_ARGUMENT, "vllm_transcribe", part);
    CHECK(out.text == nullptr);
    CHECK(out.token_ids == nullptr);
    CHECK(out.n_token_ids == 0);
    CHECK(out.has_text == 0);
    vllm_transcription_free(&out);
  };
  fails(nullptr, &params, "engine");
  fails(engine, nullptr, "params");
  fails(engine, &params, "vllm_chat");
  check_failure(vllm_transcribe(engine, &params, nullptr), VLLM_ERR_INVALID_ARGUMENT, "vllm_transcribe",
                "out");

  const float pcm[4] = {};
  params.pcm = pcm;
  fails(engine, &params, "both");
  params.audio_path = nullptr;
  fails(engine, &params, "n_samples");
  params.n_samples = 4;
  fails(engine, &params, "sample_rate");
  params.sample_rate = 16000;
  fails(engine, &params, "vllm_chat");
  params.pcm = nullptr;
  fails(engine, &params, "none");
}

TEST_CASE("vllm_embed refuses NULL, empty batches and text engines") {
  auto* engine = some_handle<vllm_engine>();
  auto fails = [&](vllm_engine* engine, const char* const* texts, int32_t count, const char* part) {
    auto out = dirty<vllm_embedding_result>();
    check_failure(vllm_embed(engine, texts, count, &out), VLLM_ERR_INVALID_ARGUMENT, "vllm_embed", part);
    CHECK(out.values == nullptr);
    CHECK(out.n_embeddings == 0);
    CHECK(out.dim == 0);
    CHECK(out.prompt_tokens == 0);
    vllm_embedding_result_free(&out);
  };
  fails(nullptr, kText, 1, "engine");
  fails(engine, nullptr, 1, "texts");
  fails(engine, kText, 0, "n_texts");
  fails(engine, kText, -1, "n_texts");
  const char* const second_missing[] = {"a", nullptr};
  fails(engine, second_missing, 2, "texts[1]");
  fails(engine, kText, 1, "use vllm_complete / vllm_chat");
  check_failure(vllm_embed(engine, kText, 1, nullptr), VLLM_ERR_INVALID_ARGUMENT, "vllm_embed", "out");
}

TEST_CASE("vllm_video_engine_load refuses what it cannot load") {
  vllm_video_model_params params = vllm_video_model_params_default();
  auto fails = [&](const vllm_video_model_params* params, vllm_status status, const char* part) {
    auto* out = some_handle<vllm_video_engine>();
    check_failure(vllm_video_engine_load(params, &out), status, "vllm_video_engine_load", part);
    CHECK(out == nullptr);
  };
  fails(nullptr, VLLM_ERR_INVALID_ARGUMENT, "params");
  fails(&params, VLLM_ERR_INVALID_ARGUMENT, "dit_path");
  params.dit_path = "";
  fails(&params, VLLM_ERR_INVALID_ARGUMENT, "dit_path");
  params.dit_path = FIXTURES;
  check_failure(vllm_video_engine_load(&params, nullptr), VLLM_ERR_INVALID_ARGUMENT, "vllm_video_engine_load",
                "out");

  params.n_extras = -1;
  fails(&params, VLLM_ERR_INVALID_ARGUMENT, "n_extras");
  params.n_extras = 1;
  fails(&params, VLLM_ERR_INVALID_ARGUMENT, "extra_keys");
  params.extra_keys = kText;
  fails(&params, VLLM_ERR_INVALID_ARGUMENT, "extra_values");
  params.extra_values = kNoStrings;
  fails(&params, VLLM_ERR_INVALID_ARGUMENT, "extra_values[0]");
  params.extra_keys = kNoStrings;
  fails(&params, VLLM_ERR_INVALID_ARGUMENT, "extra_keys[0]");
  const char* const partition[] = {"partition"};
  const char* const ref2va[] = {"ref2va"};
  params.extra_keys = partition;
  params.extra_values = ref2va;
  params.partition = "fl2va";
  fails(&params, VLLM_ERR_INVALID_ARGUMENT, "ref2va");
  params.partition = "ref2va";
  fails(&params, VLLM_ERR_MODEL_LOAD, "vllm_engine_load");

  params.dit_path = FIXTURES "/no such place";
  fails(&params, VLLM_ERR_MODEL_LOAD, "does not exist");
  params.family = "minimax-h3";
  fails(&params, VLLM_ERR_MODEL_LOAD, "minimax-h3");
}

TEST_CASE("vllm_video_generate refuses NULL and malformed extras") {
  auto* engine = some_handle<vllm_video_engine>();
  vllm_video_params params = vllm_video_params_default();
  auto fails = [&](vllm_video_engine* engine, const vllm_video_params* params, vllm_status status,
                   const char* part) {
    auto out = dirty<vllm_video_result>();
    check_failure(vllm_video_generate(engine, params, &out), status, "vllm_video_generate", part);
    CHECK(out.frame_dir == nullptr);
    CHECK(out.audio_path == nullptr);
    CHECK(out.frame_count == 0);
    CHECK(out.mux_argv == nullptr);
    CHECK(out.mux_argc == 0);
    vllm_video_result_free(&out);
  };
  fails(engine, &params, VLLM_ERR_INVALID_ARGUMENT, "output_dir");
  params.output_dir = "";
  fails(engine, &params, VLLM_ERR_INVALID_ARGUMENT, "output_dir");
  params.output_dir = "/tmp";
  fails(nullptr, &params, VLLM_ERR_INVALID_ARGUMENT, "engine");
  fails(engine, nullptr, VLLM_ERR_INVALID_ARGUMENT, "params");
  check_failure(vllm_video_generate(engine, &params, nullptr), VLLM_ERR_INVALID_ARGUMENT,
                "vllm_video_generate", "out");
  params.n_extras = 1;
  fails(engine, &params, VLLM_ERR_INVALID_ARGUMENT, "extra_keys");
  params.n_extras = 0;
  fails(engine, &params, VLLM_ERR_RUNTIME, "no video family");
}

TEST_CASE("vllm_speech_engine_load refuses what it cannot load") {
  vllm_speech_model_params params = vllm_speech_model_params_default();
  auto fails = [&](const vllm_speech_model_params* params, vllm_status status, const char* part) {
    auto* out = some_handle<vllm_speech_engine>();
    check_failure(vllm_speech_engine_load(params, &out), status, "vllm_speech_engine_load", part);
    CHECK(out == nullptr);
  };
  fails(nullptr, VLLM_ERR_INVALID_ARGUMENT, "params");
  fails(&params, VLLM_ERR_INVALID_ARGUMENT, "path");
  params.path = "";
  fails(&params, VLLM_ERR_INVALID_ARGUMENT, "path");
  params.path = FIXTURES;
  check_failure(vllm_speech_engine_load(&params, nullptr), VLLM_ERR_INVALID_ARGUMENT,
                "vllm_speech_engine_load", "out");
  fails(&params, VLLM_ERR_MODEL_LOAD, "vllm_engine_load");
  params.path = FIXTURES "/no such place";
  fails(&params, VLLM_ERR_MODEL_LOAD, "does not exist");
  params.device = 2;
  fails(&params, VLLM_ERR_MODEL_LOAD, "device");
  params.device = 0;
  params.family = "indextts2";
  fails(&params, VLLM_ERR_MODEL_LOAD, "indextts2");
}

TEST_CASE("vllm_synthesize refuses NULL and inconsistent reference audio") {
  auto* engine = some_handle<vllm_speech_engine>();
  vllm_speech_params params = vllm_speech_params_default();
  auto fails = [&](vllm_speech_engine* engine, const vllm_speech_params* params, vllm_status status,
                   const char* part) {
    auto out = dirty<vllm_speech_result>();
    check_failure(vllm_synthesize(engine, params, &out), status, "vllm_synthesize", part);
    CHECK(out.samples == nullptr);
    CHECK(out.n_samples == 0);
    CHECK(out.wav == nullptr);
    CHECK(out.n_wav == 0);
    vllm_speech_result_free(&out);
  };
  fails(nullptr, &params, VLLM_ERR_INVALID_ARGUMENT, "engine");
  fails(engine, nullptr, VLLM_ERR_INVALID_ARGUMENT, "params");
  check_failure(vllm_synthesize(engine, &params, nullptr), VLLM_ERR_INVALID_ARGUMENT, "vllm_synthesize",
                "out");
  fails(engine, &params, VLLM_ERR_RUNTIME, "no speech family");
  params.n_reference_audio = -1;
  fails(engine, &params, VLLM_ERR_INVALID_ARGUMENT, "n_reference_audio");
  params.n_reference_audio = 1;
  fails(engine, &params, VLLM_ERR_INVALID_ARGUMENT, "reference_audio");
}

TEST_CASE("queries and frees take NULL and leave the last error alone") {
  CHECK(vllm_embed(nullptr, nullptr, 0, nullptr) == VLLM_ERR_INVALID_ARGUMENT);
  const std::string before = vllm_last_error();
  CHECK_FALSE(before.empty());
  vllm_string_free(nullptr);
  vllm_completion_free(nullptr);
  vllm_transcription_free(nullptr);
  vllm_embedding_result_free(nullptr);
  vllm_video_engine_free(nullptr);
  vllm_video_result_free(nullptr);
  vllm_video_mux_argv_free(nullptr, 0);
  vllm_video_mux_argv_free(nullptr, 7);
  vllm_speech_engine_free(nullptr);
  vllm_speech_result_free(nullptr);
  CHECK(vllm_video_engine_family(nullptr) == nullptr);
  CHECK(vllm_speech_engine_family(nullptr) == nullptr);
  CHECK(vllm_speech_engine_sample_rate(nullptr) == 0);
  CHECK(vllm_speech_engine_requires_reference_audio(nullptr) == 0);
  CHECK(vllm_speech_engine_device(nullptr) == 0);
  CHECK(vllm_abi_version() == 21);
  CHECK(vllm_version() != nullptr);
  CHECK(std::string(vllm_last_error()) == before);
}

TEST_CASE("results are freed twice without harm") {
  vllm_completion completion = {heap("text"), "stop", 1, 2};
  vllm_completion_free(&completion);
  CHECK(completion.text == nullptr);
  CHECK(completion.finish_reason == nullptr);
  CHECK(completion.prompt_tokens == 0);
  CHECK(completion.completion_tokens == 0);
  vllm_completion_free(&completion);

  vllm_transcription transcription = {heap("text"), static_cast<int32_t*>(std::malloc(8)), 2, 1};
  vllm_transcription_free(&transcription);
  CHECK(transcription.text == nullptr);
  CHECK(transcription.token_ids == nullptr);
  CHECK(transcription.n_token_ids == 0);
  vllm_transcription_free(&transcription);

  vllm_embedding_result embedding = {static_cast<float*>(std::malloc(8)), 1, 2, 3};
  vllm_embedding_result_free(&embedding);
  CHECK(embedding.values == nullptr);
  CHECK(embedding.dim == 0);
  vllm_embedding_result_free(&embedding);

  vllm_video_result video = {};
  video.frame_dir = heap("frames");
  video.audio_path = heap("audio.wav");
  video.mux_argv = static_cast<char**>(std::calloc(3, sizeof(char*)));
  video.mux_argv[0] = heap("ffmpeg");
  video.mux_argv[1] = heap("-y");
  video.mux_argc = 2;
  vllm_video_result_free(&video);
  CHECK(video.frame_dir == nullptr);
  CHECK(video.mux_argv == nullptr);
  CHECK(video.mux_argc == 0);
  vllm_video_result_free(&video);

  vllm_speech_result speech = {};
  speech.samples = static_cast<float*>(std::malloc(8));
  speech.wav = heap("RIFF");
  vllm_speech_result_free(&speech);
  CHECK(speech.samples == nullptr);
  CHECK(speech.wav == nullptr);
  vllm_speech_result_free(&speech);
}

TEST_CASE("vllm_video_mux_argv composes ffmpeg's command line") {
  auto words = [](const vllm_video_mux_params& params) {
    char** argv = nullptr;
    int32_t argc = 0;
    REQUIRE(vllm_video_mux_argv(&params, &argv, &argc) == VLLM_OK);
    CHECK(std::string(vllm_last_error()).empty());
    CHECK(argv[argc] == nullptr);
    std::vector<std::string> result(argv, argv + argc);
    vllm_video_mux_argv_free(argv, argc);
    return result;
  };
  vllm_video_mux_params params = vllm_video_mux_params_default();
  params.frames = "/out dir/frame_%06d.ppm";
  params.output_path = "/out dir/video.mp4";
  const std::vector<std::string> silent = {"ffmpeg",
                                           "-y",
                                           "-loglevel",
                                           "error",
                                           "-framerate",
                                           "24",
                                           "-i",
                                           "/out dir/frame_%06d.ppm",
                                           "-c:v",
                                           "libx264",
                                           "-pix_fmt",
                                           "yuv420p",
                                           "-crf",
                                           "18",
                                           "-movflags",
                                           "+faststart",
                                           "/out dir/video.mp4"};
  CHECK(words(params) == silent);
  params.audio_path = "";
  params.fps = -1;
  params.crf = -1;
  CHECK(words(params) == silent);

  params.audio_path = "/out dir/audio.wav";
  params.fps = 30;
  params.crf = 23;
  const std::vector<std::string> sound = {"ffmpeg",     "-y",
                                          "-loglevel",  "error",
                                          "-framerate", "30",
                                          "-i",         "/out dir/frame_%06d.ppm",
                                          "-i",         "/out dir/audio.wav",
                                          "-c:v",       "libx264",
                                          "-pix_fmt",   "yuv420p",
                                          "-crf",       "23",
                                          "-c:a",       "aac",
                                          "-b:a",       "192k",
                                          "-shortest",  "-movflags",
                                          "+faststart", "/out dir/video.mp4"};
  CHECK(words(params) == sound);
}

TEST_CASE("vllm_video_mux_argv refuses what it cannot compose") {
  vllm_video_mux_params params = vllm_video_mux_params_default();
  params.frames = "f";
  params.output_path = "o";
  auto fails = [](const vllm_video_mux_params* params, const char* part) {
    char** argv = some_handle<char*>();
    int32_t argc = 9;
    check_failure(vllm_video_mux_argv(params, &argv, &argc), VLLM_ERR_INVALID_ARGUMENT, "vllm_video_mux_argv",
                  part);
    CHECK(argv == nullptr);
    CHECK(argc == 0);
  };
  fails(nullptr, "params");
  char** argv = some_handle<char*>();
  int32_t argc = 9;
  check_failure(vllm_video_mux_argv(&params, nullptr, &argc), VLLM_ERR_INVALID_ARGUMENT,
                "vllm_video_mux_argv", "out_argv");
  CHECK(argc == 0);
  check_failure(vllm_video_mux_argv(&params, &argv, nullptr), VLLM_ERR_INVALID_ARGUMENT,
                "vllm_video_mux_argv", "out_argc");
  CHECK(argv == nullptr);
  params.frames = "";
  fails(&params, "frames");
  params.frames = nullptr;
  fails(&params, "frames");
  params.frames = "f";
  params.output_path = nullptr;
  fails(&params, "output_path");
}

TEST_CASE("vllm_server_main refuses to start and answers --help") {
  char name[] = "server", help[] = "--help", port[] = "--port";
  char* with_help[] = {name, help, nullptr};
  char* with_port[] = {name, port, nullptr};
  CHECK(vllm_server_main(2, with_help) == 0);
  CHECK(vllm_server_main(2, with_port) == 1);
  CHECK(std::string(vllm_last_error()) == "vllm_server_main: this build has no HTTP server");
  CHECK(vllm_server_main(0, nullptr) == 1);
}

TEST_CASE("guarded turns whatever is thrown into a status and a message") {
  using abi::guarded;
  auto check = [](vllm_status got, vllm_status wanted, const std::string& message) {
    CHECK(got == wanted);
    CHECK(std::string(vllm_last_error()) == message);
  };
  check(guarded("vllm_f", [] { fail_argument("size is %d", 3); }), VLLM_ERR_INVALID_ARGUMENT,
        "vllm_f: size is 3");
  check(guarded("vllm_f", [] { fail_load("no file"); }), VLLM_ERR_MODEL_LOAD, "vllm_f: no file");
  check(guarded(
            "vllm_f", [] { fail_runtime("no luck"); }, Status::ModelLoad),
        VLLM_ERR_RUNTIME, "vllm_f: no luck");
  check(guarded("vllm_f", [] { throw Error(Status::Ok, "odd"); }), VLLM_ERR_UNKNOWN, "vllm_f: odd");
  check(guarded("vllm_f", [] { throw std::runtime_error("broken"); }), VLLM_ERR_RUNTIME, "vllm_f: broken");
  check(guarded(
            "vllm_f", [] { throw std::runtime_error("broken"); }, Status::ModelLoad),
        VLLM_ERR_MODEL_LOAD, "vllm_f: broken");
  CHECK(guarded("vllm_f", [] { throw std::bad_alloc(); }) == VLLM_ERR_RUNTIME);
  CHECK(std::string(vllm_last_error()).starts_with("vllm_f: out of memory, of which "));
  check(guarded("vllm_f", [] { throw 7; }), VLLM_ERR_UNKNOWN, "vllm_f: an unknown failure");
  check(guarded("vllm_f", [] {}), VLLM_OK, "");
}

TEST_CASE("the last error is the thread's own, cleared by success") {
  auto fail_here = [](const char* message) { abi::guarded("vllm_f", [&] { fail_runtime("%s", message); }); };
  fail_here("mine");
  std::thread([&] {
    fail_here("theirs");
    CHECK(std::string(vllm_last_error()) == "vllm_f: theirs");
    abi::guarded("vllm_f", [] {});
    CHECK(std::string(vllm_last_error()).empty());
  }).join();
  CHECK(std::string(vllm_last_error()) == "vllm_f: mine");
  abi::guarded("vllm_f", [] {});
  CHECK(std::string(vllm_last_error()).empty());
}

TEST_CASE("a thread without a call of its own sees the newest error of the process") {
  abi::guarded("vllm_f", [] { fail_runtime("newest"); });
  auto read = [] { return std::string(vllm_last_error()); };
  CHECK(in_new_thread(read) == "vllm_f: newest");
  CHECK(in_new_thread([&] {
          abi::guarded("vllm_f", [] {});
          return read();
        }).empty());
  // What a thread saw of others it does not keep.
  CHECK(in_new_thread([&] {
          std::string seen = read();
          std::thread([] { abi::guarded("vllm_g", [] { fail_runtime("newer"); }); }).join();
          return seen + ", " + read();
        }) == "vllm_f: newest, vllm_g: newer");
}

TEST_CASE("threads fail side by side") {
  std::vector<std::thread> threads;
  std::vector<int> wrong(8);
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([t, &wrong] {
      for (int i = 0; i < 200; ++i) {
        abi::guarded("vllm_f", [&] { fail_runtime("thread %d, call %d", t, i); });
        wrong[t] += std::string(vllm_last_error()) != format("vllm_f: thread %d, call %d", t, i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(8));
}

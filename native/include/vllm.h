/* The C interface of libvllm, version 21: text, chat, transcription, embedding, video and speech.
 *
 * Rules for every call:
 * - No exception crosses this boundary. A call that returns vllm_status reports failure by it, and the
 *   reason is then in vllm_last_error.
 * - Input structs are plain data. Their pointers are borrowed for the call; what is needed later is copied.
 * - Results and out pointers are zeroed at entry, so they may be freed after a failure.
 * - Memory handed out is freed with the library's own functions, which accept NULL. One for a result struct
 *   frees the members and zeroes it, so a second call does nothing. Strings, argv arrays and handles are
 *   freed once.
 * - Text is NUL-terminated UTF-8. In an optional string "" counts as NULL.
 * - A handle may be used from many threads at once; free it when nothing uses it any more. */
#ifndef VLLM_H_
#define VLLM_H_

#include <stddef.h>
#include <stdint.h>
#ifndef __cplusplus
#include <stdbool.h>
#endif

#define VLLM_ABI_VERSION 21

#if defined(_WIN32)
#define VLLM_API __declspec(dllexport)
#else
#define VLLM_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum vllm_status {
  VLLM_OK = 0,
  VLLM_ERR_INVALID_ARGUMENT = 1, /* the caller's values are wrong */
  VLLM_ERR_MODEL_LOAD = 2,       /* files, device or construction of an engine failed */
  VLLM_ERR_RUNTIME = 3,          /* generation failed */
  VLLM_ERR_UNKNOWN = 4           /* a failure without a description */
} vllm_status;

typedef struct vllm_engine vllm_engine;
typedef struct vllm_request vllm_request;
typedef struct vllm_video_engine vllm_video_engine;
typedef struct vllm_speech_engine vllm_speech_engine;

/* Receives the text of a request piece by piece. delta_text is valid during the call, never NULL, and never
 * splits a character. The one call with finished = true is the last, and its text may be non-empty. Return
 * false to stop the request: there is no further call. May block; other requests go on meanwhile. user_data
 * is never looked into. */
typedef bool (*vllm_token_callback)(const char* delta_text, bool finished, void* user_data);

/* Edits the logits of one request in place, once a decode step, after token filters and biases and before
 * penalties. token_ids: the output so far, none at the first step. logits: vocab_size values. Pointers are
 * valid during the call. Runs on a thread of the engine, so it must be quick; it stays in use until the
 * request ends. */
typedef void (*vllm_logits_processor)(const int32_t* token_ids, int32_t n_token_ids, float* logits,
                                      int32_t vocab_size, void* user_data);

/* ---- Text engine ---- */

/* Tri-state fields: 0 leaves it to the model, 1 on, 2 off. */
typedef struct vllm_model_params {
  const char* model_path;            /* required: directory (config.json + safetensors) or .gguf file */
  const char* tokenizer_config_path; /* holds the chat template; NULL: beside the model; unused for .gguf */
  int32_t block_size;                /* tokens a KV block, a multiple of 16; <= 0: 32 */
  int32_t num_blocks;             /* KV blocks; overrides both sizes below; <= 0: from those or from memory */
  int32_t max_model_len;          /* longest prompt + output in tokens; <= 0: the model's own */
  int32_t max_num_seqs;           /* sequences run at once; <= 0: 8 */
  const char* tool_parser;        /* tool-call dialect of the chat calls; NULL: from the chat template */
  const char* reasoning_parser;   /* the same for reasoning; "none": off */
  const char* speculative_config; /* JSON object: method, num_speculative_tokens, model, ...; NULL: none */
  int32_t enable_prefix_caching;  /* tri-state */
  int32_t max_num_batched_tokens; /* tokens a step, >= max_num_seqs; <= 0: by architecture */
  const char* scheduling_policy;  /* "fcfs", "priority" or "lpm"; NULL: fcfs */
  const char* kv_transfer_config; /* JSON object: kv_connector, kv_role, ...; NULL: none */
  const char* offload_config;     /* JSON object on weight offloading; NULL: none */
  int32_t enable_jump_forward;    /* tri-state; environment VT_ENABLE_JUMP_FORWARD wins when set */
  int32_t device;                 /* 0 best present, 1 CPU, 2 CUDA */
  double gpu_memory_utilization;  /* share of free device memory to use, 0..1; <= 0: 0.92 */
  int64_t kv_cache_memory_bytes;  /* KV pool in bytes, at least one block; 0: unset */
  int32_t language_model_only;    /* nonzero: every limit below is 0 */
  const char* limit_mm_per_prompt; /* JSON object: modality to count; NULL: 999 each */
} vllm_model_params;

/* At most one of the five structured_ constraints. A zeroed struct is invalid: start from the defaults. */
typedef struct vllm_sampling_params {
  float temperature;  /* 0..2; below 1e-5: greedy */
  float top_p;        /* (0, 1] */
  int32_t top_k;      /* 0 or -1: all */
  float min_p;        /* 0..1, relative to the likeliest token */
  int32_t max_tokens; /* most tokens to generate; <= 0: as the context allows */
  uint64_t seed;      /* read when has_seed; all bits set: unseeded */
  int32_t has_seed;
  float presence_penalty;               /* -2..2 */
  float frequency_penalty;              /* -2..2 */
  float repetition_penalty;             /* > 0; 1: none */
  int32_t min_tokens;                   /* no end of text or stop before this many; 0..max_tokens */
  int32_t ignore_eos;                   /* nonzero: the end token does not end the request */
  const char* const* stop;              /* n_stop strings; NULL entries are skipped, "" is refused */
  int32_t n_stop;                       /* <= 0: none */
  const char* structured_json;          /* JSON Schema */
  const char* structured_regex;         /* the whole output matches it */
  const char* const* structured_choice; /* the output is one of these; NULL entries are skipped */
  int32_t n_structured_choice;          /* <= 0: off */
  const char* structured_grammar;       /* GBNF with start symbol root */
  int32_t structured_json_object;       /* nonzero: any JSON object */
  vllm_logits_processor logits_processor;
  void* logits_processor_user_data;
} vllm_sampling_params;

typedef struct vllm_completion {
  char* text;                /* NULL after a failure */
  const char* finish_reason; /* static: stop, length, abort, error, repetition, unknown; NULL: not ended */
  int32_t prompt_tokens;
  int32_t completion_tokens;
} vllm_completion;

/* block_size 32, max_num_seqs 8, gpu_memory_utilization 0.92, the rest 0 or NULL. */
VLLM_API vllm_model_params vllm_model_params_default(void);

/* temperature, top_p and repetition_penalty 1, max_tokens 16, the rest 0 or NULL. */
VLLM_API vllm_sampling_params vllm_sampling_params_default(void);

/* Loads a model; may take minutes. Unusable values are VLLM_ERR_INVALID_ARGUMENT before any file is opened,
 * everything else is VLLM_ERR_MODEL_LOAD. *out is freed with vllm_engine_free. */
VLLM_API vllm_status vllm_engine_load(const vllm_model_params* params, vllm_engine** out);

/* Stops the engine's threads. Free its vllm_request handles first. */
VLLM_API void vllm_engine_free(vllm_engine* engine);

/* Generates and waits. Calls on one engine from many threads are batched together. Sampling values out of
 * range, more than one constraint, or a prompt that cannot fit are VLLM_ERR_INVALID_ARGUMENT; the engine
 * stays usable. */
VLLM_API vllm_status vllm_complete(vllm_engine* engine, const char* prompt,
                                   const vllm_sampling_params* params, vllm_completion* out);

/* As vllm_complete for n_prompt_tokens > 0 token ids, used as they are. Writes the first max_out_tokens
 * generated ids to out_tokens (NULL only if max_out_tokens is 0) and their number to *n_out_tokens. out may
 * be NULL. */
VLLM_API vllm_status vllm_complete_tokens(vllm_engine* engine, const int32_t* prompt_tokens,
                                          int32_t n_prompt_tokens, const vllm_sampling_params* params,
                                          int32_t* out_tokens, int32_t max_out_tokens, int32_t* n_out_tokens,
                                          vllm_completion* out);

/* As vllm_complete, with the text handed to cb on the calling thread. A stop by cb is VLLM_OK. */
VLLM_API vllm_status vllm_complete_stream(vllm_engine* engine, const char* prompt,
                                          const vllm_sampling_params* params, vllm_token_callback cb,
                                          void* user_data);

/* Queues a request and returns; cb then runs on a thread of the library. *out is freed with
 * vllm_request_free. */
VLLM_API vllm_status vllm_request_submit(vllm_engine* engine, const char* prompt,
                                         const vllm_sampling_params* params, vllm_token_callback cb,
                                         void* user_data, vllm_request** out);

/* Ends a request without waiting; may be repeated. Apart from a callback already running there is no further
 * one, and the request's status stays VLLM_OK. */
VLLM_API vllm_status vllm_request_cancel(vllm_request* request);

/* Waits for the end of delivery; returns the request's status. VLLM_ERR_INVALID_ARGUMENT from its own
 * callback. */
VLLM_API vllm_status vllm_request_wait(vllm_request* request);

/* Whether delivery has ended; false for NULL. */
VLLM_API bool vllm_request_done(const vllm_request* request);

/* The request's error, "" while it runs or when it has none; lives as long as the request. Never NULL. */
VLLM_API const char* vllm_request_error(const vllm_request* request);

/* Cancels, waits and frees. From the request's own callback it only sets the last error. */
VLLM_API void vllm_request_free(vllm_request* request);

/* ---- Chat ---- */

/* Answers one OpenAI chat-completions request with one chat.completion object, freed with vllm_string_free.
 * Malformed or unusable requests are VLLM_ERR_INVALID_ARGUMENT. */
VLLM_API vllm_status vllm_chat(vllm_engine* engine, const char* request_json, char** out_response_json);

/* As vllm_chat: cb gets one chat.completion.chunk object a call with finished = false, on the calling thread,
 * then one call with "" and finished = true. */
VLLM_API vllm_status vllm_chat_stream(vllm_engine* engine, const char* request_json, vllm_token_callback cb,
                                      void* user_data);

/* ---- Transcription, with an engine loaded from a transcription checkpoint ---- */

/* Exactly one of audio_path and pcm. */
typedef struct vllm_transcription_params {
  const char* audio_path; /* RIFF/WAVE, 16-bit PCM, mono, 16 kHz */
  const float* pcm;       /* mono samples in [-1, 1) */
  int64_t n_samples;      /* samples in pcm, > 0 */
  int32_t sample_rate;    /* of pcm in Hz, > 0; nothing is resampled */
} vllm_transcription_params;

typedef struct vllm_transcription {
  char* text;         /* NULL when has_text is 0 */
  int32_t* token_ids; /* n_token_ids values; NULL when there are none */
  int32_t n_token_ids;
  int32_t has_text; /* 0: the checkpoint has no tokenizer */
} vllm_transcription;

/* All zero. */
VLLM_API vllm_transcription_params vllm_transcription_params_default(void);

/* VLLM_ERR_INVALID_ARGUMENT for an engine of another task. Freed with vllm_transcription_free. */
VLLM_API vllm_status vllm_transcribe(vllm_engine* engine, const vllm_transcription_params* params,
                                     vllm_transcription* out);
VLLM_API void vllm_transcription_free(vllm_transcription* out);

/* ---- Embedding, with an engine loaded from a pooling checkpoint ---- */

typedef struct vllm_embedding_result {
  float* values; /* n_embeddings rows of dim values, each of length 1 */
  int32_t n_embeddings;
  int32_t dim;
  int32_t prompt_tokens; /* of all texts together, special tokens included */
} vllm_embedding_result;

/* One row a text, in order; n_texts > 0. VLLM_ERR_INVALID_ARGUMENT for an engine of another task. Freed with
 * vllm_embedding_result_free. */
VLLM_API vllm_status vllm_embed(vllm_engine* engine, const char* const* texts, int32_t n_texts,
                                vllm_embedding_result* out);
VLLM_API void vllm_embedding_result_free(vllm_embedding_result* out);

/* ---- Video ---- */

typedef struct vllm_video_model_params {
  const char* dit_path;       /* required, diffusion transformer: GGUF, safetensors or shard directory */
  const char* encoder_path;   /* text encoder; not needed with prompt_embeds_path */
  const char* tokenizer_path; /* tokenizer.json of the encoder */
  const char* video_vae_path;
  const char* video_vae_config_path;
  const char* audio_vae_path;
  const char* audio_vae_config_path;
  const char* prompt_embeds_path; /* little-endian f32 rows of the text width, used without an encoder */
  const char* partition;          /* which checkpoint this is: "fl2va" or "ref2va" */
  int32_t device;                 /* 0 CPU, 1 the accelerator of this build */
  int32_t dequant_bf16;           /* 1: widen quantised weights to bf16 */
  int32_t fp4_resident;           /* 1: keep NVFP4 weights packed on the device */
  const char* family;             /* NULL: from the files */
  const char* const* extra_keys;  /* n_extras settings of the family, none NULL, no key empty */
  const char* const* extra_values;
  int32_t n_extras;
} vllm_video_model_params;

typedef struct vllm_video_params {
  const char* prompt; /* used by an engine with a text encoder */
  int32_t width;      /* pixels, truncated to a multiple of 32; <= 0: by aspect */
  int32_t height;
  int32_t num_frames;            /* rounded up to 17 n + 5; <= 1: by task */
  int32_t steps;                 /* of denoising; <= 0: 50 */
  uint64_t seed;                 /* of the noise, read when has_seed */
  int32_t has_seed;              /* 0: the fixed default noise */
  const char* first_frame;       /* binary PPM of the output's size, becomes the first frame */
  const char* last_frame;        /* the same for the last frame */
  const char* ref_image;         /* PPM; the references exclude first_frame and last_frame */
  const char* ref_video;         /* directory of frame_%06d.ppm */
  const char* ref_audio;         /* 16-bit PCM WAV */
  float noise_aug;               /* strength of the given frames; <= 0: 1 */
  const char* output_dir;        /* required; created when missing */
  const char* const* extra_keys; /* as in vllm_video_model_params */
  const char* const* extra_values;
  int32_t n_extras;
} vllm_video_params;

typedef struct vllm_video_result {
  char* frame_dir;  /* holds frame_%06d.ppm, from 0 */
  char* audio_path; /* 16-bit PCM WAV */
  int32_t frame_count;
  int32_t width; /* pixels */
  int32_t height;
  int32_t fps;
  int32_t sample_rate; /* Hz */
  char** mux_argv;     /* ffmpeg command line that makes <output_dir>/video.mp4; mux_argv[mux_argc] is NULL */
  int32_t mux_argc;
} vllm_video_result;

typedef struct vllm_video_mux_params {
  const char* frames;      /* required: printf-style pattern of the frame files */
  const char* audio_path;  /* NULL: no sound */
  const char* output_path; /* required: .mp4 to write */
  int32_t fps;             /* <= 0: 24 */
  int32_t crf;             /* x264 quality; <= 0: 18 */
} vllm_video_mux_params;

/* The defaults are all zero. */
VLLM_API vllm_video_model_params vllm_video_model_params_default(void);
VLLM_API vllm_video_params vllm_video_params_default(void);
VLLM_API vllm_video_mux_params vllm_video_mux_params_default(void);

/* *out is freed with vllm_video_engine_free. A text model is VLLM_ERR_MODEL_LOAD. */
VLLM_API vllm_status vllm_video_engine_load(const vllm_video_model_params* params, vllm_video_engine** out);
VLLM_API void vllm_video_engine_free(vllm_video_engine* engine);

/* Name of the loaded family; lives as long as the engine. NULL for NULL. */
VLLM_API const char* vllm_video_engine_family(const vllm_video_engine* engine);

/* Renders frames and sound into output_dir; minutes to hours. One render at a time an engine. Starts no
 * process. Freed with vllm_video_result_free. */
VLLM_API vllm_status vllm_video_generate(vllm_video_engine* engine, const vllm_video_params* params,
                                         vllm_video_result* out);
VLLM_API void vllm_video_result_free(vllm_video_result* out);

/* Composes an ffmpeg command line that joins frames and sound; runs nothing. (*out_argv)[*out_argc] is NULL.
 * Freed with vllm_video_mux_argv_free. */
VLLM_API vllm_status vllm_video_mux_argv(const vllm_video_mux_params* params, char*** out_argv,
                                         int32_t* out_argc);
VLLM_API void vllm_video_mux_argv_free(char** argv, int32_t argc);

/* ---- Speech and music ---- */

typedef struct vllm_speech_model_params {
  const char* path;   /* required: directory of the checkpoint set */
  const char* family; /* NULL: from the files */
  int32_t device;     /* 0 CPU, 1 the accelerator of this build */
} vllm_speech_model_params;

/* A field that the family cannot honour is refused by name. */
typedef struct vllm_speech_params {
  const char* text;             /* words to speak */
  const char* language;         /* NULL: the family's own */
  const float* reference_audio; /* mono samples in [-1, 1) */
  int64_t n_reference_audio;
  int32_t reference_sample_rate; /* Hz */
  const char* lyrics;            /* words to sing, with [Verse] and [Chorus] tags */
  const char* description;       /* style of the music */
  double audio_duration_s;       /* seconds; <= 0: the family's own */
  int32_t num_inference_steps;   /* <= 0: the family's own */
  double guidance_scale;         /* read when has_guidance_scale */
  int32_t has_guidance_scale;
  int64_t seed;
} vllm_speech_params;

typedef struct vllm_speech_result {
  float* samples;      /* channels rows of n_samples values */
  int64_t n_samples;   /* a channel */
  int32_t sample_rate; /* Hz, the family's own */
  int32_t channels;
  char* wav; /* the same sound as a 16-bit RIFF/WAVE file of n_wav bytes */
  int64_t n_wav;
} vllm_speech_result;

/* The defaults are all zero. */
VLLM_API vllm_speech_model_params vllm_speech_model_params_default(void);
VLLM_API vllm_speech_params vllm_speech_params_default(void);

/* *out is freed with vllm_speech_engine_free. */
VLLM_API vllm_status vllm_speech_engine_load(const vllm_speech_model_params* params,
                                             vllm_speech_engine** out);
VLLM_API void vllm_speech_engine_free(vllm_speech_engine* engine);

/* Queries; NULL or 0 for NULL. The device is the one in use, the family's name lives as long as the engine.
 */
VLLM_API const char* vllm_speech_engine_family(const vllm_speech_engine* engine);
VLLM_API int32_t vllm_speech_engine_sample_rate(const vllm_speech_engine* engine);
VLLM_API int32_t vllm_speech_engine_requires_reference_audio(const vllm_speech_engine* engine);
VLLM_API int32_t vllm_speech_engine_device(const vllm_speech_engine* engine);

/* One at a time an engine. Freed with vllm_speech_result_free. */
VLLM_API vllm_status vllm_synthesize(vllm_speech_engine* engine, const vllm_speech_params* params,
                                     vllm_speech_result* out);
VLLM_API void vllm_speech_result_free(vllm_speech_result* out);

/* ---- The rest ---- */

VLLM_API void vllm_string_free(char* s);
VLLM_API void vllm_completion_free(vllm_completion* out);

/* Why the last status call of this thread failed: the function's name, a colon and a sentence; "" after a
 * success. A thread that has made no status call sees the newest message of the process. Never NULL; valid
 * until the thread's next call. */
VLLM_API const char* vllm_last_error(void);

/* MAJOR.MINOR.PATCH, with "+cuda" in a CUDA build. */
VLLM_API const char* vllm_version(void);

/* Runs an HTTP server on the arguments of a process, argv[0] included, and returns its exit code. 1 in a
 * build without one, with the reason on stderr and in the last error. */
VLLM_API int32_t vllm_server_main(int32_t argc, char** argv);

/* VLLM_ABI_VERSION of the library. */
VLLM_API int32_t vllm_abi_version(void);

#ifdef __cplusplus
}
#endif
#endif /* VLLM_H_ */

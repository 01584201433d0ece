/* A library with the calls that the servicer uses and no model behind them, so that the servicer can be tested alone.
 *
 * The words of a prompt come back one by one, each as a token, except for those that begin with '!':
 *   !delay=MS    pause before each token
 *   !fail=N      an engine error after N tokens
 *   !hang        no token until the request is cancelled
 *   !refuse      the request is refused at submission
 *   !request     the answer is the JSON of the request itself
 *   !size=N      the answer is N times the letter x, in one token
 *   !count=N     the answer is w0 w1 ... up to N words
 * In the chat form the last message counts as the prompt; a word ?w is a thought, and a word @f is a call of tool f.
 * A model whose path has "slow" in it takes two seconds to load, one with "broken" cannot be loaded.
 * FAKE_VLLM_ABI replaces the ABI version. FAKE_VLLM_LOG names a file that gets a line for every load and free of a
 * model, and for every submission, cancel and free of a request. */
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "vllm_ext.h"

enum { kVocabulary = 1000, kBegin = 256, kWeights = 8 << 20 };

struct vllm_engine {
  char *weights;
  char *path;
  atomic_int generated, prompted;
};

struct vllm_request {
  vllm_engine *engine;
  pthread_t thread;
  char *json, *prompt;
  vllm_token_callback callback;
  void *user_data;
  atomic_bool cancelled, done;
  int number, chat, logprobs, max_tokens, tokens, prompt_tokens;
};

static _Thread_local char last_error[512];
static atomic_int requests;

static vllm_status fail(vllm_status status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(last_error, sizeof last_error, format, arguments);
  va_end(arguments);
  return status;
}

static void note(const char *format, ...) {
  const char *path = getenv("FAKE_VLLM_LOG");
  FILE *file = path ? fopen(path, "a") : NULL;
  if (!file) return;
  char line[4096];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  fprintf(file, "%s\n", line);
  fclose(file);
}

static void pause_ms(int ms) {
  struct timespec time = {ms / 1000, (ms % 1000) * 1000000L};
  nanosleep(&time, NULL);
}

/* ---- Text that grows, and JSON in and out ---- */

typedef struct {
  char *data;
  size_t size, room;
} text;

static void put(text *t, const char *data, size_t size) {
  if (t->size + size + 1 > t->room) {
    t->room = (t->size + size + 1) * 2;
    t->data = realloc(t->data, t->room);
  }
  memcpy(t->data + t->size, data, size);
  t->size += size;
  t->data[t->size] = 0;
}

static void print(text *t, const char *format, ...) {
  char piece[512];
  va_list arguments;
  va_start(arguments, format);
  int size = vsnprintf(piece, sizeof piece, format, arguments);
  va_end(arguments);
  put(t, piece, size < (int)sizeof piece ? (size_t)size : sizeof piece - 1);
}

static void put_string(text *t, const char *s, size_t size) {
  put(t, "\"", 1);
  for (size_t i = 0; i < size;) {
    size_t run = i;
    while (run < size && s[run] != '"' && s[run] != '\\' && (unsigned char)s[run] >= 32) run++;
    put(t, s + i, run - i);
    if (run < size) print(t, "\\u%04x", (unsigned char)s[run]);
    i = run + 1;
  }
  put(t, "\"", 1);
}

static void put_character(text *t, unsigned code) {
  char bytes[4];
  size_t size = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  static const unsigned char marks[] = {0, 0, 0xC0, 0xE0, 0xF0};
  for (size_t i = size; i-- > 1; code >>= 6) bytes[i] = (char)(0x80 | (code & 0x3F));
  bytes[0] = (char)(size == 1 ? code : marks[size] | code);
  put(t, bytes, size);
}

/* The value behind the last (or first) "name": of a document as Python's json.dumps writes it. */
static const char *value_of(const char *json, const char *name, int last) {
  char key[64];
  int size = snprintf(key, sizeof key, "\"%s\": ", name);
  const char *found = NULL;
  for (const char *at = json; (at = strstr(at, key)); at += size) {
    found = at + size;
    if (!last) break;
  }
  return found;
}

static char *string_value(const char *at) {
  text t = {0};
  put(&t, "", 0);
  if (!at || *at++ != '"') return t.data;
  while (*at && *at != '"') {
    const char *end = at + strcspn(at, "\"\\");
    put(&t, at, (size_t)(end - at));
    at = end;
    if (*at != '\\') continue;
    char c = at[1];
    at += 2;
    if (c == 'u') {
      unsigned code = 0, low = 0;
      sscanf(at, "%4x", &code);
      at += 4;
      if (code >= 0xD800 && code < 0xDC00 && sscanf(at, "\\u%4x", &low) == 1) {
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        at += 6;
      }
      put_character(&t, code);
    } else {
      char plain = c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c == 'b' ? '\b' : c == 'f' ? '\f' : c;
      put(&t, &plain, 1);
    }
  }
  return t.data;
}

static int int_value(const char *json, const char *name) {
  const char *at = value_of(json, name, 0);
  return at ? (strncmp(at, "true", 4) == 0 ? 1 : atoi(at)) : 0;
}

/* ---- Requests ---- */

static void put_usage(text *t, const vllm_request *r) {
  print(t, ", \"usage\": {\"prompt_tokens\": %d, \"completion_tokens\": %d}", r->prompt_tokens, r->tokens);
  print(t, ", \"timings\": {\"queue_ms\": 0, \"prompt_ms\": %d, \"generation_ms\": %d}}", 3 * r->prompt_tokens,
        2 * (r->tokens - 1));
}

static bool send_token(vllm_request *r, const char *word, size_t size, int first) {
  if (atomic_load(&r->cancelled)) return false;
  r->tokens++;
  atomic_fetch_add(&r->engine->generated, 1);
  text spaced = {0}, t = {0};
  put(&spaced, " ", first ? 0 : 1);
  put(&spaced, word, size);
  print(&t, "{\"choices\": [{\"index\": 0, \"finish_reason\": null, \"%s\": ", r->chat ? "delta" : "text");
  if (!r->chat) {
    put_string(&t, spaced.data, spaced.size);
  } else if (word[0] == '?') {
    print(&t, "{\"reasoning\": ");
    put_string(&t, word + 1, size - 1);
    print(&t, "}");
  } else if (word[0] == '@') {
    print(&t, "{\"tool_calls\": [{\"index\": 0, \"id\": \"call_1\", \"type\": \"function\", \"function\": {\"name\": ");
    put_string(&t, word + 1, size - 1);
    print(&t, ", \"arguments\": \"{}\"}}]}");
  } else {
    print(&t, "{\"content\": ");
    put_string(&t, spaced.data, spaced.size);
    print(&t, "}");
  }
  if (r->logprobs) {
    print(&t, ", \"logprobs\": {\"content\": [{\"id\": %d, \"token\": ", r->tokens);
    put_string(&t, spaced.data, spaced.size);
    print(&t, ", \"bytes\": [], \"logprob\": -0.5, \"top_logprobs\": []}]}");
  }
  print(&t, "}]");
  put_usage(&t, r);
  bool more = r->callback(t.data, false, r->user_data);
  free(spaced.data);
  free(t.data);
  return more;
}

static void send_last(vllm_request *r, const char *json) {
  if (!atomic_load(&r->cancelled)) r->callback(json, true, r->user_data);
}

static void send_finish(vllm_request *r, const char *reason) {
  text t = {0};
  print(&t, "{\"choices\": [{\"index\": 0, \"%s\": %s, \"finish_reason\": \"%s\"}]", r->chat ? "delta" : "text",
        r->chat ? "{}" : "\"\"", reason);
  put_usage(&t, r);
  send_last(r, t.data);
  free(t.data);
}

static void answer(vllm_request *r) {
  int delay = 0, fails_after = -1, count = 0, plain = 0;
  char *rest = r->prompt, *word;
  while ((word = strsep(&rest, " "))) {
    if (*word == 0) continue;
    if (strcmp(word, "!hang") == 0) {
      while (!atomic_load(&r->cancelled)) pause_ms(2);
      return;
    } else if (strcmp(word, "!request") == 0) {
      send_token(r, r->json, strlen(r->json), 1);
    } else if (strncmp(word, "!size=", 6) == 0) {
      size_t size = (size_t)atol(word + 6);
      char *letters = malloc(size + 1);
      memset(letters, 'x', size);
      letters[size] = 0;
      send_token(r, letters, size, 1);
      free(letters);
    } else if (sscanf(word, "!delay=%d", &delay) == 1 || sscanf(word, "!fail=%d", &fails_after) == 1) {
      continue;
    } else if (sscanf(word, "!count=%d", &count) == 1) {
      for (int i = 0; i < count; i++) {
        char piece[16];
        pause_ms(delay);
        if (!send_token(r, piece, (size_t)snprintf(piece, sizeof piece, "w%d", i), i == 0)) return;
      }
    } else {
      if (fails_after >= 0 && r->tokens >= fails_after) break;
      if (r->max_tokens > 0 && r->tokens >= r->max_tokens) break;
      pause_ms(delay);
      if (!send_token(r, word, strlen(word), !plain)) return;
      plain = word[0] != '?';
    }
  }
  if (fails_after >= 0) {
    send_last(r, "{\"error\": {\"status\": 3, \"message\": \"the step failed at token five\"}}");
  } else {
    send_finish(r, r->max_tokens > 0 && r->tokens >= r->max_tokens ? "length" : "stop");
  }
}

static void *deliver(void *request) {
  vllm_request *r = request;
  answer(r);
  atomic_store(&r->done, true);
  return NULL;
}

vllm_status vllm_ext_submit(vllm_engine *engine, const char *json, vllm_token_callback callback, void *user_data,
                            vllm_request **out) {
  *out = NULL;
  const char *bias = value_of(json, "logit_bias", 0);
  if (bias && bias[1] == '"' && atoi(bias + 2) >= kVocabulary) {
    return fail(VLLM_ERR_INVALID_ARGUMENT, "vllm_ext_submit: logit_bias has token %d, the vocabulary has %d tokens",
                atoi(bias + 2), kVocabulary);
  }
  vllm_request *r = calloc(1, sizeof *r);
  r->chat = value_of(json, "messages", 0) != NULL;
  r->prompt = string_value(r->chat ? value_of(json, "content", 1) : value_of(json, "prompt", 0));
  if (strstr(r->prompt, "!refuse")) {
    free(r->prompt);
    free(r);
    return fail(VLLM_ERR_INVALID_ARGUMENT, "vllm_ext_submit: context_length_exceeded: 200 tokens, the context is 128");
  }
  r->engine = engine;
  r->json = strdup(json);
  r->callback = callback;
  r->user_data = user_data;
  r->logprobs = int_value(json, "logprobs");
  r->max_tokens = int_value(json, "max_tokens");
  r->number = atomic_fetch_add(&requests, 1) + 1;
  r->prompt_tokens = 1;
  for (const char *at = r->prompt; *at; at++) r->prompt_tokens += *at == ' ';
  atomic_fetch_add(&engine->prompted, r->prompt_tokens);
  note("submit %d", r->number);
  *out = r;
  pthread_create(&r->thread, NULL, deliver, r);
  return VLLM_OK;
}

vllm_status vllm_request_cancel(vllm_request *r) {
  if (!atomic_load(&r->done)) note("cancel %d", r->number);
  atomic_store(&r->cancelled, true);
  return VLLM_OK;
}

vllm_status vllm_request_wait(vllm_request *r) {
  while (!atomic_load(&r->done)) pause_ms(1);
  return VLLM_OK;
}

bool vllm_request_done(const vllm_request *r) { return atomic_load(&r->done); }

const char *vllm_request_error(const vllm_request *r) {
  (void)r;
  return "";
}

void vllm_request_free(vllm_request *r) {
  if (!r) return;
  atomic_store(&r->cancelled, true);
  pthread_join(r->thread, NULL);
  note("free %d", r->number);
  free(r->json);
  free(r->prompt);
  free(r);
}

/* ---- Models ---- */

static const char *or_empty(const char *s) { return s ? s : ""; }

vllm_status vllm_ext_load(const vllm_model_params *p, const char *settings, vllm_engine **out) {
  *out = NULL;
  text t = {0};
  print(&t, "load {\"block_size\": %d, \"num_blocks\": %d, \"max_model_len\": %d, \"max_num_seqs\": %d", p->block_size,
        p->num_blocks, p->max_model_len, p->max_num_seqs);
  print(&t, ", \"enable_prefix_caching\": %d, \"enable_jump_forward\": %d, \"max_num_batched_tokens\": %d",
        p->enable_prefix_caching, p->enable_jump_forward, p->max_num_batched_tokens);
  print(&t, ", \"gpu_memory_utilization\": %g, \"settings\": ", p->gpu_memory_utilization);
  put(&t, or_empty(settings), strlen(or_empty(settings)));
  const char *names[] = {"model_path", "tokenizer_config_path", "tool_parser", "reasoning_parser",
                         "speculative_config", "kv_transfer_config", "scheduling_policy"};
  const char *values[] = {p->model_path, p->tokenizer_config_path, p->tool_parser, p->reasoning_parser,
                          p->speculative_config, p->kv_transfer_config, p->scheduling_policy};
  for (int i = 0; i < 7; i++) {
    print(&t, ", \"%s\": ", names[i]);
    put_string(&t, or_empty(values[i]), strlen(or_empty(values[i])));
  }
  print(&t, "}");
  note("%s", t.data);
  free(t.data);
  if (strstr(p->model_path, "slow")) pause_ms(2000);
  if (strstr(p->model_path, "broken")) {
    return fail(VLLM_ERR_MODEL_LOAD, "vllm_ext_load: the tensor output.weight is missing in %s", p->model_path);
  }
  vllm_engine *engine = calloc(1, sizeof *engine);
  engine->weights = malloc(kWeights);
  memset(engine->weights, 1, kWeights);
  engine->path = strdup(p->model_path);
  *out = engine;
  return VLLM_OK;
}

void vllm_engine_free(vllm_engine *engine) {
  if (!engine) return;
  note("engine_free");
  free(engine->weights);
  free(engine->path);
  free(engine);
}

vllm_status vllm_ext_query(vllm_engine *engine, const char *json, char **out) {
  *out = NULL;
  char *query = string_value(value_of(json, "query", 0));
  text t = {0};
  if (strcmp(query, "tokenize") == 0) {
    char *s = string_value(value_of(json, "text", 0));
    print(&t, "{\"tokens\": [%d", kBegin);
    for (const char *at = s; *at; at++) print(&t, ", %d", (unsigned char)*at);
    print(&t, "]}");
    free(s);
  } else if (strcmp(query, "detokenize") == 0) {
    text s = {0};
    put(&s, "", 0);
    const char *at = value_of(json, "tokens", 0);
    while (at && *at && *at != ']') {
      char *end;
      int id = (int)strtol(at + 1, &end, 10);
      char byte = (char)id;
      if (end != at + 1 && id < kBegin) put(&s, &byte, 1);
      at = end == at + 1 ? at + 1 : end;
    }
    print(&t, "{\"text\": ");
    put_string(&t, s.data, s.size);
    print(&t, "}");
    free(s.data);
  } else if (strcmp(query, "metrics") == 0) {
    print(&t, "{\"generated_tokens\": %d, \"prompt_tokens\": %d, \"tokens_per_second\": 12.5}",
          atomic_load(&engine->generated), atomic_load(&engine->prompted));
  } else if (strcmp(query, "memory") == 0) {
    print(&t, "{\"device\": \"cpu (fake)\", \"weights\": %d, \"kv_cache\": 1024, \"workspace\": 512}", kWeights);
  } else if (strcmp(query, "info") == 0) {
    print(&t,
          "{\"model\": \"fake\", \"device\": \"cpu (fake, 2 threads)\", \"vocab_size\": %d, "
          "\"architecture\": \"fake\", \"formats\": \"F32 8.4 MB\", \"num_tensors\": 3, \"fingerprint\": \"ab\", "
          "\"max_model_len\": 4096, \"max_num_seqs\": 8, \"num_blocks\": 256, \"threads\": 2, "
          "\"chat_template\": \"<think>\"}",
          kVocabulary);
  } else if (strcmp(query, "plan") == 0) {
    print(&t,
          "{\"available\": 2000000000, \"budget\": 1800000000, \"weights\": %d, \"kv_cache\": 8192000, "
          "\"states\": 0, \"workspace\": 512, \"kv_bytes_per_token\": 1000.0, \"state_bytes_per_sequence\": 0, ",
          kWeights);
    print(&t,
          "\"model_context\": 32768, \"kv_tokens\": 8192, "
          "\"chosen\": {\"num_blocks\": \"from the 2.00 GB of free memory\"}, \"warnings\": []}");
  } else if (strcmp(query, "machine") == 0) {
    print(&t,
          "{\"processor\": \"Fake 1\", \"logical_cores\": 4, \"physical_cores\": 2, "
          "\"instruction_sets\": [\"baseline\"], \"instruction_set\": \"baseline\", "
          "\"memory_total\": 4000000000, \"memory_available\": 2000000000, ");
    print(&t,
          "\"devices\": [{\"name\": \"cpu\", \"available\": true}, {\"name\": \"cuda\", \"available\": false, "
          "\"reason\": \"this build has no CUDA device\"}]}");
  } else if (strcmp(query, "parsers") == 0) {
    print(&t,
          "{\"tool_parsers\": [{\"name\": \"hermes\", \"aliases\": [\"qwen3\"]}, {\"name\": \"none\", "
          "\"aliases\": []}], \"reasoning_parsers\": [{\"name\": \"deepseek_r1\", \"aliases\": []}], "
          "\"tool_parser\": \"none\", \"reasoning_parser\": \"none\"}");
  } else {
    free(query);
    return fail(VLLM_ERR_INVALID_ARGUMENT, "vllm_ext_query: unknown query");
  }
  free(query);
  *out = t.data;
  return VLLM_OK;
}

void vllm_string_free(char *s) { free(s); }

const char *vllm_last_error(void) { return last_error; }

const char *vllm_version(void) { return "0.0.0-fake"; }

int32_t vllm_abi_version(void) {
  const char *version = getenv("FAKE_VLLM_ABI");
  return version ? atoi(version) : VLLM_ABI_VERSION;
}

// Entry points of the text engine.
#include <algorithm>
#include <cstdlib>

#include "abi/guard.h"
#include "abi/handles.h"
#include "abi/settings.h"
#include "serve/completion.h"
#include "serve/json_fields.h"
#include "serve/query.h"
#include "vllm_ext.h"

namespace vllm::abi {
namespace {

void load(const vllm_model_params* params, const char* settings_json, bool with_settings, vllm_engine** out) {
  require(params, "params");
  require_text(params->model_path, "params->model_path");
  EngineConfig config = engine_config(*params);
  if (with_settings) apply_settings(settings_json != nullptr ? settings_json : "", config);
  auto handle = std::make_unique<vllm_engine>();
  handle->engine = Engine::load(config);
  handle->chat = std::make_unique<Chat>(*handle->engine, chat_settings(*params));
  *out = handle.release();
}

/// A request with everything but its prompt.
GenerationRequest request_with(vllm_engine* engine, const vllm_sampling_params& params) {
  GenerationRequest request;
  request.sampling = sampling_params(params);
  if (const auto spec = constraint_spec(params))
    request.constraint = engine->engine->constraints().make(*spec);
  return request;
}

GenerationRequest text_request(vllm_engine* engine, const char* prompt, const vllm_sampling_params* params) {
  require(engine, "engine");
  require(prompt, "prompt");
  require(params, "params");
  GenerationRequest request = request_with(engine, *params);
  request.prompt = engine->engine->encode_prompt(prompt);
  return request;
}

/// Everything a request generated.
struct Whole {
  std::string text;
  std::vector<int32_t> token_ids;
  Delta last;
};

Whole run(Engine& engine, GenerationRequest request) {
  Whole whole;
  const auto stream = engine.submit(std::move(request));
  deliver(engine, *stream, nullptr, [&](const Delta& delta) {
    if (delta.error) throw *delta.error;
    whole.text += delta.text;
    whole.token_ids.insert(whole.token_ids.end(), delta.token_ids.begin(), delta.token_ids.end());
    whole.last = delta;
    return true;
  });
  return whole;
}

void fill(const Whole& whole, vllm_completion* out) {
  out->text = new_string(whole.text);
  out->finish_reason = finish_reason_name(whole.last.finish);
  out->prompt_tokens = whole.last.prompt_tokens;
  out->completion_tokens = whole.last.completion_tokens;
}

Json request_object(const char* text) {
  Json request = parse_json(text, "request", Status::InvalidArgument);
  if (!request.is_object()) fail_argument("the request is %s, needed is an object", brief(request).c_str());
  return request;
}

bool is_chat(const Json& request) {
  const auto messages = request.find("messages");
  return messages != request.end() && !messages->is_null();
}

std::string error_chunk(const Error& error) {
  return dump_json(
      Json{{"error", {{"status", static_cast<int>(error.status())}, {"message", error.message()}}}});
}

/// Hands JSON chunks to a token callback.
class ChunkCallback {
 public:
  ChunkCallback(vllm_token_callback callback, void* user_data) : callback_(callback), user_data_(user_data) {}
  bool operator()(const Json& chunk, bool finished) const {
    return callback_(dump_json(chunk).c_str(), finished, user_data_);
  }
  /// The last call of a failed request.
  [[noreturn]] void fail(const Error& error) const {
    callback_(error_chunk(error).c_str(), true, user_data_);
    throw error;
  }

 private:
  vllm_token_callback callback_;
  void* user_data_;
};

}  // namespace
}  // namespace vllm::abi

using namespace vllm;
using namespace vllm::abi;

extern "C" {

vllm_model_params vllm_model_params_default(void) {
  vllm_model_params p = {};
  p.block_size = 32;
  p.max_num_seqs = 8;
  p.gpu_memory_utilization = 0.92;
  return p;
}

vllm_sampling_params vllm_sampling_params_default(void) {
  vllm_sampling_params p = {};
  p.temperature = 1.0f;
  p.top_p = 1.0f;
  p.max_tokens = 16;
  p.repetition_penalty = 1.0f;
  return p;
}

vllm_status vllm_engine_load(const vllm_model_params* params, vllm_engine** out) {
  return guarded(
      "vllm_engine_load",
      [&] {
        require(out, "out");
        *out = nullptr;
        load(params, nullptr, false, out);
      },
      Status::ModelLoad);
}

vllm_status vllm_ext_load(const vllm_model_params* params, const char* settings_json, vllm_engine** out) {
  return guarded(
      "vllm_ext_load",
      [&] {
        require(out, "out");
        *out = nullptr;
        load(params, settings_json, true, out);
      },
      Status::ModelLoad);
}

void vllm_engine_free(vllm_engine* engine) { delete engine; }

vllm_status vllm_complete(vllm_engine* engine, const char* prompt, const vllm_sampling_params* params,
                          vllm_completion* out) {
  return guarded("vllm_complete", [&] {
    require(out, "out");
    *out = {};
    GenerationRequest request = text_request(engine, prompt, params);
    fill(run(*engine->engine, std::move(request)), out);
  });
}

vllm_status vllm_complete_tokens(vllm_engine* engine, const int32_t* prompt_tokens, int32_t n_prompt_tokens,
                                 const vllm_sampling_params* params, int32_t* out_tokens,
                                 int32_t max_out_tokens, int32_t* n_out_tokens, vllm_completion* out) {
  return guarded("vllm_complete_tokens", [&] {
    if (out != nullptr) *out = {};
    require(n_out_tokens, "n_out_tokens");
    *n_out_tokens = 0;
    require(engine, "engine");
    require(prompt_tokens, "prompt_tokens");
    require(params, "params");
    if (n_prompt_tokens <= 0) fail_argument("n_prompt_tokens is %d, needed is at least 1", n_prompt_tokens);
    if (max_out_tokens < 0) fail_argument("max_out_tokens is %d, needed is at least 0", max_out_tokens);
    if (max_out_tokens > 0) require(out_tokens, "out_tokens");
    GenerationRequest request = request_with(engine, *params);
    request.prompt.assign(prompt_tokens, prompt_tokens + n_prompt_tokens);
    const Whole whole = run(*engine->engine, std::move(request));
    if (out != nullptr) fill(whole, out);
    *n_out_tokens =
        static_cast<int32_t>(std::min<size_t>(whole.token_ids.size(), static_cast<size_t>(max_out_tokens)));
    std::copy_n(whole.token_ids.begin(), *n_out_tokens, out_tokens);
  });
}

vllm_status vllm_complete_stream(vllm_engine* engine, const char* prompt, const vllm_sampling_params* params,
                                 vllm_token_callback cb, void* user_data) {
  return guarded("vllm_complete_stream", [&] {
    GenerationRequest request = text_request(engine, prompt, params);
    require(reinterpret_cast<const void*>(cb), "cb");
    const auto stream = engine->engine->submit(std::move(request));
    deliver(*engine->engine, *stream, nullptr, text_emitter(cb, user_data));
  });
}

vllm_status vllm_request_submit(vllm_engine* engine, const char* prompt, const vllm_sampling_params* params,
                                vllm_token_callback cb, void* user_data, vllm_request** out) {
  return guarded("vllm_request_submit", [&] {
    require(out, "out");
    *out = nullptr;
    GenerationRequest request = text_request(engine, prompt, params);
    require(reinterpret_cast<const void*>(cb), "cb");
    *out = new vllm_request(*engine->engine, engine->engine->submit(std::move(request)),
                            text_emitter(cb, user_data));
  });
}

vllm_status vllm_ext_submit(vllm_engine* engine, const char* request_json, vllm_token_callback callback,
                            void* user_data, vllm_request** out_request) {
  return guarded("vllm_ext_submit", [&] {
    require(out_request, "out_request");
    *out_request = nullptr;
    require(engine, "engine");
    require(request_json, "request_json");
    require(reinterpret_cast<const void*>(callback), "callback");
    Engine& e = *engine->engine;
    const ChunkCallback send(callback, user_data);
    const Json json = request_object(request_json);
    if (!is_chat(json)) {
      const auto emit = [&tokenizer = e.tokenizer(), send](const Delta& delta) {
        if (delta.error) send.fail(*delta.error);
        return send(completion_chunk(delta, tokenizer), delta.finished());
      };
      *out_request = new vllm_request(e, e.submit(parse_completion_request(json, e)), emit);
      return;
    }
    const auto call = std::make_shared<ChatCall>(engine->chat->prepare(json, true));
    const auto emit = [&chat = *engine->chat, call, send](const Delta& delta) {
      if (delta.error) send.fail(*delta.error);
      const std::vector<Json> chunks = chat.chunks(*call, delta, true);
      for (size_t i = 0; i < chunks.size(); ++i)
        if (!send(chunks[i], delta.finished() && i + 1 == chunks.size())) return false;
      return true;
    };
    *out_request = new vllm_request(e, e.submit(std::move(call->generation)), emit);
  });
}

vllm_status vllm_ext_query(vllm_engine* engine, const char* request_json, char** out_json) {
  return guarded("vllm_ext_query", [&] {
    require(out_json, "out_json");
    *out_json = nullptr;
    require(request_json, "request_json");
    *out_json = new_string(engine == nullptr ? answer_machine_query(request_json)
                                             : answer_query(*engine->engine, *engine->chat, request_json));
  });
}

vllm_status vllm_request_cancel(vllm_request* request) {
  return guarded("vllm_request_cancel", [&] {
    require(request, "request");
    request->cancel();
  });
}

vllm_status vllm_request_wait(vllm_request* request) {
  return guarded("vllm_request_wait", [&] {
    require(request, "request");
    request->wait();
  });
}

bool vllm_request_done(const vllm_request* request) { return request != nullptr && request->done(); }

const char* vllm_request_error(const vllm_request* request) {
  return request != nullptr ? request->error() : "";
}

void vllm_request_free(vllm_request* request) {
  if (request == nullptr) return;
  if (request->in_own_callback()) {
    set_last_error("vllm_request_free", "a request cannot be freed from its own callback");
    return;
  }
  delete request;
}

vllm_status vllm_chat(vllm_engine* engine, const char* request_json, char** out_response_json) {
  return guarded("vllm_chat", [&] {
    require(out_response_json, "out_response_json");
    *out_response_json = nullptr;
    require(engine, "engine");
    require(request_json, "request_json");
    Chat& chat = *engine->chat;
    ChatCall call = chat.prepare(request_object(request_json), false);
    const auto stream = engine->engine->submit(std::move(call.generation));
    ChatAnswer answer;
    deliver(*engine->engine, *stream, nullptr, [&](const Delta& delta) {
      if (delta.error) throw *delta.error;
      chat.collect(call, delta, answer);
      return true;
    });
    *out_response_json = new_string(dump_json(chat.response(call, answer)));
  });
}

vllm_status vllm_chat_stream(vllm_engine* engine, const char* request_json, vllm_token_callback cb,
                             void* user_data) {
  return guarded("vllm_chat_stream", [&] {
    require(engine, "engine");
    require(request_json, "request_json");
    require(reinterpret_cast<const void*>(cb), "cb");
    Chat& chat = *engine->chat;
    const ChunkCallback send(cb, user_data);
    Json json = request_object(request_json);
    ChatCall call = chat.prepare(json, false);
    const auto stream = engine->engine->submit(std::move(call.generation));
    bool stopped = false;
    try {
      stopped = !call.continuous_usage && !send(chat.role_chunk(call), false);
    } catch (...) {
      engine->engine->cancel(*stream);
      throw;
    }
    if (stopped) engine->engine->cancel(*stream);
    deliver(*engine->engine, *stream, nullptr, [&](const Delta& delta) {
      if (stopped) return false;
      if (delta.error) throw *delta.error;
      for (const Json& chunk : chat.chunks(call, delta, call.continuous_usage)) {
        stopped = !send(chunk, false);
        if (stopped) return false;
      }
      if (!delta.finished()) return true;
      if (call.include_usage) stopped = !send(chat.usage_chunk(call, delta), false);
      if (!stopped) cb("", true, user_data);
      return true;
    });
  });
}

}  // extern "C"

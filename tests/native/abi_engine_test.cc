// The text calls of the ABI, through the exported functions alone.
#include <doctest/doctest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "tiny_models.h"
#include "vllm_ext.h"

namespace {

struct Handle {
  vllm_engine* engine = nullptr;
  explicit Handle(const char* model = "llama",
                  const char* settings = R"({"threads": 2, "kv_cache_dtype": "f32"})", int context = 256) {
    const std::string path = tiny::folder(model);
    vllm_model_params params = vllm_model_params_default();
    params.model_path = path.c_str();
    params.block_size = 16;
    params.num_blocks = std::max(64, context / params.block_size);
    params.max_model_len = context;
    REQUIRE(vllm_ext_load(&params, settings, &engine) == VLLM_OK);
  }
  ~Handle() { vllm_engine_free(engine); }
};

vllm_sampling_params greedy(int max_tokens) {
  vllm_sampling_params p = vllm_sampling_params_default();
  p.temperature = 0;
  p.max_tokens = max_tokens;
  p.ignore_eos = 1;
  return p;
}

bool last_error_has(const char* part) { return std::strstr(vllm_last_error(), part) != nullptr; }

struct Collected {
  std::string text;
  std::atomic<int> calls{0};
  int finished = 0;
  int stop_after = -1, throw_after = -1;
  bool last_was_finished = false;
};

bool collect(const char* delta, bool finished, void* user_data) {
  auto* c = static_cast<Collected*>(user_data);
  c->text += delta;
  c->finished += finished;
  c->last_was_finished = finished;
  ++c->calls;
  if (c->calls == c->throw_after) throw std::runtime_error("thrown by the callback");
  return c->calls != c->stop_after;
}

const char* const kPrompt = "The quick brown fox";

std::string complete(vllm_engine* engine, const vllm_sampling_params& params) {
  vllm_completion out;
  REQUIRE(vllm_complete(engine, kPrompt, &params, &out) == VLLM_OK);
  std::string text = out.text;
  vllm_completion_free(&out);
  vllm_completion_free(&out);
  CHECK(out.text == nullptr);
  return text;
}

vllm::Json query(vllm_engine* engine, const char* text) {
  char* out = nullptr;
  REQUIRE(vllm_ext_query(engine, text, &out) == VLLM_OK);
  vllm::Json json = vllm::parse_json(out, "answer", vllm::Status::Unknown);
  vllm_string_free(out);
  return json;
}

}  // namespace

TEST_CASE("ABI defaults are those of version 21") {
  const vllm_model_params m = vllm_model_params_default();
  CHECK(m.block_size == 32);
  CHECK(m.num_blocks == 0);
  CHECK(m.max_num_seqs == 8);
  CHECK(m.gpu_memory_utilization == 0.92);
  CHECK(m.model_path == nullptr);
  CHECK(m.offload_config == nullptr);
  const vllm_sampling_params s = vllm_sampling_params_default();
  CHECK(s.temperature == 1.0f);
  CHECK(s.top_p == 1.0f);
  CHECK(s.max_tokens == 16);
  CHECK(s.repetition_penalty == 1.0f);
  CHECK((s.logits_processor == nullptr));
}

TEST_CASE("ABI every NULL is an INVALID_ARGUMENT that names it, and results are zeroed first") {
  const Handle h;
  const vllm_sampling_params p = greedy(4);
  vllm_completion out;
  std::memset(&out, 0x5a, sizeof out);
  CHECK(vllm_complete(nullptr, kPrompt, &p, &out) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(out.text == nullptr);
  CHECK(last_error_has("vllm_complete: "));
  CHECK(vllm_complete(h.engine, nullptr, &p, &out) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(last_error_has("prompt"));
  CHECK(vllm_complete(h.engine, kPrompt, nullptr, &out) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(vllm_complete(h.engine, kPrompt, &p, nullptr) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(vllm_complete_stream(h.engine, kPrompt, &p, nullptr, nullptr) == VLLM_ERR_INVALID_ARGUMENT);
  vllm_request* request = reinterpret_cast<vllm_request*>(8);
  CHECK(vllm_request_submit(h.engine, kPrompt, &p, nullptr, nullptr, &request) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(request == nullptr);
  CHECK(vllm_request_submit(h.engine, kPrompt, &p, collect, nullptr, nullptr) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(vllm_request_cancel(nullptr) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(vllm_request_wait(nullptr) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK_FALSE(vllm_request_done(nullptr));
  CHECK(std::string(vllm_request_error(nullptr)).empty());
  vllm_request_free(nullptr);
  vllm_engine_free(nullptr);
  int32_t n = 7;
  const int32_t ids[] = {5, 6};
  CHECK(vllm_complete_tokens(h.engine, nullptr, 2, &p, nullptr, 0, &n, nullptr) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(n == 0);
  CHECK(vllm_complete_tokens(h.engine, ids, 0, &p, nullptr, 0, &n, nullptr) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(vllm_complete_tokens(h.engine, ids, 2, &p, nullptr, 3, &n, nullptr) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(vllm_complete_tokens(h.engine, ids, 2, &p, nullptr, -1, &n, nullptr) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(vllm_complete_tokens(h.engine, ids, 2, &p, nullptr, 0, nullptr, nullptr) ==
        VLLM_ERR_INVALID_ARGUMENT);
  char* json = reinterpret_cast<char*>(8);
  CHECK(vllm_ext_query(nullptr, "{}", &json) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(json == nullptr);
  CHECK(vllm_chat(h.engine, "{}", &json) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(vllm_chat_stream(h.engine, "{}", collect, nullptr) == VLLM_ERR_INVALID_ARGUMENT);
  vllm_engine* engine = reinterpret_cast<vllm_engine*>(8);
  CHECK(vllm_engine_load(nullptr, &engine) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(engine == nullptr);
}

TEST_CASE("ABI LOAD-02 load reports the caller's errors and absent devices before it opens a file") {
  vllm_engine* engine = nullptr;
  const auto load = [&](const auto& edit) {
    vllm_model_params params = vllm_model_params_default();
    params.model_path = "/nowhere/at/all";
    edit(params);
    const vllm_status status = vllm_engine_load(&params, &engine);
    CHECK(engine == nullptr);
    CHECK_FALSE(std::string(vllm_last_error()).empty());
    return status;
  };
  CHECK(load([](auto&) {}) == VLLM_ERR_MODEL_LOAD);
  CHECK(last_error_has("/nowhere/at/all"));
  CHECK(load([](auto& p) { p.scheduling_policy = "lifo"; }) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(last_error_has("lifo"));
  CHECK(load([](auto& p) { p.speculative_config = "{"; }) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(load([](auto& p) { p.speculative_config = R"({"method": "telepathy"})"; }) ==
        VLLM_ERR_INVALID_ARGUMENT);
  CHECK(last_error_has("telepathy"));
  CHECK(load([](auto& p) { p.speculative_config = R"({"method": "ngram"})"; }) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(load([](auto& p) { p.speculative_config = R"({"method": "ngram", "num_speculative_tokens": 3})"; }) ==
        VLLM_ERR_MODEL_LOAD);
  CHECK(last_error_has("not in this build"));
  CHECK(load([](auto& p) {
          p.speculative_config = R"({"method": "ngram", "num_speculative_tokens": 3, "x": 1})";
        }) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(load([](auto& p) { p.kv_transfer_config = R"({"kv_connector": "LMCacheConnector"})"; }) ==
        VLLM_ERR_INVALID_ARGUMENT);
  CHECK(load([](auto& p) { p.kv_transfer_config = R"({"kv_connector": "Other", "kv_role": "kv_both"})"; }) ==
        VLLM_ERR_INVALID_ARGUMENT);
  CHECK(load([](auto& p) { p.offload_config = R"({"uva": {"cpu_offload_gb": -1}})"; }) ==
        VLLM_ERR_INVALID_ARGUMENT);
  CHECK(load([](auto& p) { p.offload_config = R"({"uva": {"cpu_offload_gb": 0}})"; }) == VLLM_ERR_MODEL_LOAD);
  CHECK(load([](auto& p) { p.limit_mm_per_prompt = R"({"image": {"size": 3}})"; }) ==
        VLLM_ERR_INVALID_ARGUMENT);
  CHECK(load([](auto& p) { p.limit_mm_per_prompt = R"({"image": 0, "video": {"count": 1}})"; }) ==
        VLLM_ERR_MODEL_LOAD);
  CHECK(load([](auto& p) { p.enable_prefix_caching = 3; }) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(load([](auto& p) { p.enable_jump_forward = -1; }) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(load([](auto& p) { p.device = 3; }) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(load([](auto& p) { p.device = 2; }) == VLLM_ERR_MODEL_LOAD);
  CHECK(last_error_has("the device CUDA is not in this build, needed is auto or CPU"));
  CHECK(load([](auto& p) { p.gpu_memory_utilization = 1.5; }) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(last_error_has("gpu_memory_utilization is 1.5"));
  CHECK(load([](auto& p) { p.gpu_memory_utilization = std::nan(""); }) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(load([](auto& p) { p.gpu_memory_utilization = 0; }) == VLLM_ERR_MODEL_LOAD);
  CHECK(load([](auto& p) { p.block_size = 20; }) == VLLM_ERR_MODEL_LOAD);
  const std::string no_name(5000, 'p');  // longer than any file's
  CHECK(load([&](auto& p) { p.tokenizer_config_path = no_name.c_str(); }) == VLLM_ERR_MODEL_LOAD);
  CHECK(last_error_has("tokenizer_config_path: there is no file"));

  vllm_model_params params = vllm_model_params_default();
  params.model_path = "/nowhere/at/all";
  for (const char* settings :
       {"[]", R"({"thread": 2})", R"({"threads": -1})", R"({"kv_cache_dtype": "int3"})", "{"}) {
    CAPTURE(settings);
    CHECK(vllm_ext_load(&params, settings, &engine) == VLLM_ERR_INVALID_ARGUMENT);
  }
  CHECK(vllm_ext_load(&params, nullptr, &engine) == VLLM_ERR_MODEL_LOAD);
  params.device = 2;
  CHECK(vllm_ext_load(&params, nullptr, &engine) == VLLM_ERR_MODEL_LOAD);
  CHECK(last_error_has("the device CUDA is not in this build"));
  CHECK(vllm_ext_load(&params, R"({"device": "cpu"})", &engine) == VLLM_ERR_MODEL_LOAD);
  CHECK(last_error_has("/nowhere/at/all"));
}

TEST_CASE("ABI a KV cache of every format answers and takes the bytes it should") {
  // Of a head of 16 values: q8_0 pads them to 32 and adds a scale of two bytes.
  for (const auto& [name, head_bytes] :
       {std::pair{"f32", 64}, std::pair{"bf16", 32}, std::pair{"auto", 32}, std::pair{"q8_0", 34}}) {
    CAPTURE(name);
    const Handle h("llama", vllm::format(R"({"kv_cache_dtype": "%s"})", name).c_str());
    CHECK_FALSE(complete(h.engine, greedy(8)).empty());
    const int tokens = 64 * 16, layers = 3;
    CHECK(query(h.engine, R"({"query": "memory"})")["kv_cache"] == tokens * layers * 2 * head_bytes);
    const std::string shown = std::string(name) == "auto" ? "bf16" : name;
    CHECK(query(h.engine, R"({"query": "info"})")["kv_cache_dtype"] == shown);
  }
}

TEST_CASE("ABI streamed deltas join to the blocking text") {
  const Handle h;
  const vllm_sampling_params p = greedy(30);
  const std::string whole = complete(h.engine, p);
  Collected c;
  REQUIRE(vllm_complete_stream(h.engine, kPrompt, &p, collect, &c) == VLLM_OK);
  CHECK(c.text == whole);
  CHECK(c.finished == 1);
  CHECK(c.last_was_finished);
}

TEST_CASE("ABI-01 a callback that stops or throws leaves the engine usable") {
  const Handle h;
  vllm_sampling_params p =
      greedy(30);  // sampled: the greedy text of this model is mostly tokens that show nothing
  p.temperature = 1;
  p.seed = 7;
  p.has_seed = 1;
  const vllm_sampling_params plain = p;
  const std::string whole = complete(h.engine, plain);
  // The engine waits for the callback, so that deltas are not merged; not for ever, since some tokens show no
  // text.
  p.logits_processor = [](const int32_t*, int32_t n, float*, int32_t, void* user_data) {
    for (int i = 0; i < 100 && static_cast<Collected*>(user_data)->calls < n; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  for (int at = 1; at <= 4; ++at) {
    Collected stop;
    stop.stop_after = at;
    p.logits_processor_user_data = &stop;
    CHECK(vllm_complete_stream(h.engine, kPrompt, &p, collect, &stop) == VLLM_OK);
    CHECK(stop.calls == at);
    CHECK(stop.finished == 0);
    Collected thrown;
    thrown.throw_after = at;
    p.logits_processor_user_data = &thrown;
    CHECK(vllm_complete_stream(h.engine, kPrompt, &p, collect, &thrown) == VLLM_ERR_RUNTIME);
    CHECK(last_error_has("thrown by the callback"));
    CHECK(complete(h.engine, plain) == whole);
  }
  const vllm::Json metrics = query(h.engine, R"({"query": "metrics"})");
  CHECK(metrics["running"] == 0);
  CHECK(metrics["kv_blocks_free"] == metrics["kv_blocks_total"]);
}

TEST_CASE("ABI requests run at once, can be cancelled twice and report their callback's error") {
  const Handle h;
  const vllm_sampling_params p = greedy(60);
  const std::string whole = complete(h.engine, p);
  Collected a, b, cancelled, thrown;
  thrown.throw_after = 1;
  vllm_request *ra, *rb, *rc, *rt;
  REQUIRE(vllm_request_submit(h.engine, kPrompt, &p, collect, &a, &ra) == VLLM_OK);
  REQUIRE(vllm_request_submit(h.engine, kPrompt, &p, collect, &b, &rb) == VLLM_OK);
  REQUIRE(vllm_request_submit(h.engine, kPrompt, &p, collect, &cancelled, &rc) == VLLM_OK);
  REQUIRE(vllm_request_submit(h.engine, kPrompt, &p, collect, &thrown, &rt) == VLLM_OK);
  CHECK(vllm_request_cancel(rc) == VLLM_OK);
  CHECK(vllm_request_cancel(rc) == VLLM_OK);
  CHECK(vllm_request_wait(ra) == VLLM_OK);
  CHECK(vllm_request_wait(rb) == VLLM_OK);
  CHECK(vllm_request_wait(rc) == VLLM_OK);
  CHECK(vllm_request_wait(rt) == VLLM_ERR_RUNTIME);
  CHECK(last_error_has("thrown by the callback"));
  CHECK(std::string(vllm_request_error(rt)).find("thrown by the callback") != std::string::npos);
  CHECK(vllm_request_done(ra));
  CHECK(a.text == whole);
  CHECK(b.text == whole);
  CHECK(cancelled.finished == 0);
  for (vllm_request* r : {ra, rb, rc, rt}) vllm_request_free(r);
  CHECK(complete(h.engine, p) == whole);
}

TEST_CASE("ABI a request cannot be waited for or freed from its own callback") {
  const Handle h;
  struct Context {
    std::atomic<vllm_request*> request{nullptr};
    vllm_status waited = VLLM_OK;
    std::string freed;
  } context;
  const auto callback = [](const char*, bool, void* user_data) {
    auto* c = static_cast<Context*>(user_data);
    while (c->request.load() == nullptr) std::this_thread::yield();
    c->waited = vllm_request_wait(c->request);
    vllm_request_free(c->request);
    c->freed = vllm_last_error();
    return true;
  };
  const vllm_sampling_params p = greedy(3);
  vllm_request* request = nullptr;
  REQUIRE(vllm_request_submit(h.engine, kPrompt, &p, callback, &context, &request) == VLLM_OK);
  context.request = request;
  CHECK(vllm_request_wait(request) == VLLM_OK);
  CHECK(context.waited == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(context.freed.find("own callback") != std::string::npos);
  vllm_request_free(request);
}

TEST_CASE("ABI complete_tokens reports as many ids as fit and generates all the same") {
  const Handle h;
  const vllm_sampling_params p = greedy(12);
  const int32_t prompt[] = {40, 50, 60};
  int32_t all[12], few[4], n = 0;
  vllm_completion out;
  REQUIRE(vllm_complete_tokens(h.engine, prompt, 3, &p, all, 12, &n, &out) == VLLM_OK);
  CHECK(n == 12);
  CHECK(out.completion_tokens == 12);
  CHECK(out.prompt_tokens == 3);
  CHECK(std::string(out.finish_reason) == "length");
  const std::string text = out.text;
  vllm_completion_free(&out);
  REQUIRE(vllm_complete_tokens(h.engine, prompt, 3, &p, few, 4, &n, &out) == VLLM_OK);
  CHECK(n == 4);
  CHECK(std::equal(few, few + 4, all));
  CHECK(out.text == text);
  vllm_completion_free(&out);
  const int32_t outside[] = {40, 99999};
  CHECK(vllm_complete_tokens(h.engine, outside, 2, &p, nullptr, 0, &n, nullptr) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(last_error_has("99999"));
}

TEST_CASE("ABI wrong sampling values and constraints are refused by name; the engine goes on") {
  const Handle h;
  vllm_completion out;
  const auto status = [&](const auto& edit) {
    vllm_sampling_params p = greedy(4);
    edit(p);
    return vllm_complete(h.engine, kPrompt, &p, &out);
  };
  const char* const choices[] = {"a"};
  const char* const empty_stop[] = {""};
  CHECK(status([](auto& p) { p.temperature = -1; }) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(last_error_has("temperature"));
  CHECK(status([](auto& p) { p.top_p = 0; }) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(status([](auto& p) { p.top_k = -2; }) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(status([](auto& p) { p.repetition_penalty = 0; }) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(status([&](auto& p) {
          p.stop = empty_stop;
          p.n_stop = 1;
        }) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(status([](auto& p) { p.structured_regex = "a("; }) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(status([&](auto& p) {
          p.structured_choice = choices;
          p.n_structured_choice = 1;
          p.structured_grammar = "root ::= \"a\"";
        }) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(last_error_has("at most one"));
  CHECK(status([](auto&) {}) == VLLM_OK);
  vllm_completion_free(&out);
}

TEST_CASE("ABI a logits processor edits the row before the choice") {
  const Handle h;
  struct Seen {
    std::vector<int32_t> counts;
  } seen;
  vllm_sampling_params p = greedy(5);
  p.logits_processor = [](const int32_t*, int32_t n, float* logits, int32_t vocab, void* user_data) {
    static_cast<Seen*>(user_data)->counts.push_back(n);
    for (int32_t i = 0; i < vocab; ++i) logits[i] = i == 77 ? 1.0f : 0.0f;
  };
  p.logits_processor_user_data = &seen;
  int32_t ids[5], n = 0;
  const int32_t prompt[] = {40};
  REQUIRE(vllm_complete_tokens(h.engine, prompt, 1, &p, ids, 5, &n, nullptr) == VLLM_OK);
  CHECK(n == 5);
  for (int32_t id : ids) CHECK(id == 77);
  CHECK(seen.counts == std::vector<int32_t>{0, 1, 2, 3, 4});
}

TEST_CASE(
    "RPC-07 RPC-08 extension requests: one JSON a call, totals at the end, text equal to the struct call") {
  const Handle h;
  const std::string whole = complete(h.engine, greedy(20));
  struct Chunks {
    std::vector<vllm::Json> all;
    int finished = 0;
  } chunks;
  const auto callback = [](const char* delta, bool finished, void* user_data) {
    auto* c = static_cast<Chunks*>(user_data);
    c->all.push_back(vllm::parse_json(delta, "chunk", vllm::Status::Unknown));
    c->finished += finished;
    return true;
  };
  const std::string request =
      std::string(R"({"prompt": ")") + kPrompt +
      R"(", "temperature": 0, "max_tokens": 20, "ignore_eos": true, "logprobs": 2, "seed": null})";
  vllm_request* handle = nullptr;
  REQUIRE(vllm_ext_submit(h.engine, request.c_str(), callback, &chunks, &handle) == VLLM_OK);
  CHECK(vllm_request_wait(handle) == VLLM_OK);
  vllm_request_free(handle);
  REQUIRE_FALSE(chunks.all.empty());
  CHECK(chunks.finished == 1);
  std::string text;
  size_t ids = 0, logprobs = 0;
  for (const auto& chunk : chunks.all) {
    const auto& choice = chunk["choices"][0];
    text += choice["text"].get<std::string>();
    ids += choice["token_ids"].size();
    if (!choice["logprobs"].is_null()) logprobs += choice["logprobs"]["content"].size();
  }
  CHECK(text == whole);
  CHECK(ids == 20);
  CHECK(logprobs == 20);
  const auto& last = chunks.all.back();
  CHECK(last["choices"][0]["finish_reason"] == "length");
  CHECK(last["usage"]["completion_tokens"] == 20);
  CHECK(last["timings"]["prompt_ms"].get<double>() > 0);
  CHECK(last["timings"]["generation_ms"].get<double>() > 0);
}

TEST_CASE("RPC-10 what was generated before a failure arrives before the failure") {
  const Handle h;
  const std::string whole = complete(h.engine, greedy(5));
  vllm_sampling_params p = greedy(20);
  p.logits_processor = [](const int32_t*, int32_t n, float* logits, int32_t, void*) {
    if (n == 5) logits[3] = NAN;
  };
  for (int round = 0; round < 5; ++round) {
    Collected c;
    CHECK(vllm_complete_stream(h.engine, kPrompt, &p, collect, &c) == VLLM_ERR_RUNTIME);
    CHECK(c.text == whole);
    CHECK(c.finished == 0);
  }
}

TEST_CASE("extension requests that cannot be served are refused at once, by name") {
  const Handle h;
  const auto refused = [&](const char* request, const char* part) {
    vllm_request* handle = nullptr;
    CHECK(vllm_ext_submit(h.engine, request, collect, nullptr, &handle) == VLLM_ERR_INVALID_ARGUMENT);
    CHECK(handle == nullptr);
    CHECK_MESSAGE(last_error_has(part), request, " gave ", vllm_last_error());
  };
  refused("", "request");
  refused("[]", "object");
  refused("{}", "prompt");
  refused(R"({"prompt": 5})", "prompt");
  refused(R"({"prompt": ""})", "no tokens");
  refused(R"({"prompt": [1, -2]})", "prompt");
  refused(R"({"prompt": [1, 300000]})", "300000");
  refused(R"({"prompt": "a", "temprature": 1})", "temprature");
  refused(R"({"prompt": "a", "temperature": "hot"})", "temperature");
  refused(R"({"prompt": "a", "max_tokens": 1.5})", "max_tokens");
  refused(R"({"prompt": "a", "logit_bias": {"x": 1}})", "'x'");
  refused(R"({"prompt": "a", "logit_bias": {"5": "big"}})", "logit_bias");
  refused(R"({"prompt": "a", "logit_bias": {"99999": 1}})", "99999");
  refused(R"({"prompt": "a", "stop": [""]})", "stop");
  refused(R"({"prompt": "a", "logprobs": 5000})", "logprobs");
  refused(R"({"prompt": "a", "grammar": "root ::= other"})", "other");
  refused(R"({"prompt": "a", "grammar": "root ::= \"a\"", "regex": "b"})", "two structured constraints");
  refused(R"({"prompt": "a", "choice": []})", "choice");
  refused(R"({"messages": []})", "messages is empty");
  refused(R"({"messages": [{"role": "user", "content": "a"}], "temprature": 1})", "temprature");
  const std::string name(100000, 'n');
  for (const char* part :
       {R"({"prompt": "a", "@": 1})", R"({"messages": [{"role": "user", "content": "a"}], "@": 1})",
        R"({"prompt": "a", "logit_bias": {"@": 1}})", R"({"prompt": "a", "structured_outputs": {"@": 1}})",
        R"({"prompt": "a", "response_format": {"type": "@"}})",
        R"({"messages": [{"role": "user", "content": [{"type": "@"}]}]})",
        R"({"messages": [{"role": "user", "content": "a"}],
                               "tools": [{"type": "function", "function": {"name": "f"}}],
                               "tool_choice": {"type": "function", "function": {"name": "@"}}})"}) {
    std::string request = part;
    request.replace(request.find('@'), 1, name);
    refused(request.c_str(), "nnn...'");
    CHECK(std::strlen(vllm_last_error()) < 400);
  }
  const std::string deep = std::string(R"({"prompt": )") + std::string(60000, '[') + "}";
  refused(deep.c_str(), "request");
}

TEST_CASE("RPC-02 a request whose thread cannot be started is refused and does not run on") {
  const Handle h("llama", R"({"threads": 2, "kv_cache_dtype": "f32"})", 65536);
  vllm_request* request = nullptr;
  Collected c;
  // A stack that the address space has no room for.
  pthread_attr_t kept, attributes;
  REQUIRE(pthread_getattr_default_np(&kept) == 0);
  REQUIRE(pthread_getattr_default_np(&attributes) == 0);
  REQUIRE(pthread_attr_setstacksize(&attributes, size_t{1} << 62) == 0);
  REQUIRE(pthread_setattr_default_np(&attributes) == 0);
  const vllm_sampling_params p = greedy(0);
  CHECK(vllm_request_submit(h.engine, kPrompt, &p, collect, &c, &request) != VLLM_OK);
  pthread_setattr_default_np(&kept);
  CHECK(request == nullptr);
  CHECK(c.calls == 0);
  vllm::Json metrics;
  do metrics = query(h.engine, R"({"query": "metrics"})");
  while (metrics["requests_finished"] == 0);
  CHECK(metrics["generated_tokens"].get<int>() < 60000);  // the context has room for more
  CHECK_FALSE(complete(h.engine, greedy(3)).empty());
}

TEST_CASE("queries answer about tokens, memory, metrics and the model") {
  const Handle h;
  const vllm::Json tokens = query(h.engine, R"({"query": "tokenize", "text": "hello world"})");
  REQUIRE(tokens["tokens"].size() > 0);
  vllm::Json ask = {{"query", "detokenize"}, {"tokens", tokens["tokens"]}};
  CHECK(query(h.engine, ask.dump().c_str())["text"] == "hello world");
  const vllm::Json prompt = query(
      h.engine, R"({"query": "render", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3})");
  CHECK(prompt["prompt"] == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  ask = {{"query", "tokenize"}, {"text", prompt["prompt"]}, {"add_special", false}};
  CHECK(query(h.engine, ask.dump().c_str()) == vllm::Json{{"tokens", prompt["tokens"]}});
  CHECK(query(h.engine, R"({"query": "memory"})")["kv_cache"].get<size_t>() > 0);
  CHECK(query(h.engine, R"({"query": "info"})")["num_blocks"] == 64);
  char* out = nullptr;
  CHECK(vllm_ext_query(h.engine, R"({"query": "weather"})", &out) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(last_error_has("tokenize"));
  const std::string named = R"({"query": ")" + std::string(100000, 'q') + "\"}";
  CHECK(vllm_ext_query(h.engine, named.c_str(), &out) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(last_error_has("tokenize"));
  CHECK(std::strlen(vllm_last_error()) < 400);
  CHECK(vllm_ext_query(h.engine, R"({"query": "tokenize"})", &out) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(vllm_ext_query(h.engine, R"({"query": "render", "messages": []})", &out) ==
        VLLM_ERR_INVALID_ARGUMENT);
  CHECK(vllm_ext_query(h.engine, R"({"query": "render", "messages": [{"role": "user"}], "massages": 1})",
                       &out) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(last_error_has("massages"));
  CHECK(vllm_ext_query(h.engine, "nonsense", &out) == VLLM_ERR_INVALID_ARGUMENT);
}

TEST_CASE("ABI many threads complete and stream on one engine") {
  const Handle h;
  const vllm_sampling_params p = greedy(15);
  const std::string whole = complete(h.engine, p);
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 4; ++round) {
        Collected c;
        vllm_completion out;
        if (i % 2 == 0) {
          if (vllm_complete(h.engine, kPrompt, &p, &out) == VLLM_OK && out.text == whole) ++good;
          vllm_completion_free(&out);
        } else if (vllm_complete_stream(h.engine, kPrompt, &p, collect, &c) == VLLM_OK && c.text == whole) {
          ++good;
        }
      }
    });
  }
  for (auto& t : threads) t.join();
  CHECK(good == 32);
}

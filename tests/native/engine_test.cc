// The engine on tiny models: the same request gives the same text however it runs; nothing is lost.
#include "engine/engine.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "all_devices.h"
#include "tiny_models.h"

using namespace vllm;

namespace {

EngineConfig config(const char* model = "llama") {
  EngineConfig c;
  c.model_path = tiny::folder(model);
  c.device = test::engine_device();
  c.threads = 2;
  c.block_size = 16;
  c.num_blocks = 64;
  c.max_model_len = 256;
  c.kv_format = KvFormat::F32;
  return c;
}

GenerationRequest request(std::vector<int32_t> prompt, int max_tokens, float temperature = 0) {
  GenerationRequest r;
  r.prompt = std::move(prompt);
  r.sampling.temperature = temperature;
  r.sampling.max_tokens = max_tokens;
  r.sampling.ignore_eos = true;
  r.sampling.skip_special = false;
  return r;
}

/// A copy to submit; requests of these tests have no constraint.
GenerationRequest again(const GenerationRequest& r) {
  GenerationRequest out;
  out.prompt = r.prompt;
  out.sampling = r.sampling;
  out.priority = r.priority;
  return out;
}

struct Result {
  std::string text;
  std::vector<int32_t> ids;
  Delta last;
  int deltas = 0;
};

Result drain(Stream& stream) {
  Result out;
  do {
    out.last = stream.wait();
    out.text += out.last.text;
    out.ids.insert(out.ids.end(), out.last.token_ids.begin(), out.last.token_ids.end());
    ++out.deltas;
  } while (!out.last.finished());
  return out;
}

std::vector<int32_t> prompt(int seed, int length) {
  std::vector<int32_t> ids;
  for (int i = 0; i < length; ++i) ids.push_back(10 + (seed * 7919 + i * 104729) % 280);
  return ids;
}

void check_all_returned(const Engine& engine) {
  const EngineMetrics m = engine.metrics();
  CHECK(m.running == 0);
  CHECK(m.waiting == 0);
  CHECK(m.blocks_free == m.blocks_total);
}

}  // namespace

TEST_CASE("greedy text follows transformers") {
  for (const std::string model :
       {"llama", "mistral", "qwen2", "qwen3", "phi3-short", "granite", "minicpm", "olmo2", "glm4", "gemma2",
        "gemma3", "qwen3-moe", "qwen2-moe", "mixtral", "qwen3_5", "qwen3_5-moe", "qwen3-next"}) {
    CAPTURE(model);
    EngineConfig c = config(model.c_str());
    // The rope of phi3 is one for all lengths that the context allows, in transformers that of each length.
    if (model == "phi3-short") c.max_model_len = 64;
    const tiny::Expected expected = tiny::expected(model);
    const auto engine = Engine::load(c);
    const Result result =
        drain(*engine->submit(request(expected.greedy_prompt, static_cast<int>(expected.greedy_ids.size()))));
    REQUIRE(result.ids.size() == expected.greedy_ids.size());
    for (size_t i = 0; i < result.ids.size(); ++i) {
      if (result.ids[i] == expected.greedy_ids[i]) continue;
      CHECK(expected.greedy_gap[i] < 1e-3);
      break;
    }
    CHECK(result.last.finish == FinishReason::Length);
    CHECK(result.last.prompt_tokens == static_cast<int>(expected.greedy_prompt.size()));
    CHECK(result.last.completion_tokens == static_cast<int>(expected.greedy_ids.size()));
  }
}

TEST_CASE("a step of a mixture of experts takes more rows by default") {
  const auto rows = [](const char* model, int sequences) {
    EngineConfig c = config(model);
    c.max_num_batched_tokens = 0;
    c.max_num_seqs = sequences;
    c.num_blocks = 1024;
    return Engine::load(c)->info().max_num_batched_tokens;
  };
  CHECK(rows("qwen3", 32) == 2048);
  CHECK(rows("qwen3-moe", 16) == 4096);
  CHECK(rows("qwen3-moe", 32) == 8192);
}

TEST_CASE("KV-03 KV-04 SAMP-03 alone, batched, cached, chunked and preempted runs give the same tokens") {
  constexpr int kRequests = 16;
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < kRequests; ++i) {
    GenerationRequest r = request(prompt(i % 5, 20 + 9 * i), 40, i % 2 == 0 ? 0.0f : 0.8f);
    r.sampling.seed = 42 + i;
    r.sampling.top_p = 0.95f;
    requests.push_back(std::move(r));
  }
  struct Variant {
    const char* name;
    int num_blocks, max_num_seqs, budget, threads;
    Tristate cache;
    KvFormat format = KvFormat::F32;
  };
  KvFormat solo_format = KvFormat::F32;
  std::vector<Result> solo;
  for (const Variant& v :
       {Variant{"batched", 256, 16, 0, 2, Tristate::Off}, Variant{"cached", 256, 16, 0, 1, Tristate::On},
        Variant{"chunked", 256, 16, 17, 3, Tristate::On}, Variant{"tiny pool", 16, 16, 32, 2, Tristate::On},
        Variant{"tiny pool, no cache", 16, 8, 64, 2, Tristate::Off},
        Variant{"tiny pool of q8_0", 16, 16, 32, 2, Tristate::On, KvFormat::Q8_0}}) {
    CAPTURE(v.name);
    EngineConfig c = config();
    if (v.format == KvFormat::Q8_0 && c.device != "cpu") continue;
    c.kv_format = v.format;
    if (solo.empty() || v.format != solo_format) {
      c.prefix_caching = Tristate::Off;
      const auto alone = Engine::load(c);
      solo_format = v.format;
      solo.clear();
      for (const auto& r : requests) solo.push_back(drain(*alone->submit(again(r))));
      check_all_returned(*alone);
    }
    c.num_blocks = v.num_blocks;
    c.max_num_seqs = v.max_num_seqs;
    c.max_num_batched_tokens = v.budget;
    c.threads = v.threads;
    c.prefix_caching = v.cache;
    const auto engine = Engine::load(c);
    std::vector<std::shared_ptr<Stream>> streams;
    for (const auto& r : requests) streams.push_back(engine->submit(again(r)));
    for (int i = 0; i < kRequests; ++i) {
      CAPTURE(i);
      const Result result = drain(*streams[i]);
      REQUIRE_FALSE(result.last.error);
      CHECK(result.ids == solo[i].ids);
      CHECK(result.text == solo[i].text);
    }
    check_all_returned(*engine);
    if (v.num_blocks == 16) CHECK(engine->metrics().preemptions > 0);
  }
}

TEST_CASE("KV-03 hybrids: alone, batched, chunked and preempted runs give the same tokens") {
  for (const char* model : {"qwen3_5", "qwen3_5-moe"}) {
    CAPTURE(model);
    constexpr int kRequests = 9;
    std::vector<GenerationRequest> requests;
    for (int i = 0; i < kRequests; ++i) {
      requests.push_back(request(prompt(i % 4, 12 + 11 * i), 40, i % 2 == 0 ? 0.0f : 0.8f));
      requests.back().sampling.seed = 7 + i;
    }
    std::vector<Result> solo;
    {
      const auto engine = Engine::load(config(model));
      CHECK_FALSE(engine->info().prefix_caching);
      CHECK(engine->memory().states > 0);
      for (const auto& r : requests) solo.push_back(drain(*engine->submit(again(r))));
    }
    struct Variant {
      const char* name;
      int num_blocks, max_num_seqs, budget, threads;
      Tristate cache = Tristate::Defer;
    };
    for (const Variant& v :
         {Variant{"batched", 256, 9, 0, 2}, Variant{"chunked", 256, 5, 17, 3},
          Variant{"tiny pool", 16, 9, 32, 2}, Variant{"cached", 256, 9, 0, 2, Tristate::On},
          Variant{"cached, chunked", 256, 3, 17, 1, Tristate::On},
          Variant{"cached, tiny pool", 16, 9, 32, 2, Tristate::On}}) {
      CAPTURE(v.name);
      EngineConfig c = config(model);
      c.num_blocks = v.num_blocks;
      c.max_num_seqs = v.max_num_seqs;
      c.max_num_batched_tokens = v.budget;
      c.threads = v.threads;
      c.prefix_caching = v.cache;
      const auto engine = Engine::load(c);
      CHECK(engine->info().prefix_caching == (v.cache == Tristate::On));
      for (int round = 0; round < 2; ++round) {
        std::vector<std::shared_ptr<Stream>> streams;
        for (const auto& r : requests) streams.push_back(engine->submit(again(r)));
        for (int i = 0; i < kRequests; ++i) {
          CAPTURE(i);
          const Result result = drain(*streams[i]);
          REQUIRE_FALSE(result.last.error);
          CHECK(result.ids == solo[i].ids);
          if (v.cache == Tristate::Defer) CHECK(result.last.cached_tokens == 0);
        }
      }
      if (v.cache == Tristate::On && v.num_blocks == 256) CHECK(engine->metrics().cached_tokens > 0);
      check_all_returned(*engine);
      if (v.num_blocks == 16) CHECK(engine->metrics().preemptions > 0);
    }
  }
}

TEST_CASE("states and blocks of a hybrid are planned together") {
  EngineConfig c = config("qwen3_5");
  c.num_blocks = 0;
  c.max_num_seqs = 3;
  const auto engine = Engine::load(c);
  CHECK(engine->info().num_blocks == 3 * 16);
  // Convolution inputs and matrices of the three DeltaNet layers, 40 columns in stripes of 32.
  CHECK(engine->memory().states >= 3u * 3 * (3 * 288 + 6 * 40 * 12) * 4);
}

TEST_CASE("KV-04 prompts around block borders, three times each, give the uncached tokens") {
  EngineConfig c = config();
  const auto cached = Engine::load(c);
  c.prefix_caching = Tristate::Off;
  const auto plain = Engine::load(c);
  for (int length : {15, 16, 17, 32, 160}) {
    CAPTURE(length);
    const Result want = drain(*plain->submit(request(prompt(3, length), 12)));
    for (int round = 0; round < 3; ++round) {
      const Result got = drain(*cached->submit(request(prompt(3, length), 12)));
      CHECK(got.ids == want.ids);
      const int part = (length - 1) % 16;  // copied from 8 on
      if (round > 0) CHECK(got.last.cached_tokens == length - 1 - (part < 8 ? part : 0));
    }
  }
}

TEST_CASE("KV-01 KV-02 KV-05 KV-06 limits of context and pool") {
  EngineConfig c = config();
  c.num_blocks = 8;  // 128 tokens
  c.max_model_len = 256;
  c.clip_max_model_len = false;
  CHECK_THROWS_WITH_AS(Engine::load(c), doctest::Contains("num_blocks 16"), Error);
  c.clip_max_model_len = true;
  const auto engine = Engine::load(c);
  CHECK(engine->info().max_model_len == 128);
  CHECK_THROWS_WITH_AS(engine->submit(request(prompt(1, 200), 5)),
                       doctest::Contains("context_length_exceeded"), Error);
  CHECK_THROWS_AS(engine->submit(request({}, 5)), Error);
  CHECK_THROWS_WITH_AS(engine->submit(request({5, 300}, 5)), doctest::Contains("300"), Error);
  // A text that no context of this size can hold is refused before it is encoded; one that may fit is
  // counted.
  const size_t most = 128 * engine->tokenizer().longest_token();
  CHECK(engine->encode_prompt(std::string(most, 'a')).size() > 128);
  CHECK_THROWS_WITH_AS(engine->encode_prompt(std::string(most + 1, 'a')),
                       doctest::Contains("context_length_exceeded"), Error);
  // A limit above the room is the room; no limit ends at the context.
  for (int limit : {100, 0, -1, 2000000000}) {
    const Result result = drain(*engine->submit(request(prompt(1, 100), limit)));
    CHECK(result.last.completion_tokens == 28);
    CHECK(result.last.finish == FinishReason::Length);
  }
  CHECK(drain(*engine->submit(request(prompt(1, 100), 1))).ids.size() == 1);
  check_all_returned(*engine);
}

TEST_CASE(
    "KV-01 a pool sized from memory keeps to the engine's share and holds a full context where it can") {
  const auto pool = [](double share, int context, int sequences) {
    EngineConfig c = config();
    c.num_blocks = 0;
    c.max_num_batched_tokens = 32;
    c.memory_share = share;
    c.max_model_len = context;
    c.max_num_seqs = sequences;
    return Engine::load(c)->info();
  };
  CHECK(pool(0.5, 256, 2).num_blocks == 32);  // no more than all sequences can use

  // Contexts that no share can hold. Other programs change what is free meanwhile.
  constexpr int kEndless = 1 << 30;
  const int blocks = pool(0.01, kEndless, 1).num_blocks;
  REQUIRE(blocks > 64);
  const int of_half_the_share = pool(0.005, kEndless, 1).num_blocks;
  CHECK(of_half_the_share > blocks / 4);
  CHECK(of_half_the_share < blocks * 3 / 4);

  // Two of these would be too much, one is not.
  const int context = blocks / 4 * 3 * 16;
  const EngineInfo one = pool(0.01, context, 4);
  CHECK(one.max_model_len == context);
  CHECK(one.num_blocks >= context / 16);
  CHECK_THROWS_WITH_AS(pool(1e-9, 256, 1), doctest::Contains("gpu_memory_utilization"), Error);

  EngineConfig c = config();
  c.num_blocks = 0;
  c.kv_cache_memory_bytes = int64_t{1} << 60;
  CHECK_THROWS_WITH_AS(Engine::load(c), doctest::Contains("kv_cache_memory_bytes is 1152921504606846976"),
                       Error);
}

TEST_CASE("SAMP-08 STOP-03 end ids stop a request and are not shown; ignore_eos goes on") {
  const auto engine = Engine::load(config("qwen2"));
  GenerationRequest r = request(prompt(2, 12), 30);
  const Result free_run = drain(*engine->submit(again(r)));
  REQUIRE(free_run.ids.size() == 30);
  r.sampling.stop_token_ids = {free_run.ids[7]};
  size_t first = 0;
  while (free_run.ids[first] != free_run.ids[7]) ++first;
  const Result stopped = drain(*engine->submit(again(r)));
  CHECK(stopped.ids.size() == first + 1);
  CHECK(stopped.last.finish == FinishReason::Stop);
  CHECK(stopped.last.stop_token == free_run.ids[7]);
  CHECK(free_run.text.starts_with(stopped.text));
  for (int i = 0; i < 5; ++i) CHECK(drain(*engine->submit(request(prompt(2, 12), 30))).ids == free_run.ids);
}

TEST_CASE("STOP-03 an end id that completes a constraint is not shown, whatever ignore_eos says") {
  const auto engine = Engine::load(config());
  ConstraintSpec spec;
  spec.kind = ConstraintSpec::Kind::Regex;
  spec.text = "[0-9]+";
  for (const bool ignore_eos : {false, true}) {
    GenerationRequest r = request(prompt(2, 12), 30);
    r.sampling.ignore_eos = ignore_eos;
    r.sampling.logit_bias = {{1, 100.0f}};  // the end token
    r.constraint = engine->constraints().make(spec);
    const Result result = drain(*engine->submit(std::move(r)));
    CHECK(result.last.finish == FinishReason::Stop);
    CHECK(result.ids.back() == 1);
    CHECK(result.text.find_first_not_of("0123456789") == std::string::npos);
    CHECK(result.text.size() == result.ids.size() - 1);
  }
}

TEST_CASE("STOP-01 a stop string cuts the text, streamed and whole") {
  const auto engine = Engine::load(config());
  const Result free_run = drain(*engine->submit(request(prompt(4, 12), 40)));
  REQUIRE(free_run.text.size() > 12);
  size_t at = free_run.text.size() / 2;
  while ((static_cast<unsigned char>(free_run.text[at]) & 0xC0) == 0x80) ++at;
  size_t end = std::min(free_run.text.size(), at + 6);
  while (end < free_run.text.size() && (static_cast<unsigned char>(free_run.text[end]) & 0xC0) == 0x80) ++end;
  const std::string stop = free_run.text.substr(at, end - at);
  GenerationRequest r = request(prompt(4, 12), 40);
  r.sampling.stop = {"never to be seen", stop};
  const Result result = drain(*engine->submit(again(r)));
  CHECK(result.text == free_run.text.substr(0, free_run.text.find(stop)));
  CHECK(result.last.finish == FinishReason::Stop);
  CHECK(result.last.stop_string == stop);
}

TEST_CASE("SAMP-04 non-finite logits end their request with an error and nobody else's") {
  const auto engine = Engine::load(config());
  GenerationRequest bad = request(prompt(1, 20), 20);
  bad.sampling.logits_processor = [](std::span<const int32_t> output, std::span<float> logits) {
    if (output.size() == 3) logits[5] = NAN;
  };
  const auto good = engine->submit(request(prompt(2, 20), 20));
  const auto failing = engine->submit(again(bad));
  const Result result = drain(*failing);
  CHECK(result.ids.size() == 3);
  REQUIRE(result.last.error);
  CHECK(result.last.error->status() == Status::Runtime);
  CHECK(drain(*good).ids.size() == 20);
  check_all_returned(*engine);
}

TEST_CASE(
    "a tokenizer with more tokens than the model: what it adds is never chosen, by no constraint and no "
    "budget") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("vllm_engine_test_" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  for (const char* file : {"config.json", "model.safetensors"})
    std::filesystem::copy_file(tiny::folder("qwen3") + "/" + file, folder / file);
  Json tokenizer =
      parse_json(read_text_file(tiny::folder("qwen3") + "/tokenizer.json"), "tokenizer", Status::Unknown);
  const int vocab = static_cast<int>(tokenizer["model"]["vocab"].size());
  for (int i = 0; i < 20000; ++i) tokenizer["model"]["vocab"]["Q" + std::to_string(i)] = vocab + i;
  tokenizer["added_tokens"].push_back({{"id", vocab + 20000},
                                       {"content", "</think>"},
                                       {"single_word", false},
                                       {"lstrip", false},
                                       {"rstrip", false},
                                       {"normalized", false},
                                       {"special", false}});
  std::ofstream(folder / "tokenizer.json") << tokenizer.dump();
  EngineConfig c = config();
  c.model_path = folder.string();
  const auto engine = Engine::load(c);
  REQUIRE(engine->info().vocab_size == vocab);
  REQUIRE(engine->tokenizer().vocab_size() == vocab + 20001);

  ConstraintSpec spec;
  spec.kind = ConstraintSpec::Kind::Regex;
  spec.text = "(Q[0-9]*){100}";
  GenerationRequest constrained = request(prompt(1, 5), 30, 1);
  constrained.constraint = engine->constraints().make(spec);
  const Result result = drain(*engine->submit(std::move(constrained)));
  CHECK_FALSE(result.last.error);
  CHECK(result.ids.size() == 30);
  for (const int32_t id : result.ids) CHECK(id < vocab);

  GenerationRequest thinking = request(prompt(1, 5), 30);
  thinking.thinking = {.starts = {"<think>"}, .ends = {"</think>"}, .open_at_start = true, .budget = 3};
  try {
    engine->submit(std::move(thinking));
    FAIL("a budget that cannot be kept was taken");
  } catch (const Error& error) {
    CHECK(error.status() == Status::InvalidArgument);
    CHECK(error.message().find("'</think>'") != std::string::npos);
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("RPC-02 cancelled requests end within a step, also while waiting, and return their blocks") {
  EngineConfig c = config();
  c.max_num_seqs = 4;
  const auto engine = Engine::load(c);
  std::vector<std::shared_ptr<Stream>> streams;
  for (int i = 0; i < 32; ++i) streams.push_back(engine->submit(request(prompt(i, 30), 100)));
  for (int i = 0; i < 32; i += 2) engine->cancel(*streams[i]);
  for (int i = 0; i < 32; ++i) {
    const Result result = drain(*streams[i]);
    if (i % 2 == 0) {
      CHECK((result.last.finish == FinishReason::Abort || result.ids.size() == 100));
    } else {
      CHECK(result.ids.size() == 100);
    }
  }
  check_all_returned(*engine);
}

TEST_CASE("RPC-05 four requests are batched: each has its first token before any ends") {
  const auto engine = Engine::load(config());
  std::vector<std::shared_ptr<Stream>> streams;
  for (int i = 0; i < 4; ++i) streams.push_back(engine->submit(request(prompt(i, 16), 200)));
  std::atomic<int> started{0}, early_end{0};
  std::vector<std::thread> threads;
  for (auto& stream : streams) {
    threads.emplace_back([&, s = stream] {
      Delta delta = s->wait();
      ++started;
      while (!delta.finished()) delta = s->wait();
      if (started.load() < 4) ++early_end;
    });
  }
  for (auto& t : threads) t.join();
  CHECK(early_end == 0);
}

TEST_CASE("LIFE-03 unloading ends running requests with an error") {
  auto engine = Engine::load(config());
  const auto stream = engine->submit(request(prompt(1, 20), 200));
  Delta last = stream->wait();  // may be the end already, on a machine with other work
  engine.reset();
  while (!last.finished()) last = stream->wait();
  CHECK((last.error || last.finish == FinishReason::Length));
}

TEST_CASE("requests from many threads at once are all served") {
  const auto engine = Engine::load(config());
  const Result want = drain(*engine->submit(request(prompt(9, 25), 15)));
  std::atomic<int> equal{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 12; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 3; ++round)
        if (drain(*engine->submit(request(prompt(9, 25), 15))).ids == want.ids) ++equal;
    });
  }
  for (auto& t : threads) t.join();
  CHECK(equal == 36);
  check_all_returned(*engine);
}

TEST_CASE("tokens are the same whether the device gives whole rows of logits or only the largest") {
  const auto engine = Engine::load(config());
  for (const int top_k : {0, 1, 20, 64}) {
    CAPTURE(top_k);
    GenerationRequest largest = request(prompt(3, 20), 24, top_k > 0 ? 0.9f : 0.0f);
    largest.sampling.top_k = top_k;
    largest.sampling.top_p = 0.95f;
    largest.sampling.seed = 5;
    GenerationRequest whole = again(largest), other = again(largest);
    whole.sampling.logprobs = 0;
    other.sampling.top_k = 7;
    const std::vector<int32_t> ids = drain(*engine->submit(again(largest))).ids;
    CHECK(ids.size() == 24);
    CHECK(ids == drain(*engine->submit(std::move(whole))).ids);
    // Beside a request that needs another number of them.
    const auto beside = engine->submit(std::move(other));
    CHECK(ids == drain(*engine->submit(std::move(largest))).ids);
    drain(*beside);
  }
}

TEST_CASE("log-probabilities come with every token, also when text is held back") {
  const auto engine = Engine::load(config());
  GenerationRequest r = request(prompt(1, 20), 10);
  r.sampling.logprobs = 3;
  const auto stream = engine->submit(again(r));
  std::vector<SampledToken> all;
  Delta delta;
  do {
    delta = stream->wait();
    CHECK(delta.logprobs.size() == delta.token_ids.size());
    all.insert(all.end(), delta.logprobs.begin(), delta.logprobs.end());
  } while (!delta.finished());
  REQUIRE(all.size() == 10);
  for (const SampledToken& token : all) {
    REQUIRE(token.top.size() == 3);
    CHECK(token.top[0].id == token.id);  // greedy
    CHECK(token.top[0].logprob == token.logprob);
    CHECK(token.top[0].logprob >= token.top[1].logprob);
    CHECK(token.logprob <= 0);
  }
}

TEST_CASE("wrong settings are refused by name") {
  const auto message = [](const auto& edit) {
    EngineConfig c = config();
    edit(c);
    try {
      Engine::load(c);
    } catch (const Error& error) {
      return error.message();
    }
    return std::string();
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  CHECK(has(message([](EngineConfig& c) { c.block_size = 24; }), "block_size is 24"));
  CHECK(has(message([](EngineConfig& c) { c.max_num_batched_tokens = 4; }), "max_num_batched_tokens is 4"));
  CHECK(has(message([](EngineConfig& c) { c.device = "tpu"; }), "tpu"));
  CHECK(has(message([](EngineConfig& c) { c.model_path = "/nowhere"; }), "/nowhere"));
  CHECK(has(message([](EngineConfig& c) { c.num_blocks = 2000000000; }), "would fit"));
  CHECK(has(message([](EngineConfig& c) {
              c.num_blocks = 0;
              c.kv_cache_memory_bytes = 10;
            }),
            "kv_cache_memory_bytes"));
}

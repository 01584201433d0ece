// What a load plans before it takes memory, and what it logs of its pressure.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "base/crash_report.h"
#include "base/error.h"
#include "base/json.h"
#include "engine/engine.h"
#include "model/load_progress.h"
#include "tiny_models.h"
#include "vllm_ext.h"

using namespace vllm;

namespace {

/// Folders and GGUF files of all tiny models.
std::vector<std::string> tiny_models() {
  std::vector<std::string> out;
  for (const char* folder : {"/transformers", "/quantised"})
    for (const auto& entry : std::filesystem::directory_iterator(std::string(FIXTURES) + folder)) {
      if (!std::filesystem::exists(entry.path() / "config.json")) continue;
      out.push_back(entry.path());
      for (const auto& file : std::filesystem::directory_iterator(entry.path()))
        if (file.path().extension() == ".gguf") out.push_back(file.path());
    }
  for (const char* name : {"qwen3moe", "qwen35", "qwen35moe", "qwen35moe_nvfp4"})
    out.push_back(std::string(FIXTURES) + "/llama_cpp/" + name + ".gguf");
  return out;
}

EngineConfig config(const std::string& path, bool plan_only) {
  EngineConfig c;
  c.model_path = path;
  c.threads = 1;
  c.block_size = 16;
  c.max_num_seqs = 2;
  c.num_blocks = 16;
  c.plan_only = plan_only;
  return c;
}

}  // namespace

TEST_CASE("the bytes of the weights are known before they are packed") {
  const std::vector<std::string> paths = tiny_models();
  REQUIRE(paths.size() > 20);
  for (const std::string& path : paths) {
    INFO(path);
    const auto checkpoint = Checkpoint::open(path);
    for (const auto& device : {make_cpu_device(1).release(), make_reference_device().release()}) {
      const std::unique_ptr<Device> owner(device);
      const auto model = Model::open(*checkpoint, *owner);
      const size_t planned = model->weight_bytes();
      model->pack(*checkpoint);
      CHECK(planned > 0);
      if (owner->is_cpu()) CHECK(planned == model->weight_bytes());
    }
  }
}

TEST_CASE("the planned bytes of a KV block are those that the CPU device takes, also for padded heads") {
  const auto device = make_cpu_device(1);
  for (const int head_dim : {16, 20, 24, 40, 72, 80, 100, 128})
    for (const KvFormat format : {KvFormat::BF16, KvFormat::F32, KvFormat::Q8_0}) {
      CAPTURE(head_dim);
      CAPTURE(static_cast<int>(format));
      KvCacheSpec spec;
      spec.layers = {{3, head_dim}, {1, head_dim}};
      spec.num_blocks = 5;
      spec.format = format;
      CHECK(device->make_kv_cache(spec)->bytes == spec.block_bytes() * 5);
    }
}

TEST_CASE("plan_only gives the settings and the memory of the load, and takes no requests") {
  for (const char* name : {"llama", "gemma3", "qwen3-next", "qwen3-moe"}) {
    INFO(name);
    const auto planned = Engine::load(config(tiny::folder(name), true));
    const auto loaded = Engine::load(config(tiny::folder(name), false));
    CHECK(planned->info().max_model_len == loaded->info().max_model_len);
    CHECK(planned->info().num_blocks == loaded->info().num_blocks);
    CHECK(planned->info().prefix_caching == loaded->info().prefix_caching);
    CHECK(planned->info().fingerprint == loaded->info().fingerprint);
    CHECK(planned->memory().weights == loaded->memory().weights);
    CHECK((planned->memory().states > 0) == (loaded->memory().states > 0));
    CHECK(planned->memory().kv_cache == loaded->memory().kv_cache);
    CHECK(loaded->plan().memory.kv_cache == loaded->memory().kv_cache);
    CHECK(planned->plan().kv_bytes_per_token * 16 * 16 == planned->memory().kv_cache);
    CHECK(planned->encode_prompt("hello").size() > 0);
    GenerationRequest request;
    request.prompt = {1, 2};
    CHECK_THROWS_WITH_AS(planned->submit(std::move(request)),
                         "the model was loaded with plan_only, which runs no requests", Error);
  }
}

TEST_CASE("KV-01 a plan says what was chosen and what had to give way") {
  EngineConfig c = config(tiny::folder("llama"), true);
  c.max_model_len = 1024;
  auto engine = Engine::load(c);
  REQUIRE(engine->plan().warnings.size() == 1);
  CHECK(engine->plan().warnings[0].find("needs num_blocks 64") != std::string::npos);
  CHECK(engine->plan().chosen.empty());
  c.clip_max_model_len = false;
  CHECK_THROWS_AS(Engine::load(c), Error);
  c = config(tiny::folder("llama"), true);
  c.num_blocks = c.threads = 0;
  engine = Engine::load(c);
  REQUIRE(engine->plan().chosen.size() == 3);
  CHECK(engine->plan().chosen[0].setting == "threads");
  CHECK(engine->plan().chosen[0].value == engine->info().threads);
  CHECK(engine->plan().chosen[1].setting == "max_model_len");
  CHECK(engine->plan().chosen[1].value == engine->info().max_model_len);
  CHECK(engine->plan().chosen[2].setting == "num_blocks");
  CHECK(engine->plan().chosen[2].value == engine->info().num_blocks);
}

TEST_CASE(
    "KV-01 a pool for one endless context takes what weights, states and workspace leave of the share") {
  for (const char* name : {"llama", "qwen3_5"}) {
    INFO(name);
    EngineConfig c = config(tiny::folder(name), true);
    c.num_blocks = 0;
    c.max_num_seqs = 40;
    c.max_model_len = 1 << 30;  // that no memory holds
    c.memory_share = 0.01;
    const auto engine = Engine::load(c);
    const LoadPlan& plan = engine->plan();
    const EngineMemory& memory = plan.memory;
    CHECK(plan.budget == static_cast<size_t>(0.01 * static_cast<double>(plan.available)));
    const auto block = static_cast<size_t>(plan.kv_bytes_per_token * c.block_size);
    // Each is worth some blocks.
    for (const size_t part : {memory.weights, memory.states, memory.workspace})
      CHECK((part >= 4 * block || (part == 0 && std::string(name) == "llama")));
    CHECK(static_cast<size_t>(engine->info().num_blocks) ==
          (plan.budget - memory.weights - memory.states - memory.workspace) / block);
  }
}

TEST_CASE("KV-01 a context beyond what the model was made for is warned of") {
  EngineConfig c = config(tiny::folder("llama"), true);
  c.num_blocks = 100;
  for (const int context : {0, 512, 513}) {
    c.max_model_len = context;
    const std::vector<std::string> warnings = Engine::load(c)->plan().warnings;
    REQUIRE(warnings.size() == (context > 512 ? 1 : 0));
    if (context > 512)
      CHECK(warnings[0].starts_with("the context is 513 tokens and the model was made for 512"));
  }
}

TEST_CASE("what needs more memory than there is fails by plan as by load, before anything is read") {
  for (const bool plan_only : {true, false}) {
    EngineConfig c = config(tiny::folder("llama"), plan_only);
    c.num_blocks = 2000000000;
    CHECK_THROWS_WITH_AS(Engine::load(c), doctest::Contains("num_blocks up to"), Error);
  }
}

TEST_CASE("queue and KV pool are said when they change much, and not often") {
  using namespace std::chrono_literals;
  PressureLog log;
  EngineMetrics m;
  m.blocks_total = m.blocks_free = 100;
  PressureLog::Clock::time_point now{};
  const auto line = [&](int waiting, int free, std::chrono::milliseconds later) {
    m.running = 2;
    m.waiting = waiting;
    m.blocks_free = free;
    now += later;
    return log.take_line(m, now);
  };
  CHECK(line(0, 100, 0ms).empty());
  CHECK(line(0, 80, 1s).empty());
  CHECK(line(0, 70, 1s) == "2 running, 0 waiting, 30 % of 100 KV blocks in use, 0 preemptions so far");
  CHECK(line(9, 10, 1s).empty());  // soon after the last
  CHECK(line(9, 10, 5s) == "2 running, 9 waiting, 90 % of 100 KV blocks in use, 0 preemptions so far");
  CHECK(line(12, 5, 60s).empty());
  CHECK_FALSE(line(0, 5, 60s).empty());
  CHECK(line(0, 5, 60s).empty());
  CHECK_FALSE(line(0, 100, 60s).empty());
}

TEST_CASE("a long load says how far it is, every two seconds") {
  using namespace std::chrono_literals;
  const LoadProgress::Clock::time_point begin{};
  LoadProgress progress(8'000'000'000, begin);
  progress.add(1'000'000'000);
  CHECK(progress.take_line(begin + 1s).empty());
  CHECK(progress.take_line(begin + 2s) == "loading weights: 1.00 of 8.00 GB (12 %), 0.50 GB/s");
  progress.add(7'000'000'000);
  CHECK(progress.take_line(begin + 3s).empty());
  CHECK(progress.take_line(begin + 4s) == "loading weights: 8.00 of 8.00 GB (100 %), 2.00 GB/s");
  CHECK(LoadProgress(0, begin).take_line(begin + 2s) ==
        "loading weights: 0.00 of 0.00 GB (100 %), 0.00 GB/s");
}

TEST_CASE("machine is answered without an engine, and nothing else is") {
  char* out = nullptr;
  REQUIRE(vllm_ext_query(nullptr, R"({"query": "machine"})", &out) == VLLM_OK);
  const Json machine = parse_json(out, "machine", Status::Unknown);
  vllm_string_free(out);
  CHECK(machine["physical_cores"].get<int>() >= 1);
  CHECK(machine["logical_cores"] >= machine["physical_cores"]);
  CHECK(machine["memory_total"] >= machine["memory_available"]);
  const Json& sets = machine["instruction_sets"];
  CHECK(std::find(sets.begin(), sets.end(), machine["instruction_set"]) != sets.end());
  CHECK(machine["devices"][0] == Json{{"name", "cpu"}, {"available", true}});
  for (const Json& device : machine["devices"])
    CHECK(device.contains("reason") != device["available"].get<bool>());
  CHECK(vllm_ext_query(nullptr, R"({"query": "info"})", &out) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(std::string(vllm_last_error()).find("engine is NULL") != std::string::npos);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they have handlers of their own
TEST_CASE("LOAD-04 a fatal signal leaves one sentence and ends the process as before") {
  for (const int number : {SIGSEGV, SIGBUS, SIGABRT}) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const pid_t child = fork();
    if (child == 0) {
      dup2(ends[1], STDERR_FILENO);
      report_crashes("/models/first");
      report_crashes("/models/second");
      raise(number);
      _exit(0);
    }
    close(ends[1]);
    std::string said;
    char piece[512];
    for (ssize_t got; (got = read(ends[0], piece, sizeof piece)) > 0;)
      said.append(piece, static_cast<size_t>(got));
    close(ends[0]);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == number);
    CHECK(said.starts_with("vllm: the process ended by SIG"));
    CHECK(said.ends_with(", with the model /models/second\n"));
    CHECK(std::count(said.begin(), said.end(), '\n') == 1);
  }
}
#endif

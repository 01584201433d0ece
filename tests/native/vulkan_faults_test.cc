// What becomes of engine and requests when a Vulkan device is lost or has no memory left.
#ifdef VLLM_VULKAN
#include "vulkan_faults.h"

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdlib>

#include "engine/engine.h"
#include "tiny_models.h"
#include "vllm_ext.h"

using namespace vllm;

namespace {

/// The layer's, which the loader puts in front of every device from now on, and of the layers of the
/// environment: one that checks may take what was submitted in vain for running.
VulkanFaults& faults() {
  static VulkanFaults* const found = [] {
    const char* const others = std::getenv("VK_INSTANCE_LAYERS");
    const std::string layers =
        std::string("VK_LAYER_VLLM_faults") + (others ? ":" + std::string(others) : "");
    setenv("VK_ADD_LAYER_PATH", VULKAN_LAYERS, 1);
    setenv("VK_INSTANCE_LAYERS", layers.c_str(), 1);
    void* const layer = dlopen(VULKAN_FAULTS, RTLD_NOW);
    REQUIRE_MESSAGE(layer != nullptr, dlerror());
    return static_cast<VulkanFaults*>(dlsym(layer, "vulkan_faults"));
  }();
  found->none();
  return *found;
}

EngineConfig config() {
  EngineConfig c;
  c.model_path = tiny::folder("llama");
  c.device = "vulkan";
  c.threads = 2;
  c.block_size = 16;
  c.num_blocks = 64;
  c.max_model_len = 256;
  return c;
}

GenerationRequest request(int seed, int max_tokens) {
  GenerationRequest r;
  for (int i = 0; i < 12; ++i) r.prompt.push_back(10 + (seed * 7919 + i * 104729) % 280);
  r.sampling.temperature = 0;
  r.sampling.max_tokens = max_tokens;
  r.sampling.ignore_eos = true;
  return r;
}

Delta drain(Stream& stream, std::vector<int32_t>* ids = nullptr) {
  for (;;) {
    Delta delta = stream.wait();
    if (ids) ids->insert(ids->end(), delta.token_ids.begin(), delta.token_ids.end());
    if (delta.finished()) return delta;
  }
}

std::vector<int32_t> tokens(Engine& engine) {
  std::vector<int32_t> ids;
  const Delta last = drain(*engine.submit(request(1, 8)), &ids);
  CHECK_FALSE(last.error);
  return ids;
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

/// Of an error that ended a request; empty when it ended well.
std::string message(const Delta& last) {
  if (!last.error) return {};
  CHECK(last.finish == FinishReason::Error);
  CHECK(last.error->status() == Status::Runtime);
  return last.error->message();
}

std::string load_error(Status* status = nullptr) {
  try {
    Engine::load(config());
  } catch (const Error& error) {
    if (status) *status = error.status();
    return error.message();
  }
  return {};
}

}  // namespace

TEST_CASE(
    "a lost device ends the running requests and those after them with one error; the next load works") {
  VulkanFaults& fault = faults();
  const int lost_before = fault.lost;
  const std::vector<int32_t> want = tokens(*Engine::load(config()));
  CHECK(want.size() == 8);
  const std::pair<std::atomic<int>*, int> runs[] = {
      {&fault.submits, -1}, {&fault.waits, -1}, {&fault.submits, 0}, {&fault.waits, 0}};
  for (const auto& [kind, logprobs] : runs) {  // with log-probabilities whole rows of logits are read
    auto engine = Engine::load(config());
    const auto start = [&] {
      std::vector<std::shared_ptr<Stream>> streams;
      for (int i = 0; i < 3; ++i) {
        GenerationRequest r = request(i, 120);
        r.sampling.logprobs = logprobs;
        streams.push_back(engine->submit(std::move(r)));
      }
      return streams;
    };
    std::vector<int32_t> undisturbed[3], ids[3];
    auto streams = start();
    for (size_t i = 0; i < 3; ++i) CHECK_FALSE(drain(*streams[i], &undisturbed[i]).error);
    streams = start();
    for (size_t i = 0; i < 3; ++i) {
      const Delta delta = streams[i]->wait();
      REQUIRE_FALSE(delta.finished());
      ids[i] = delta.token_ids;
    }
    *kind = 3;
    const std::string first = message(drain(*streams[0], &ids[0]));
    CHECK(has(first, "was lost"));
    CHECK(has(first, "loaded again"));
    for (size_t i = 1; i < 3; ++i) CHECK(message(drain(*streams[i], &ids[i])) == first);
    for (size_t i = 0; i < 3; ++i)  // nothing was made up
      CHECK(std::equal(ids[i].begin(), ids[i].end(), undisturbed[i].begin()));
    CHECK(message(drain(*engine->submit(request(4, 5)))) == first);
    // It does not come back by itself.
    fault.none();
    CHECK(message(drain(*engine->submit(request(5, 5)))) == first);
    const EngineMetrics metrics = engine->metrics();
    CHECK(metrics.running == 0);
    CHECK(metrics.blocks_free == metrics.blocks_total);

    const auto other = Engine::load(config());  // beside the one that was lost
    CHECK(tokens(*other) == want);
    engine.reset();
    CHECK(tokens(*other) == want);
  }
  CHECK(fault.lost == lost_before + 4);
}

TEST_CASE("a device may be lost at any moment of a request and of a load") {
  VulkanFaults& fault = faults();
  for (const int after : {0, 1, 2, 5}) {
    CAPTURE(after);
    {
      const auto engine = Engine::load(config());
      (after % 2 ? fault.submits : fault.waits) = after;
      CHECK(has(message(drain(*engine->submit(request(1, 50)))), "was lost"));
      fault.none();
    }
    fault.submits = after;
    CHECK(has(load_error(), "was lost"));
    fault.none();
  }
  CHECK(tokens(*Engine::load(config())).size() == 8);
}

TEST_CASE("a device that cannot be used is reported with the reason, and refused") {
  VulkanFaults& fault = faults();
  const auto devices = [] {
    char* out = nullptr;
    REQUIRE(vllm_ext_query(nullptr, R"({"query": "machine"})", &out) == VLLM_OK);
    Json found = parse_json(out, "machine", Status::Unknown)["devices"];
    vllm_string_free(out);
    std::erase_if(found.get_ref<Json::array_t&>(),
                  [](const Json& each) { return !each["name"].get<std::string>().starts_with("vulkan"); });
    return found;
  };
  const Json usable = devices();
  fault.old = true;
  const Json unusable = devices();
  REQUIRE(!usable.empty());
  REQUIRE(unusable.size() == usable.size());
  for (size_t i = 0; i < usable.size(); ++i) {
    CHECK(usable[i]["available"] == true);
    CHECK(usable[i].contains("description"));
    CHECK(unusable[i]["name"] == usable[i]["name"]);
    CHECK(unusable[i]["available"] == false);
    CHECK(has(unusable[i]["reason"].get<std::string>(), "it has Vulkan 1.1, needed is 1.2"));
  }
  CHECK(has(load_error(), "it has Vulkan 1.1, needed is 1.2"));
}

TEST_CASE("a load fails on a device that computes otherwise than the CPU") {
  VulkanFaults& fault = faults();
  for (const int after : {0, 5, 20}) {
    CAPTURE(after);
    fault.dispatches = after;
    Status status = Status::Ok;
    const std::string error = load_error(&status);
    CHECK(status == Status::ModelLoad);
    CHECK(has(error, "vulkan"));
    CHECK(has(error, "otherwise than the CPU"));
  }
  fault.none();
  CHECK(tokens(*Engine::load(config())).size() == 8);
}

TEST_CASE(
    "a GPU that was not asked for makes way for the CPU when it does not open, is too small, fails or "
    "computes otherwise") {
  VulkanFaults& fault = faults();
  EngineConfig c = config();
  c.device = "auto";
  const auto on = [&] { return Engine::load(c)->info().device.substr(0, 6); };
  fault.discrete = true;
  CHECK(on() == "vulkan");
  const std::pair<std::atomic<int>*, int> kinds[] = {
      {&fault.opens, 0}, {&fault.dispatches, 0}, {&fault.submits, 0}, {&fault.waits, 3}, {&fault.waits, 40}};
  for (const auto& [kind, after] : kinds) {
    CAPTURE(after);
    *kind = after;
    const auto engine = Engine::load(c);
    CHECK(engine->info().device.starts_with("cpu"));
    CHECK(tokens(*engine).size() == 8);
    *kind = after;
    c.device = "vulkan";
    CHECK_THROWS_AS(Engine::load(c), Error);
    c.device = "auto";
    *kind = -1;
  }
  fault.heap = 1000;
  CHECK(on().starts_with("cpu"));
  c.device = "vulkan";
  CHECK_THROWS_WITH_AS(Engine::load(c), doctest::Contains("or set device to cpu"), Error);
  c.device = "auto";
  fault.heap = 0;
  c.model_path = "/nowhere";  // which is not the device's fault
  CHECK_THROWS_WITH_AS(Engine::load(c), doctest::Contains("/nowhere"), Error);
}

TEST_CASE(
    "memory that a device refuses fails the load with what was needed, what is free and what to lower") {
  VulkanFaults& fault = faults();
  int failed = 0;
  for (;; ++failed) {
    REQUIRE(failed < 50);
    fault.allocations = failed;
    Status status = Status::Ok;
    const std::string error = load_error(&status);
    if (error.empty()) break;
    CAPTURE(failed);
    CAPTURE(error);
    CHECK(status == Status::ModelLoad);
    CHECK(has(error, "MiB was needed"));
    CHECK(has(error, "MiB free"));
    CHECK(has(error, "lower num_blocks"));
  }
  CHECK(failed >= 2);
  fault.none();
  CHECK(tokens(*Engine::load(config())).size() == 8);
}

TEST_CASE(
    "a pool sized from memory keeps to the largest buffer, and one that was asked for is refused by it") {
  VulkanFaults& fault = faults();
  EngineConfig c = config();
  c.num_blocks = 0;
  c.max_num_seqs = 2;
  c.max_model_len = 1 << 22;
  c.plan_only = true;
  const int undisturbed = Engine::load(c)->info().num_blocks;
  constexpr int kFitting = (64 << 20) / (16 * 16 * 2);  // 16 tokens of one key of 16 bf16
  REQUIRE(undisturbed > kFitting);
  fault.buffer = size_t{64} << 20;
  const auto plan = Engine::load(c);
  CHECK(plan->info().num_blocks == kFitting);
  CHECK(plan->info().max_model_len == kFitting * 16);
  c.num_blocks = kFitting + 1;
  CHECK_THROWS_WITH_AS(Engine::load(c), doctest::Contains("num_blocks up to 131072 would fit"), Error);
  c.num_blocks = 0;
  c.kv_cache_memory_bytes = plan->memory().kv_cache + plan->memory().kv_cache / 8;
  CHECK_THROWS_WITH_AS(Engine::load(c), doctest::Contains("in one buffer"), Error);
  c.kv_cache_memory_bytes = 0;
  c.plan_only = false;
  CHECK(tokens(*Engine::load(c)).size() == 8);

  c.plan_only = true;
  c.model_path = tiny::folder("qwen3_5");
  c.max_model_len = 256;
  c.max_num_seqs = 4096;  // of 6 * 40 * 12 values
  fault.buffer = size_t{32} << 20;
  CHECK_THROWS_WITH_AS(Engine::load(c), doctest::Contains("34 MB in one buffer: max_num_seqs up to 2912"),
                       Error);
}

TEST_CASE("memory that a device refuses once may be had later, and an engine on it is not harmed") {
  VulkanFaults& fault = faults();
  const auto engine = Engine::load(config());
  const std::vector<int32_t> want = tokens(*engine);
  const auto device = make_device("vulkan", 0);
  fault.allocations = 0;
  try {
    device->allocate(size_t{200} << 20);
    FAIL("memory came from nowhere");
  } catch (const Error& error) {
    CHECK(has(error.message(), "200.0 MiB was needed"));
  }
  fault.none();
  CHECK(device->allocate(size_t{200} << 20)->bytes() == size_t{200} << 20);
  CHECK(tokens(*engine) == want);
}

TEST_CASE("memory that a device lacks for a step ends its requests, and those after them are computed") {
  VulkanFaults& fault = faults();
  const auto engine = Engine::load(config());
  const std::vector<int32_t> want = tokens(*engine);
  for (std::atomic<int>* const kind : {&fault.short_submits, &fault.allocations}) {
    std::vector<std::shared_ptr<Stream>> streams;
    for (int i = 0; i < 3; ++i) streams.push_back(engine->submit(request(i, 120)));
    for (const auto& stream : streams) REQUIRE_FALSE(stream->wait().finished());
    *kind = 0;
    for (const auto& stream : streams) {
      const std::string error = message(drain(*stream));
      if (kind == &fault.allocations) {
        CHECK(error.empty());  // a step that is like those before takes none
      } else {
        CHECK(has(error, "ran out in submitting commands"));
      }
    }
    fault.none();
    const EngineMetrics metrics = engine->metrics();
    CHECK(metrics.running == 0);
    CHECK(metrics.blocks_free == metrics.blocks_total);
    CHECK(tokens(*engine) == want);
  }
}

TEST_CASE(
    "through the C ABI a lost device is an error of the call, freeing works and so does the next load") {
  VulkanFaults& fault = faults();
  const std::string path = tiny::folder("llama");
  vllm_model_params params = vllm_model_params_default();
  params.model_path = path.c_str();
  params.block_size = 16;
  params.num_blocks = 64;
  params.max_model_len = 256;
  vllm_sampling_params sampling = vllm_sampling_params_default();
  sampling.temperature = 0;
  sampling.max_tokens = 20;
  sampling.ignore_eos = 1;
  std::string texts[2];
  for (std::string& text : texts) {
    vllm_engine* engine = nullptr;
    REQUIRE(vllm_ext_load(&params, R"({"device": "vulkan"})", &engine) == VLLM_OK);
    vllm_completion out;
    REQUIRE(vllm_complete(engine, "The quick brown fox", &sampling, &out) == VLLM_OK);
    text = out.text;
    vllm_completion_free(&out);
    fault.submits = 4;
    for (int i = 0; i < 2; ++i) {
      CHECK(vllm_complete(engine, "The quick brown fox", &sampling, &out) == VLLM_ERR_RUNTIME);
      CHECK(has(vllm_last_error(), "was lost"));
    }
    vllm_engine_free(engine);
    fault.none();
  }
  CHECK(texts[0] == texts[1]);
}
#endif

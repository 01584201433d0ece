// Logits of tiny random models of quantised matrices against llama.cpp: experts, and hybrids with and
// without.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "all_devices.h"
#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "model/model.h"
#include "weights/checkpoint.h"

using namespace vllm;

namespace {

void compare(const std::string& name) {
  CAPTURE(name);
  const std::string folder = FIXTURES "/llama_cpp/", file_name = name + ".json";
  const Json expected = parse_json(read_text_file(folder + file_name), file_name.c_str(), Status::ModelLoad);
  const auto tokens = expected["token_ids"].get<std::vector<int32_t>>();
  const auto n = static_cast<int>(tokens.size());
  const int vocab = expected["logits"]["shape"][1].get<int>();
  const double std = expected["std"].get<double>();
  std::vector<float> want(tokens.size() * static_cast<size_t>(vocab));
  std::ifstream file(folder + expected["logits"]["file"].get<std::string>(), std::ios::binary);
  file.read(reinterpret_cast<char*>(want.data()), static_cast<std::streamsize>(want.size() * sizeof(float)));
  REQUIRE(file.good());

  const auto checkpoint = Checkpoint::open(folder + name + ".gguf");
  std::vector<test::TestDevice> devices = test::all_devices();
  if (test::wanted("cpu")) devices.push_back({"reference", make_reference_device()});
  for (const auto& [kind, device] : devices) {
    CAPTURE(device->description());
    const auto model = Model::load(*checkpoint, *device);
    REQUIRE(model->spec().vocab == vocab);
    if (model->spec().experts.count > 0) CHECK(model->spec().experts.router.renormalise);
    KvCacheSpec spec;
    spec.layers = model->kv_layers();
    spec.block_size = 16;
    spec.num_blocks = 4;
    spec.format = KvFormat::F32;
    const auto cache = device->make_kv_cache(spec);
    const StateCacheSpec state_spec{model->state_layers(), 1};
    const auto states = state_spec.layers.empty() ? nullptr : device->make_state_cache(state_spec);
    StepBatch batch;
    batch.seq_start = {0, n};
    batch.max_blocks = 4;
    batch.block_table = {0, 1, 2, 3};
    batch.state_slots = {0};
    for (int p = 0; p < n; ++p) {
      batch.token_ids.push_back(tokens[static_cast<size_t>(p)]);
      batch.positions.push_back(p);
      batch.logit_rows.push_back(p);
    }
    model->forward(batch, *cache, states.get());
    double worst = 0, sum = 0;
    for (int p = 0; p < n; ++p) {
      const auto row = model->logits(p);
      for (int v = 0; v < vocab; ++v) {
        const double error = (row[v] - want[static_cast<size_t>(p * vocab + v)]) / std;
        worst = std::max(worst, std::fabs(error));
        sum += error * error;
      }
    }
    const double rms = std::sqrt(sum / static_cast<double>(want.size()));
    // llama.cpp rounds activations to int8, as the CPU device does, in blocks of its own; the reference
    // device and Vulkan do not round. What rounding does grows in recurrent layers from token to token.
    const bool rounded = kind != "reference" && !kind.starts_with("vulkan");
    const bool recurrent = states != nullptr;
    CHECK(worst < (recurrent && !rounded ? 0.6 : 0.15));
    CHECK(rms < (recurrent && !rounded ? 0.06 : 0.03));
  }
}

}  // namespace

TEST_CASE("logits of quantised experts agree with llama.cpp") { compare("qwen3moe"); }

TEST_CASE("logits of quantised hybrids agree with llama.cpp") {
  compare("qwen35");
  compare("qwen35moe");
}

// Logits of a tiny random mixture of quantised experts against llama.cpp.
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

TEST_CASE("logits of quantised experts agree with llama.cpp") {
  const std::string folder = FIXTURES "/llama_cpp/";
  const Json expected =
      parse_json(read_text_file(folder + "qwen3moe.json"), "qwen3moe.json", Status::ModelLoad);
  const auto tokens = expected["token_ids"].get<std::vector<int32_t>>();
  const auto n = static_cast<int>(tokens.size());
  const int vocab = expected["logits"]["shape"][1].get<int>();
  const double std = expected["std"].get<double>();
  std::vector<float> want(tokens.size() * static_cast<size_t>(vocab));
  std::ifstream file(folder + expected["logits"]["file"].get<std::string>(), std::ios::binary);
  file.read(reinterpret_cast<char*>(want.data()), static_cast<std::streamsize>(want.size() * sizeof(float)));
  REQUIRE(file.good());

  const auto checkpoint = Checkpoint::open(folder + "qwen3moe.gguf");
  std::vector<test::TestDevice> devices = test::all_devices();
  if (test::wanted("cpu")) devices.push_back({"reference", make_reference_device()});
  for (const auto& [kind, device] : devices) {
    CAPTURE(device->description());
    const auto model = Model::load(*checkpoint, *device);
    REQUIRE(model->spec().vocab == vocab);
    CHECK(model->spec().experts.router.renormalise);
    KvCacheSpec spec;
    spec.layers = model->kv_layers();
    spec.block_size = 16;
    spec.num_blocks = 4;
    spec.format = KvFormat::F32;
    const auto cache = device->make_kv_cache(spec);
    StepBatch batch;
    batch.seq_start = {0, n};
    batch.max_blocks = 4;
    batch.block_table = {0, 1, 2, 3};
    batch.state_slots = {-1};
    for (int p = 0; p < n; ++p) {
      batch.token_ids.push_back(tokens[static_cast<size_t>(p)]);
      batch.positions.push_back(p);
      batch.logit_rows.push_back(p);
    }
    model->forward(batch, *cache);
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
    // device does not round.
    CHECK(worst < 0.15);
    CHECK(rms < 0.03);
  }
}

// Logits and greedy tokens of tiny random models against llama.cpp, from its GGUF files: of float32, and of
// quantised matrices with experts, recurrent layers and both.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "all_devices.h"
#include "base/mapped_file.h"
#include "edited_checkpoint.h"
#include "model_logits.h"
#include "tiny_models.h"

using namespace vllm;
using vllm::test::logits_of;

namespace {

const std::string kFolder = FIXTURES "/llama_cpp/";

Json read_json(const std::string& name) {
  return parse_json(read_text_file(kFolder + name), name.c_str(), Status::Unknown);
}

std::vector<test::TestDevice> devices_and_reference() {
  std::vector<test::TestDevice> out = test::all_devices();
  if (test::wanted("cpu")) out.push_back({"reference", make_reference_device()});
  return out;
}

/// Each of llama.cpp's greedy tokens must be the best after those before it, unless its own second best was
/// less than `tie` behind.
void check_greedy(Model& model, Device& device, const Json& greedy, double tie) {
  auto tokens = greedy["prompt_ids"].get<std::vector<int32_t>>();
  const auto ids = greedy["token_ids"].get<std::vector<int32_t>>();
  REQUIRE(ids.size() == 24);
  const size_t first = tokens.size() - 1;
  tokens.insert(tokens.end(), ids.begin(), ids.end());
  const std::vector<float> logits = logits_of(model, device, tokens);
  const auto vocab = static_cast<ptrdiff_t>(model.spec().vocab);
  for (size_t step = 0; step < ids.size(); ++step) {
    const auto row = logits.begin() + static_cast<ptrdiff_t>(first + step) * vocab;
    if (std::max_element(row, row + vocab) - row == ids[step]) continue;
    CAPTURE(step);
    CHECK(greedy["top2_gap"][step].get<double>() < tie);
  }
}

struct Difference {
  Difference(const std::vector<float>& a, const std::vector<float>& b, double scale) {
    REQUIRE(a.size() == b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      const double error = (static_cast<double>(a[i]) - b[i]) / scale;
      worst = std::max(worst, std::fabs(error));
      rms += error * error;
    }
    rms = std::sqrt(rms / static_cast<double>(a.size()));
  }
  double worst = 0, rms = 0;
};

/// Of a file that make_llama_quantised_fixtures.py wrote.
void compare_quantised(const std::string& name) {
  CAPTURE(name);
  const Json expected = read_json(name + ".json");
  const auto tokens = expected["token_ids"].get<std::vector<int32_t>>();
  const double std = expected["std"].get<double>();
  const auto stored = [&](const std::string& file_name) {
    std::vector<float> out = tiny::floats(kFolder + file_name);
    REQUIRE(out.size() == tokens.size() * expected["shape"][1].get<size_t>());
    return out;
  };
  const std::vector<float> exact = stored(name + "_exact.f32"), rounded = stored(name + "_logits.f32");
  const Difference theirs(rounded, exact, std);

  const auto checkpoint = Checkpoint::open(kFolder + name + ".gguf");
  const test::TempDir folder;
  const ConvertedCheckpoint in_float(*checkpoint, Format::F32, folder);
  for (const auto& each : devices_and_reference()) {
    Device& device = *each.device;
    CAPTURE(each.kind);
    CAPTURE(device.description());
    const auto plain = Model::load(in_float, device);
    if (plain->spec().experts.count > 0) CHECK(plain->spec().experts.router.renormalise);
    CHECK(Difference(logits_of(*plain, device, tokens), exact, std).worst < 1e-4);
    check_greedy(*plain, device, expected["greedy"], 2e-4 * std);

    const auto model = Model::load(*checkpoint, device);
    const std::vector<float> logits = logits_of(*model, device, tokens);
    const Difference ours(logits, exact, std);
    if (each.kind == "reference" || !each.int8()) {
      CHECK(ours.worst < 1e-4);
      check_greedy(*model, device, expected["greedy"], 2e-4 * std);
      continue;
    }
    // Activations are rounded to int8 here and in llama.cpp, which must not be much nearer to the exact
    // logits.
    CHECK(ours.worst < 1.05 * theirs.worst);
    CHECK(ours.rms < 1.05 * theirs.rms);
    check_greedy(*model, device, expected["greedy"], 2 * theirs.worst * std);
    // The CPU device rounds in the blocks of llama.cpp, which keeps the scales of blocks of 32 in float16.
    if (each.vulkan()) continue;
    const Difference between(logits, rounded, std);
    CHECK(between.worst < 0.13);
    CHECK(between.rms < 0.025);
  }
}

}  // namespace

TEST_CASE("logits and greedy tokens of the float GGUF files agree with llama.cpp") {
  const Json json = read_json("tiny.json");
  REQUIRE(json["cases"].size() >= 13);
  for (const auto& [kind, device] : devices_and_reference()) {
    CAPTURE(kind);
    CAPTURE(device->description());
    for (const Json& c : json["cases"]) {
      const auto name = c["name"].get<std::string>();
      CAPTURE(name);
      const tiny::Expected expected = tiny::expected(name.substr(0, name.find('/')));
      const auto model = Model::load(*Checkpoint::open(tiny::folder(name)), *device);
      const std::vector<float> logits = logits_of(*model, *device, expected.token_ids);
      double difference = 0;
      REQUIRE(c["top"].size() == expected.token_ids.size());
      for (size_t row = 0; row < c["top"].size(); ++row)
        for (const Json& entry : c["top"][row]) {
          const size_t at = row * static_cast<size_t>(expected.vocab) + entry[0].get<size_t>();
          difference =
              std::max(difference, std::fabs(static_cast<double>(logits[at]) - entry[1].get<double>()));
        }
      // its GELU is a table of float16
      const double bound = (name.starts_with("gemma") ? 6e-3 : 5e-4) * expected.std;
      CHECK(difference < bound);
      check_greedy(*model, *device, c["greedy"], 2 * bound);
    }
  }
}

TEST_CASE("logits and greedy tokens of quantised experts agree with llama.cpp") {
  compare_quantised("qwen3moe");
}

TEST_CASE("logits and greedy tokens of quantised hybrids agree with llama.cpp") {
  compare_quantised("qwen35");
  compare_quantised("qwen35moe");
}

TEST_CASE("logits and greedy tokens of weights with scales in tensors of their own agree with llama.cpp") {
  compare_quantised("qwen35moe_nvfp4");
}

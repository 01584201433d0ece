// Mixtures of experts: how often their weights are read, and files that they do not match.
#include <doctest/doctest.h>

#include <sstream>

#include "all_devices.h"
#include "device/tracing_device.h"
#include "edited_checkpoint.h"
#include "model_logits.h"
#include "tiny_models.h"

using namespace vllm;

namespace {

/// Logits of every 100th of 600 positions and of the last one.
std::vector<float> some_logits(Model& model, Device& device, int step) {
  std::vector<int32_t> tokens;
  for (int p = 0; p < 600; ++p) tokens.push_back((p * p + 7 * p) % model.spec().vocab);
  return test::logits_in_steps(model, device, tokens, step, [](int p) { return p % 100 == 0 || p == 599; });
}

/// Calls of Device::experts since the last report.
int calls_of_experts(TracingDevice& device) {
  std::istringstream report(device.take_report());
  int calls = 0;
  for (std::string line; std::getline(report, line);) {
    if (!line.starts_with("  experts ")) continue;
    const size_t end = line.find(" calls");
    calls += std::stoi(line.substr(line.find_last_of(' ', end - 1)));
  }
  return calls;
}

}  // namespace

TEST_CASE(
    "a long step reads each expert once, keeps its memory within the plan and has the bits of short steps") {
  for (const char* name : {"qwen3-moe", "qwen3-moe-sparse", "qwen3_5-moe", "qwen2-moe"}) {
    CAPTURE(name);
    const auto checkpoint = Checkpoint::open(tiny::folder(name));
    for (test::TestDevice& each : test::all_devices()) {
      CAPTURE(each.kind);
      const auto device = make_tracing_device(std::move(each.device));
      const auto model = Model::load(*checkpoint, *device);
      int mixtures = 0;
      for (const LayerSpec& layer : model->spec().layers) mixtures += layer.experts;
      REQUIRE(mixtures > 0);
      const std::vector<float> whole = some_logits(*model, *device, 600);
      CHECK(calls_of_experts(*device) == mixtures);
      CHECK(model->workspace_bytes() <= model->workspace_bytes(600, 7));
      CHECK(some_logits(*model, *device, 200) == whole);
      CHECK(calls_of_experts(*device) == 3 * mixtures);
    }
  }
}

TEST_CASE(
    "FILE-07 FILE-09 experts that do not match their file are refused with the tensor's or the key's name") {
  const auto has = [](const std::string& text, const std::string& part) {
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  };
  const std::string last = "model.layers.1.mlp.experts.";
  const auto apart = Checkpoint::open(tiny::folder("qwen3-moe"));
  CHECK(refusal(*apart, [](EditedCheckpoint&) {}).empty());
  const auto erased = [&](const std::string& name) {
    return refusal(*apart, [&](EditedCheckpoint& e) { REQUIRE(e.weights_.erase(name) == 1); });
  };
  has(erased(last + "7.up_proj.weight"),
      "1 tensors of the Qwen3MoeForCausalLM model are missing: " + last + "7.up_proj.weight");
  has(erased(last + "0.gate_proj.weight"), "1 tensors of the Qwen3MoeForCausalLM model are missing");
  has(erased("model.layers.0.mlp.gate.weight"), "model.layers.0.mlp.gate.weight");
  has(refusal(*apart, [](EditedCheckpoint& e) { e.config_["num_experts_per_tok"] = 13; }),
      "num_experts_per_tok");
  has(refusal(*apart, [](EditedCheckpoint& e) { e.config_["num_experts_per_tok"] = 0; }),
      "num_experts_per_tok");
  has(refusal(*apart, [](EditedCheckpoint& e) { e.config_["num_experts"] = 1 << 20; }), "num_experts");
  has(refusal(*apart, [](EditedCheckpoint& e) { e.config_["num_experts"] = 11; }), "mlp.gate.weight");
  has(refusal(*apart, [](EditedCheckpoint& e) { e.config_["moe_intermediate_size"] = 27; }),
      "experts.0.gate_proj.weight");
  has(refusal(*apart, [](EditedCheckpoint& e) { e.config_["decoder_sparse_step"] = 0; }),
      "decoder_sparse_step");
  has(refusal(*apart, [](EditedCheckpoint& e) { e.config_["mlp_only_layers"] = {0}; }),
      "layers.0.mlp.gate_proj.weight");
  has(refusal(*apart,
              [&](EditedCheckpoint& e) {  // an expert too many
                e.weights_[last + "12.up_proj.weight"] = e.weights_[last + "11.up_proj.weight"];
              }),
      last + "12.up_proj.weight");

  const std::string stack = "model.layers.3.mlp.experts.";
  const auto together = Checkpoint::open(tiny::folder("qwen3-moe-sparse"));
  CHECK(refusal(*together, [](EditedCheckpoint&) {}).empty());
  has(refusal(
          *together,
          [&](EditedCheckpoint& e) { e.weights_[stack + "5.up_proj.weight"] = e.weights_.begin()->second; }),
      "the experts are there twice, in " + stack + "5.up_proj.weight and in " + stack + "down_proj");
  has(refusal(*together, [&](EditedCheckpoint& e) { e.weights_.erase(stack + "gate_up_proj"); }),
      "1 tensors of the Qwen3MoeForCausalLM model are missing: " + stack + "gate_up_proj");
  has(refusal(*together, [&](EditedCheckpoint& e) { e.weights_.erase(stack + "down_proj"); }),
      "1 tensors of the Qwen3MoeForCausalLM model are missing: " + stack + "down_proj");
  has(refusal(*together,
              [&](EditedCheckpoint& e) {
                auto& shape = e.weights_[stack + "gate_up_proj"].shape;
                std::swap(shape[0], shape[1]);
              }),
      stack + "gate_up_proj is 56 x 12 x 32, needed is 12 x 56 x 32");
  has(refusal(*together, [&](EditedCheckpoint& e) { e.weights_[stack + "down_proj"].shape = {12 * 32, 28}; }),
      stack + "down_proj is 384 x 28, needed is 12 x 32 x 28");

  const auto shared = Checkpoint::open(tiny::folder("qwen2-moe"));
  has(refusal(*shared,
              [](EditedCheckpoint& e) { e.weights_.erase("model.layers.0.mlp.shared_expert_gate.weight"); }),
      "layers.0.mlp.shared_expert_gate.weight");
  has(refusal(*shared, [](EditedCheckpoint& e) { e.config_["shared_expert_intermediate_size"] = 35; }),
      "shared_expert.gate_proj.weight");

  const auto file = Checkpoint::open(tiny::folder("qwen3-moe") + "/qwen3moe.gguf");
  const auto metadata = [&](const char* key, const Json& value) {
    return refusal(*file, [&](EditedCheckpoint& e) { e.config_[key] = value; });
  };
  CHECK(metadata("qwen3moe.expert_count", 12).empty());
  has(metadata("qwen3moe.expert_used_count", 13), "qwen3moe.expert_used_count is 13");
  has(metadata("qwen3moe.expert_count", 0), "qwen3moe.expert_count is 0");
  has(metadata("qwen3moe.expert_gating_func", 2), "qwen3moe.expert_gating_func is 2");
  has(metadata("qwen3moe.expert_feed_forward_length", 56),
      "blk.0.ffn_gate_exps.weight is 12 x 28 x 32, needed is 12 x 56 x 32");
}

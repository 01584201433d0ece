// Hybrids of gated DeltaNet and attention: what is read, and what is refused by name.
#include <doctest/doctest.h>

#include <map>

#include "edited_checkpoint.h"
#include "tiny_models.h"

using namespace vllm;

TEST_CASE("a hybrid is read beside a vision tower, and refused by name where it is not understood") {
  const auto checkpoint = Checkpoint::open(tiny::folder("qwen3_5"));
  const auto message = [&](const auto& edit) { return refusal(*checkpoint, edit); };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  const auto nest = [](EditedCheckpoint& e) {
    std::map<std::string, Weight, std::less<>> renamed;
    for (const auto& [name, weight] : e.weights_) {
      Weight moved = weight;
      if (name.starts_with("model.")) moved.name = "model.language_model." + name.substr(6);
      renamed.emplace(moved.name, moved);
    }
    renamed["model.visual.blocks.0.norm1.weight"] = renamed.begin()->second;
    renamed["mtp.fc.weight"] = renamed.begin()->second;
    e.weights_ = renamed;
    e.config_["architectures"] = {"Qwen3_5ForConditionalGeneration"};
  };
  CHECK(message([](EditedCheckpoint&) {}).empty());
  CHECK(message(nest).empty());
  CHECK(has(message([&](EditedCheckpoint& e) {
              const Weight norm = e.weights_.at("model.layers.0.input_layernorm.weight");
              nest(e);
              e.weights_["model.layers.0.input_layernorm.weight"] = norm;
            }),
            "model.language_model."));
  const auto with = [&](const char* key, const Json& value) {
    return message([&](EditedCheckpoint& e) { e.config_[key] = value; });
  };
  CHECK(with("output_gate_type", "swish").empty());
  CHECK(with("output_gate_type", "sigmoid").empty());
  CHECK(has(with("output_gate_type", "tanh"), "output_gate_type"));
  CHECK(has(with("layer_scale", true), "layer_scale"));
  CHECK(has(with("hidden_act", "gelu_pytorch_tanh"), "hidden_act"));
  CHECK(has(with("layer_types", {"linear_attention", "full_attention"}), "layer_types"));
  CHECK(has(with("layer_types", {"linear_attention", "full_attention", "linear_attention",
                                 "sliding_attention", "linear_attention"}),
            "layer_types"));
  CHECK(has(with("full_attention_interval", 9), "full_attention_interval"));
  CHECK(has(with("full_attention_interval", 0), "full_attention_interval"));
  CHECK(has(with("full_attention_interval", 3), "missing"));
  CHECK(has(with("attn_output_gate", false), "q_proj.weight"));
  CHECK(has(with("linear_num_value_heads", 5), "linear_num_value_heads"));
  CHECK(has(with("linear_num_key_heads", 0), "linear_num_key_heads"));
  CHECK(has(with("linear_key_head_dim", 1 << 30), "linear_key_head_dim"));
  CHECK(has(with("linear_value_head_dim", 41), "linear_attn"));
  CHECK(has(with("linear_conv_kernel_dim", 5), "conv1d"));
  CHECK(has(with("linear_conv_kernel_dim", 17), "linear_conv_kernel_dim"));
  CHECK(has(message([](EditedCheckpoint& e) { e.config_.erase("head_dim"); }), "head_dim"));
  CHECK(has(message([](EditedCheckpoint& e) { e.weights_.erase("model.layers.0.linear_attn.A_log"); }),
            "A_log"));

  // A decay that a converter took the exponential of once too often, or not at all.
  const auto file = Checkpoint::open(tiny::folder("qwen3_5") + "/qwen35.gguf");
  const Weight* decay = file->find("blk.0.ssm_a");
  REQUIRE(decay != nullptr);
  EditedCheckpoint edited(*file);
  std::vector<float> values(6, 0.5f);
  edited.weights_["blk.0.ssm_a"].data = reinterpret_cast<const uint8_t*>(values.data());
  const auto device = make_reference_device();
  CHECK_THROWS_WITH_AS(Model::load(edited, *device), doctest::Contains("ssm_a"), Error);
}

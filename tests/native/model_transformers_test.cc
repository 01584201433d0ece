// Logits of tiny random checkpoints against transformers, on the reference device and the CPU device.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "all_devices.h"
#include "edited_checkpoint.h"
#include "tiny_models.h"

using namespace vllm;

namespace {

struct Case {
  const char* folder;
  const char* file;  // "" is the Hugging Face folder itself
  int wanted_length = 0;
};

const Case kCases[] = {{"llama", ""},
                       {"llama", "/llama.gguf"},
                       {"mistral", ""},
                       {"qwen2", ""},
                       {"qwen2-f16", ""},
                       {"qwen3", ""},
                       {"qwen3", "/qwen3.gguf"},
                       {"qwen3-bf16", ""},
                       {"qwen3_5", ""},
                       {"qwen3_5", "/qwen35.gguf"},
                       {"qwen3_5-moe", ""},
                       {"qwen3_5-moe", "/qwen35moe.gguf"},
                       {"qwen3-next", ""},
                       {"qwen3-next", "/qwen3next.gguf"},
                       {"gemma3", ""},
                       {"gemma3-old", ""},
                       {"gemma3-old", "/gemma3.gguf"},
                       {"phi3", ""},
                       {"phi3", "/phi3.gguf"},
                       {"phi3-short", "", 64},
                       {"granite", ""},
                       {"granite", "/granite.gguf"},
                       {"minicpm", ""},
                       {"minicpm", "/minicpm.gguf"},
                       {"olmo2", ""},
                       {"olmo2", "/olmo2.gguf"},
                       {"glm4", ""},
                       {"glm4", "/glm4.gguf"},
                       {"gemma2", ""},
                       {"gemma2", "/gemma2.gguf"},
                       {"llama-yarn", ""},
                       {"llama-yarn", "/llama.gguf"},
                       {"llama-dynamic", ""},
                       {"qwen2-window", ""},
                       {"qwen3-window", ""},
                       {"qwen3-moe", ""},
                       {"qwen3-moe", "/qwen3moe.gguf"},
                       {"qwen3-moe-sparse", ""},
                       {"qwen2-moe", ""},
                       {"qwen2-moe", "/qwen2moe.gguf"},
                       {"mixtral", ""},
                       {"mixtral", "/mixtral.gguf"}};

/// Null for a model without recurrent layers.
std::unique_ptr<StateCache> make_states(const Model& model, Device& device, int slots) {
  const StateCacheSpec spec{model.state_layers(), slots};
  return spec.layers.empty() ? nullptr : device.make_state_cache(spec);
}

/// Logits of every position, the sequence cut into steps at `cuts`. Two more sequences with other tokens ride
/// along when `crowd` is set. The memory of the first steps has been used before.
std::vector<float> run(Model& model, Device& device, const std::vector<int32_t>& tokens,
                       std::vector<int> cuts, bool crowd, KvFormat format = KvFormat::F32) {
  KvCacheSpec spec;
  spec.layers = model.kv_layers();
  spec.block_size = 16;
  spec.num_blocks = 16;
  spec.format = format;
  const auto cache = device.make_kv_cache(spec);
  const auto states = make_states(model, device, 4);
  const int n = static_cast<int>(tokens.size());
  StepBatch other;
  other.token_ids.assign(5, 11);
  other.positions = {0, 1, 2, 3, 4};
  other.seq_start = {0, 5};
  other.block_table = {9};
  other.max_blocks = 1;
  other.state_slots = {2};
  model.forward(other, *cache, states.get());
  cuts.push_back(n);
  std::vector<float> out;
  int begin = 0;
  for (int end : cuts) {
    StepBatch batch;
    batch.max_blocks = 4;
    batch.seq_start = {0};
    const auto add = [&](int shift, std::vector<int32_t> blocks, int slot, bool logits) {
      for (int p = begin; p < end; ++p) {
        if (logits) batch.logit_rows.push_back(batch.rows());
        batch.token_ids.push_back((tokens[p] + shift) % model.spec().vocab);
        batch.positions.push_back(p);
      }
      batch.seq_start.push_back(batch.rows());
      batch.block_table.insert(batch.block_table.end(), blocks.begin(), blocks.end());
      batch.state_slots.push_back(slot);
    };
    if (crowd) add(7, {5, 6, 7, -1}, 3, false);
    add(0, {9, 2, 12, -1}, 2, true);  // blocks need not be in order
    if (crowd) add(31, {13, 14, 15, -1}, 0, false);
    model.forward(batch, *cache, states.get());
    for (int p = begin; p < end; ++p) {
      const auto row = model.logits(p - begin);
      out.insert(out.end(), row.begin(), row.end());
    }
    begin = end;
  }
  return out;
}

double worst(const std::vector<float>& a, const std::vector<float>& b, float scale) {
  double out = 0;
  for (size_t i = 0; i < a.size(); ++i)
    out = std::max(out, static_cast<double>(std::fabs(a[i] - b[i]) / scale));
  return out;
}

double rms(const std::vector<float>& a, const std::vector<float>& b, float scale) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(static_cast<double>(a[i] - b[i]) / scale, 2);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

}  // namespace

TEST_CASE("logits agree with transformers in float32, whole and in chunks") {
  std::vector<test::TestDevice> devices = test::all_devices();
  std::erase_if(devices, [](const test::TestDevice& each) { return each.variant(); });  // no codes here
  if (test::wanted("cpu")) devices.push_back({"reference", make_reference_device()});
  for (const Case& c : kCases) {
    CAPTURE(c.folder);
    CAPTURE(c.file);
    const tiny::Expected expected = tiny::expected(c.folder);
    const auto checkpoint = Checkpoint::open(tiny::folder(c.folder) + c.file);
    for (const auto& [kind, device] : devices) {
      CAPTURE(device->description());
      const auto model = Model::load(*checkpoint, *device, c.wanted_length);
      REQUIRE(model->spec().vocab == expected.vocab);
      const std::vector<float> whole = run(*model, *device, expected.token_ids, {}, false);
      REQUIRE(whole.size() == expected.logits.size());
      // bf16 weights are multiplied with bf16 activations where the machine has the instruction. The bound
      // then is how far transformers' own bfloat16 run of this checkpoint is from its float32 run: 0.139 at
      // worst, 0.0164 rms.
      const std::string described = device->description();
      const bool rounds =
          std::string(c.folder) == "qwen3-bf16" &&
          (described.find("bf16") != std::string::npos || described.find("(amx") != std::string::npos);
      CHECK(worst(whole, expected.logits, expected.std) < (rounds ? 0.139 : 1e-3));
      CHECK(rms(whole, expected.logits, expected.std) < (rounds ? 0.0164 : 1e-3));
      // The same bits however the sequence is cut and whoever else is in the batch.
      CHECK(run(*model, *device, expected.token_ids, {1, 2, 17, 30}, false) == whole);
      CHECK(run(*model, *device, expected.token_ids, {}, true) == whole);
      std::vector<int> singles;
      for (int i = 1; i < static_cast<int>(expected.token_ids.size()); ++i) singles.push_back(i);
      CHECK(run(*model, *device, expected.token_ids, singles, true) == whole);
    }
  }
}

TEST_CASE("logits through a q8_0 cache stay near those of transformers") {
  for (const char* name : {"llama", "qwen3", "gemma3", "phi3", "qwen3_5", "mixtral"}) {
    CAPTURE(name);
    const tiny::Expected expected = tiny::expected(name);
    const auto checkpoint = Checkpoint::open(tiny::folder(name));
    const auto device = make_cpu_device(2);
    const auto model = Model::load(*checkpoint, *device);
    const std::vector<float> whole = run(*model, *device, expected.token_ids, {}, false, KvFormat::Q8_0);
    // Keys and values err by about half a percent of their size.
    CHECK(rms(whole, expected.logits, expected.std) < 0.02);
    CHECK(rms(whole, expected.logits, expected.std) > 1e-4);
    CHECK(run(*model, *device, expected.token_ids, {1, 2, 17, 30}, true, KvFormat::Q8_0) == whole);
  }
}

TEST_CASE("every number of an architecture shows in the logits") {
  struct Change {
    const char* file;
    const char* key;
    Json value;
  };
  const Change changes[] = {
      {"granite", "embedding_multiplier", 7},
      {"granite", "attention_multiplier", 0.25},
      {"granite", "residual_multiplier", 0.3},
      {"granite", "logits_scaling", 4},
      {"granite/granite.gguf", "granite.embedding_scale", 7},
      {"granite/granite.gguf", "granite.attention.scale", 0.25},
      {"granite/granite.gguf", "granite.residual_scale", 0.3},
      {"granite/granite.gguf", "granite.logit_scale", 4},
      {"minicpm", "scale_emb", 8},
      {"minicpm", "scale_depth", 1.6},
      {"minicpm", "dim_model_base", 32},
      {"gemma2", "attn_logit_softcapping", 6},
      {"gemma2", "attn_logit_softcapping", nullptr},
      {"gemma2", "final_logit_softcapping", 3},
      {"gemma2", "sliding_window", 9},
      {"gemma2", "layer_types", {"full_attention", "sliding_attention", "full_attention"}},
      {"glm4", "partial_rotary_factor", 1},
      {"glm4/glm4.gguf", "glm4.rope.dimension_count", 4},
      {"phi3", "original_max_position_embeddings", 600},
      {"phi3-short", "sliding_window", nullptr},
      {"phi3/phi3.gguf", "phi3.rope.scaling.attn_factor", 1},
      {"phi3/phi3.gguf", "phi3.rope.scaling.original_context_length", 600},
      {"llama-yarn/llama.gguf", "llama.rope.scaling.yarn_beta_fast", 4},
      {"llama-yarn/llama.gguf", "llama.rope.scaling.yarn_beta_slow", 1},
      {"llama-dynamic", "rope_scaling", {{"type", "dynamic"}, {"factor", 3}}},
      {"qwen2-window", "max_window_layers", 2},
      {"qwen2-window", "use_sliding_window", false},
      {"qwen3-window", "layer_types", nullptr},
  };
  const auto device = make_reference_device();
  for (const Change& change : changes) {
    const std::string name = change.file, key = change.key;
    CAPTURE(name);
    CAPTURE(key);
    const tiny::Expected expected = tiny::expected(name.substr(0, name.find('/')));
    EditedCheckpoint edited(*Checkpoint::open(tiny::folder(name)));
    REQUIRE(edited.config_.value(key, Json()) != change.value);
    edited.config_[key] = change.value;
    const auto model = Model::load(edited, *device);
    const auto logits = run(*model, *device, expected.token_ids, {}, false);
    CHECK(worst(logits, expected.logits, expected.std) > 1e-2);
  }
}

TEST_CASE("a step longer than a slice gives the same logits as short ones") {
  const auto device = make_cpu_device(2);
  for (const char* name : {"llama", "qwen3_5"}) {
    CAPTURE(name);
    const auto checkpoint = Checkpoint::open(tiny::folder(name));
    const auto model = Model::load(*checkpoint, *device);
    KvCacheSpec spec;
    spec.layers = model->kv_layers();
    spec.block_size = 16;
    spec.num_blocks = 80;
    const int n = 1200;
    const auto logits_of = [&](int chunk) {
      const auto cache = device->make_kv_cache(spec);
      const auto states = make_states(*model, *device, 1);
      for (int begin = 0; begin < n; begin += chunk) {
        const int end = std::min(n, begin + chunk);
        StepBatch batch;
        batch.seq_start = {0, end - begin};
        batch.max_blocks = 75;
        for (int b = 0; b < 75; ++b) batch.block_table.push_back(b);
        batch.state_slots = {0};
        for (int p = begin; p < end; ++p) {
          batch.token_ids.push_back(p * 31 % 300);
          batch.positions.push_back(p);
        }
        if (end == n) batch.logit_rows = {end - begin - 1};
        model->forward(batch, *cache, states.get());
      }
      const auto row = model->logits(0);
      return std::vector<float>(row.begin(), row.end());
    };
    const std::vector<float> whole = logits_of(n);
    CHECK(logits_of(100) == whole);
    CHECK(logits_of(512) == whole);
  }
}

TEST_CASE("FILE-07 FILE-09 FILE-13 a model that does not match its file is refused with the tensor's name") {
  const auto checkpoint = Checkpoint::open(tiny::folder("qwen2"));
  const auto message = [&](const auto& edit) { return refusal(*checkpoint, edit); };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  CHECK(message([](EditedCheckpoint&) {}).empty());
  CHECK(has(message([](EditedCheckpoint& e) { e.weights_.erase("model.layers.0.mlp.up_proj.weight"); }),
            "layers.0.mlp.up_proj.weight"));
  CHECK(has(message([](EditedCheckpoint& e) { e.weights_.erase("model.layers.1.self_attn.k_proj.bias"); }),
            "layers.1.self_attn.k_proj.bias"));
  CHECK(has(message([](EditedCheckpoint& e) {
              e.weights_["model.layers.0.extra.weight"] = e.weights_.begin()->second;
            }),
            "layers.0.extra.weight"));
  CHECK(has(message([](EditedCheckpoint& e) { e.config_["num_hidden_layers"] = 9; }), "are missing"));
  CHECK(has(message([](EditedCheckpoint& e) { e.config_["hidden_size"] = 65; }), "num_attention_heads"));
  CHECK(has(message([](EditedCheckpoint& e) { e.config_["intermediate_size"] = 4; }), "gate_proj.weight"));
  CHECK(has(message([](EditedCheckpoint& e) { e.config_["num_attention_heads"] = 0; }),
            "num_attention_heads is 0"));
  CHECK(
      has(message([](EditedCheckpoint& e) { e.config_["num_key_value_heads"] = 2; }), "num_key_value_heads"));
  CHECK(has(message([](EditedCheckpoint& e) { e.config_["rms_norm_eps"] = "small"; }), "rms_norm_eps"));
  CHECK(has(message([](EditedCheckpoint& e) { e.config_["hidden_act"] = "relu"; }), "hidden_act"));
  CHECK(has(message([](EditedCheckpoint& e) { e.config_["architectures"] = {"BertModel"}; }), "BertModel"));
  CHECK(has(message([](EditedCheckpoint& e) {
              e.config_["rope_scaling"] = {{"rope_type", "spiral"}, {"factor", 4.0}};
              e.config_.erase("rope_parameters");
            }),
            "spiral"));
}

TEST_CASE(
    "FILE-08 without an output matrix the embedding is used where that is declared or the file is a GGUF") {
  const auto folder = Checkpoint::open(tiny::folder("mistral"));
  REQUIRE(folder->find("lm_head.weight") != nullptr);
  const auto cut = [](EditedCheckpoint& e) { e.weights_.erase("lm_head.weight"); };
  CHECK(refusal(*folder, [](EditedCheckpoint&) {}).empty());
  CHECK(refusal(*folder, cut).find("lm_head.weight") != std::string::npos);
  CHECK(refusal(*folder, [&](EditedCheckpoint& e) {
          cut(e);
          e.config_["tie_word_embeddings"] = true;
        }).empty());
  CHECK(refusal(*folder,
                [&](EditedCheckpoint& e) {  // absent means untied for this architecture
                  cut(e);
                  e.config_.erase("tie_word_embeddings");
                })
            .find("lm_head.weight") != std::string::npos);

  const auto file = Checkpoint::open(tiny::folder("llama") + "/llama.gguf");
  REQUIRE(file->find("output.weight") == nullptr);
  const auto device = make_reference_device();
  CHECK(Model::load(*file, *device)->spec().tied_embeddings);
}

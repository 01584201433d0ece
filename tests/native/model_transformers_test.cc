// Logits of tiny random checkpoints against transformers, on the reference device and the CPU device.
#include <doctest/doctest.h>

#include <algorithm>
#include <climits>
#include <cmath>

#include "all_devices.h"
#include "edited_checkpoint.h"
#include "model_logits.h"
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

/// A sequence of a batch: where its keys, values and states are, and how much of it has run.
struct Sequence {
  std::vector<int32_t> tokens;
  std::vector<int32_t> blocks;  // of 16 tokens each; need not be in order
  int slot = 0;
  int done = 0;

  void join(StepBatch& batch, int rows, int logits_from = INT_MAX) {
    if (batch.seq_start.empty()) batch.seq_start = {0};
    for (const int end = done + rows; done < end; ++done) {
      if (done >= logits_from) batch.logit_rows.push_back(batch.rows());
      batch.token_ids.push_back(tokens[static_cast<size_t>(done)]);
      batch.positions.push_back(done);
    }
    batch.seq_start.push_back(batch.rows());
    batch.max_blocks = 4;
    batch.block_table.insert(batch.block_table.end(), blocks.begin(), blocks.end());
    batch.block_table.resize(4 * (batch.seq_start.size() - 1), -1);
    batch.state_slots.push_back(slot);
  }
};

/// A model with the memory of 16 blocks and 4 states, and sequences of other lengths, places and tokens.
class Rig {
 public:
  Rig(Model& model, Device& device, KvFormat format = KvFormat::F32)
      : model_(model), states_(test::make_states(model, device, 4)) {
    KvCacheSpec spec;
    spec.layers = model.kv_layers();
    spec.block_size = 16;
    spec.num_blocks = 16;
    spec.format = format;
    cache_ = device.make_kv_cache(spec);
    before_ = {shifted({}, 7), {5, 6, 7}, 3};
    after_ = {shifted({}, 31), {13, 14, 15}, 0};
    step(before_, 5, INT_MAX, false);  // so the two are never at the same position
  }

  /// `tokens`, then others that depend on `shift`.
  std::vector<int32_t> shifted(std::vector<int32_t> tokens, int shift) const {
    while (tokens.size() < 48)
      tokens.push_back(static_cast<int32_t>(tokens.size() * 37 + static_cast<size_t>(shift) * 11) %
                       model_.spec().vocab);
    return tokens;
  }

  /// Runs `rows` more tokens; the logits of those from position `logits_from` on are kept.
  void step(Sequence& sequence, int rows, int logits_from, bool crowd, Sequence* sibling = nullptr) {
    StepBatch batch;
    const int n = steps_++;
    if (crowd) company(before_, 1 + 5 * n % 7, batch);
    if (sibling != nullptr) sibling->join(batch, 2);
    sequence.join(batch, rows, logits_from);
    if (crowd && n % 3 != 1) company(after_, n == 2 ? 45 : 1 + 11 * n % 13, batch);
    model_.forward(batch, *cache_, states_.get());
    test::append_logits(model_, batch, logits);
  }

  StateCache* states() { return states_.get(); }
  std::vector<float> logits;

 private:
  void company(Sequence& sequence, int rows, StepBatch& batch) {
    if (sequence.done + rows > static_cast<int>(sequence.tokens.size())) sequence.done = 0;  // the next one
    sequence.join(batch, rows);
  }

  Model& model_;
  std::unique_ptr<StateCache> states_;
  std::unique_ptr<KvCache> cache_;
  Sequence before_, after_;
  int steps_ = 0;
};

/// Logits of every position, the sequence cut into steps at `cuts`. The memory of the first steps has been
/// used before. With `crowd`, other sequences come and go in the same steps.
std::vector<float> run(Model& model, Device& device, const std::vector<int32_t>& tokens,
                       std::vector<int> cuts, bool crowd, KvFormat format = KvFormat::F32) {
  Rig rig(model, device, format);
  Sequence used{rig.shifted({}, 3), {9}, 2};
  rig.step(used, 5, INT_MAX, false);
  Sequence sequence{tokens, {9, 2, 12}, 2};
  cuts.push_back(static_cast<int>(tokens.size()));
  for (const int end : cuts) rig.step(sequence, end - sequence.done, 0, crowd);
  return rig.logits;
}

constexpr int kShared = 16;

/// Logits from position kShared on of a sequence whose first block, and state, another one has made that goes
/// on with other tokens in the same steps.
std::vector<float> run_shared(Model& model, Device& device, const std::vector<int32_t>& tokens) {
  Rig rig(model, device);
  Sequence owner{rig.shifted({tokens.begin(), tokens.begin() + kShared}, 3), {9, 2, 12}, 2};
  rig.step(owner, 9, INT_MAX, true);
  rig.step(owner, kShared - 9, INT_MAX, true);
  if (rig.states() != nullptr) device.copy_state(*rig.states(), 2, 1);
  Sequence sequence{tokens, {9, 4, 8}, 1, kShared};
  for (const int end : {kShared + 1, 30, static_cast<int>(tokens.size())})
    rig.step(sequence, end - sequence.done, 0, true, &owner);
  return rig.logits;
}

/// Logits of every position of a sequence that loses its memory to another one after 20 tokens and is
/// computed again elsewhere.
std::vector<float> run_preempted(Model& model, Device& device, const std::vector<int32_t>& tokens) {
  Rig rig(model, device);
  Sequence sequence{tokens, {9, 2}, 2};
  for (const int end : {11, 12, 20}) rig.step(sequence, end - sequence.done, 0, true);
  Sequence other{rig.shifted({}, 3), {2, 9, 12}, 2};
  rig.step(other, 40, INT_MAX, true);
  sequence = {tokens, {8, 10, 4}, 1};
  for (const int end : {18, 26, 27, static_cast<int>(tokens.size())})
    rig.step(sequence, end - sequence.done, 20, true, &other);
  return rig.logits;
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
      // The same bits however the sequence is cut, whoever else is in the batch and whoever made its memory.
      CHECK(run(*model, *device, expected.token_ids, {1, 2, 17, 30}, false) == whole);
      CHECK(run(*model, *device, expected.token_ids, {}, true) == whole);
      std::vector<int> singles;
      for (int i = 1; i < static_cast<int>(expected.token_ids.size()); ++i) singles.push_back(i);
      CHECK(run(*model, *device, expected.token_ids, singles, true) == whole);
      const std::vector<float> rest(whole.begin() + kShared * expected.vocab, whole.end());
      CHECK(run_shared(*model, *device, expected.token_ids) == rest);
      CHECK(run_preempted(*model, *device, expected.token_ids) == whole);
    }
  }
}

namespace {

/// The error of a row in RMS, as the median over the rows of logits, [rows, vocab].
double median_row_error(const std::vector<float>& got, const std::vector<float>& want, size_t rows,
                        float scale) {
  std::vector<double> errors;
  const auto vocab = static_cast<ptrdiff_t>(want.size() / rows);
  for (auto g = got.begin(), w = want.begin(); w != want.end(); g += vocab, w += vocab)
    errors.push_back(rms({g, g + vocab}, {w, w + vocab}, scale));
  std::nth_element(errors.begin(), errors.begin() + static_cast<ptrdiff_t>(rows / 2), errors.end());
  return errors[rows / 2];
}

}  // namespace

TEST_CASE("experts and hybrids in bfloat16 stay near their exact logits") {
  // How far transformers' own run in bfloat16 is from its float32 run of the same weights. Single rows say
  // little: an expert may be another, and the norm of what the first tokens of a DeltaNet read is that of
  // next to nothing.
  const std::pair<const char*, double> bounds[] = {
      {"qwen3-moe", 0.0097}, {"qwen3_5", 0.0276}, {"qwen3_5-moe", 0.0168}};
  for (const auto& [name, bound] : bounds) {
    CAPTURE(std::string(name));
    const tiny::Expected expected = tiny::expected(name);
    const test::TempDir folder;
    const ConvertedCheckpoint checkpoint(*Checkpoint::open(tiny::folder(name)), Format::BF16, folder);
    const auto logits = [&](Device& device, int step = 0) {
      return test::logits_of(*Model::load(checkpoint, device), device, expected.token_ids, step);
    };
    const std::vector<float> exact = logits(*make_reference_device());
    for (const auto& [kind, device] : test::all_devices()) {
      CAPTURE(kind);
      const std::vector<float> whole = logits(*device);
      if (kind == "avx512bf16" || kind == "amx" || kind == "neonbf16") {
        CHECK(median_row_error(whole, exact, expected.token_ids.size(), expected.std) < bound);
      } else {
        CHECK(worst(whole, exact, expected.std) < 1e-3);
      }
      CHECK(logits(*device, 7) == whole);
    }
  }
}

TEST_CASE("a GGUF of Qwen3-Next may hold the input projections of DeltaNet as the fused matrix they were") {
  const tiny::Expected expected = tiny::expected("qwen3-next");
  const auto checkpoint = Checkpoint::open(tiny::folder("qwen3-next"));
  EditedCheckpoint edited(*Checkpoint::open(tiny::folder("qwen3-next") + "/qwen3next.gguf"));
  for (const std::string layer : {"0", "1"}) {
    const Weight* fused = checkpoint->find("model.layers." + layer + ".linear_attn.in_proj_qkvz.weight");
    REQUIRE(fused != nullptr);
    REQUIRE(edited.weights_.erase("blk." + layer + ".attn_qkv.weight") == 1);
    REQUIRE(edited.weights_.erase("blk." + layer + ".attn_gate.weight") == 1);
    Weight& weight = edited.weights_["blk." + layer + ".ssm_in.weight"] = *fused;
    weight.name = "blk." + layer + ".ssm_in.weight";
  }
  const auto device = make_reference_device();
  const auto model = Model::load(edited, *device);
  const std::vector<float> logits = run(*model, *device, expected.token_ids, {}, false);
  CHECK(worst(logits, expected.logits, expected.std) < 1e-3);
}

TEST_CASE("logits of hybrids agree with transformers beyond the chunks that it computes DeltaNet in") {
  std::vector<test::TestDevice> devices = test::all_devices();
  std::erase_if(devices, [](const test::TestDevice& each) { return each.variant(); });  // no codes here
  for (const char* name : {"qwen3_5", "qwen3_5-moe", "qwen3-next"}) {
    CAPTURE(name);
    const std::string folder = tiny::folder(name);
    const Json json = parse_json(read_text_file(folder + "/long.json"), "long.json", Status::Unknown);
    const auto tokens = json["token_ids"].get<std::vector<int32_t>>();
    const std::vector<float> expected = tiny::floats(folder + "/long_logits.f32");
    const auto checkpoint = Checkpoint::open(folder);
    for (const auto& [kind, device] : devices) {
      CAPTURE(device->description());
      const auto model = Model::load(*checkpoint, *device);
      const auto vocab = static_cast<size_t>(model->spec().vocab);
      REQUIRE(expected.size() % vocab == 0);
      const int n = static_cast<int>(tokens.size()), first = n - static_cast<int>(expected.size() / vocab);
      REQUIRE((first > 64 && n > 128));
      const auto last = [&](int position) { return position >= first; };
      const auto logits = [&](int step) {
        return test::logits_in_steps(*model, *device, tokens, step, last, KvFormat::F32);
      };
      const std::vector<float> whole = logits(n);
      REQUIRE(whole.size() == expected.size());
      CHECK(worst(whole, expected, json["std"].get<float>()) < 1e-3);
      CHECK(logits(41) == whole);
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

namespace {

/// The logits of a model of the tiny checkpoint of this name after an edit.
template <typename Edit>
std::vector<float> edited_logits(const std::string& name, const Edit& edit) {
  const tiny::Expected expected = tiny::expected(name.substr(0, name.find('/')));
  EditedCheckpoint edited(*Checkpoint::open(tiny::folder(name)));
  edit(edited);
  const auto device = make_reference_device();
  return test::logits_of(*Model::load(edited, *device), *device, expected.token_ids);
}

void keep(EditedCheckpoint&) {}

}  // namespace

TEST_CASE("the text part of a multimodal Gemma 3 is the model, under both spellings of its tensors") {
  const std::vector<float> want = edited_logits("gemma3", keep);
  for (const std::string prefix : {"language_model.model.", "model.language_model."}) {
    CAPTURE(prefix);
    CHECK(edited_logits("gemma3", [&](EditedCheckpoint& e) {
            std::map<std::string, Weight, std::less<>> renamed;
            for (const auto& [name, weight] : e.weights_) {
              const std::string nested = prefix + name.substr(std::strlen("model."));
              (renamed[nested] = weight).name = nested;
            }
            e.weights_ = std::move(renamed);
            const char* const vision =
                prefix.starts_with("model.") ? "model.vision_tower.x" : "vision_tower.x";
            (e.weights_[vision] = e.weights_.begin()->second).name = vision;
            e.config_["architectures"] = {"Gemma3ForConditionalGeneration"};
          }) == want);
  }
}

TEST_CASE("layers of a GGUF that predict further tokens are left out") {
  const std::vector<float> want = edited_logits("qwen3_5/qwen35.gguf", keep);
  CHECK(edited_logits("qwen3_5/qwen35.gguf", [](EditedCheckpoint& e) {
          const auto depth = e.config_["qwen35.block_count"].get<int>();
          e.config_["qwen35.block_count"] = depth + 1;
          e.config_["qwen35.nextn_predict_layers"] = 1;
          for (const char* end : {".attn_norm.weight", ".nextn.eh_proj.weight"}) {
            const std::string name = "blk." + std::to_string(depth) + end;
            (e.weights_[name] = e.weights_.begin()->second).name = name;
          }
        }) == want);
}

TEST_CASE("keys of a GGUF say what those of Hugging Face say") {
  struct Pair {
    const char *folder, *file;
    Json of_folder, of_file;
  };
  const Pair pairs[] = {
      {"gemma3-old",
       "gemma3-old/gemma3.gguf",
       {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}},
       {{"gemma3.rope.scaling.type", "linear"}, {"gemma3.rope.scaling.factor", 8.0}}},
      {"gemma3-old",
       "gemma3-old/gemma3.gguf",
       {{"rope_local_base_freq", 500.0}},
       {{"gemma3.rope.freq_base_swa", 500.0}}},
      {"qwen3-moe",
       "qwen3-moe/qwen3moe.gguf",
       {{"norm_topk_prob", false}},
       {{"qwen3moe.expert_weights_norm", false}}},
  };
  for (const Pair& pair : pairs) {
    CAPTURE(pair.of_file.dump());
    const auto with = [](const char* name, const Json& changes) {
      return edited_logits(name, [&](EditedCheckpoint& e) { e.config_.update(changes); });
    };
    const float std = tiny::expected(pair.folder).std;
    const std::vector<float> want = with(pair.folder, pair.of_folder);
    CHECK(worst(with(pair.file, pair.of_file), want, std) < 1e-4);
    CHECK(worst(edited_logits(pair.file, keep), want, std) > 1e-2);
  }
  const auto scaled = [](double scale) {
    return edited_logits("qwen3-moe/qwen3moe.gguf",
                         [&](EditedCheckpoint& e) { e.config_["qwen3moe.expert_weights_scale"] = scale; });
  };
  const std::vector<float> want = edited_logits("qwen3-moe/qwen3moe.gguf", keep);
  CHECK(scaled(0.0) == want);  // what converters write where there is none
  CHECK(worst(scaled(2.5), want, 1.0f) > 0.1);
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
    std::vector<int32_t> tokens;
    for (int p = 0; p < 1200; ++p) tokens.push_back(p * 31 % 300);
    const auto last_logits = [&](int step) {
      return test::logits_in_steps(*model, *device, tokens, step, [](int p) { return p == 1199; });
    };
    const std::vector<float> whole = last_logits(1200);
    CHECK(last_logits(100) == whole);
    CHECK(last_logits(512) == whole);
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

// Rotary frequencies of every scaling against transformers, and what is refused.
#include "model/rope.h"

#include <doctest/doctest.h>

#include <functional>
#include <limits>

#include "edited_checkpoint.h"
#include "tiny_models.h"

using namespace vllm;

namespace {

constexpr int kHeadDim = 32;  // of ropes.json

struct Read {
  RopeSpec rope;
  int max_position;
};

Read read_hf(const Json& config, int wanted_length) {
  const Fields fields(config, "config.json");
  ModelSpec spec;
  spec.head_dim = kHeadDim;
  spec.max_position = config["max_position_embeddings"].get<int>();
  spec.wanted_length = wanted_length;
  RopeSpec rope = read_hf_rope(fields, spec);
  return {rope, spec.max_position};
}

void check_same(const RopeSpec& rope, const Json& inv_freq, double magnitude) {
  CHECK(rope.magnitude == doctest::Approx(magnitude).epsilon(1e-6));
  REQUIRE(rope.inv_freq.size() == inv_freq.size());
  for (size_t i = 0; i < rope.inv_freq.size(); ++i) {
    CAPTURE(i);
    CHECK(rope.inv_freq[i] == doctest::Approx(inv_freq[i].get<double>()).epsilon(3e-6));
  }
}

Json cases() {
  return parse_json(read_text_file(tiny::folder("ropes.json")), "ropes.json", Status::Unknown)["cases"];
}

Json config_of(std::string_view name) {
  for (const Json& c : cases())
    if (c["name"] == name) return c["config"];
  FAIL("no such case");
  return {};
}

std::string refused(std::string_view name, const std::function<void(Json&)>& edit) {
  Json config = config_of(name);
  edit(config["rope_scaling"]);
  try {
    read_hf(config, 0);
  } catch (const Error& error) {
    CHECK(error.status() == Status::ModelLoad);
    return error.message();
  }
  return {};
}

}  // namespace

TEST_CASE("frequencies and magnitudes of every scaling agree with transformers") {
  for (const Json& c : cases()) {
    CAPTURE(c["name"]);
    Json config = c["config"];
    check_same(read_hf(config, c["length"].get<int>()).rope, c["inv_freq"], c["magnitude"].get<double>());
    // the newer spelling
    config["rope_parameters"] = config["rope_scaling"];
    config["rope_parameters"]["rope_theta"] = config["rope_theta"];
    config.erase("rope_scaling");
    config.erase("rope_theta");
    check_same(read_hf(config, c["length"].get<int>()).rope, c["inv_freq"], c["magnitude"].get<double>());
  }
}

TEST_CASE("a scaling extends the longest sequence where it says how far") {
  CHECK(read_hf(config_of("linear"), 0).max_position == 4096);
  CHECK(read_hf(config_of("dynamic"), 0).max_position == 3 * 4096);
  CHECK(read_hf(config_of("yarn"), 0).max_position == 4096);  // 4 x 1024 is no more than stated
  CHECK(read_hf(config_of("yarn, no original"), 0).max_position == 4 * 4096);
  CHECK(read_hf(config_of("longrope, long"), 0).max_position == 4096);
}

TEST_CASE("longrope without a wanted length looks at the model's own") {
  const auto inv_freq = [](int length) { return read_hf(config_of("longrope, long"), length).rope.inv_freq; };
  CHECK(inv_freq(0) == inv_freq(4096));
  CHECK(inv_freq(513) == inv_freq(4096));
  CHECK(inv_freq(512) != inv_freq(513));
}

TEST_CASE("names that mean the same") {
  Json mrope = config_of("mrope"), su = config_of("longrope, long");
  const Read plain = read_hf(mrope, 0), longrope = read_hf(su, 0);
  mrope["rope_scaling"]["type"] = "mrope";
  mrope["rope_scaling"].erase("rope_type");
  CHECK(read_hf(mrope, 0).rope.inv_freq == plain.rope.inv_freq);
  su["rope_scaling"]["type"] = "su";
  su["rope_scaling"].erase("rope_type");
  CHECK(read_hf(su, 0).rope.inv_freq == longrope.rope.inv_freq);
}

TEST_CASE("FILE-09 a scaling that cannot be computed is refused by name") {
  struct Bad {
    const char* name;
    const char* key;
    Json value;
    std::string words;
  };
  const Json nan = std::numeric_limits<double>::quiet_NaN();
  const Bad bad[] = {
      {"linear", "rope_type", "spiral", "rope_scaling.rope_type is 'spiral', needed is default"},
      {"linear", "rope_type", 3, "rope_scaling.rope_type is 3"},
      {"linear", "factor", nullptr, "rope_scaling.factor is missing"},
      {"linear", "factor", 0, "rope_scaling.factor is 0"},
      {"linear", "factor", -2, "rope_scaling.factor is -2"},
      {"linear", "factor", nan, "rope_scaling.factor is nan"},
      {"dynamic", "factor", nullptr, "rope_scaling.factor is missing"},
      {"dynamic", "factor", 0.5, "rope_scaling.factor is 0.5"},
      {"dynamic", "alpha", 1000, "rope_scaling.alpha is 1000"},
      {"yarn", "factor", nullptr, "rope_scaling.factor is missing"},
      {"yarn", "factor", 1e300, "rope_scaling.factor is 1.00"},
      {"yarn", "original_max_position_embeddings", 0, "original_max_position_embeddings is 0"},
      {"yarn", "beta_slow", 64, "rope_scaling.beta_slow is 64"},
      {"yarn", "attention_factor", 0, "rope_scaling.attention_factor is 0"},
      {"yarn", "truncate", 1, "rope_scaling.truncate is 1"},
      {"yarn, mscale", "mscale_all_dim", -1, "rope_scaling.mscale_all_dim is -1"},
      {"longrope, long", "short_factor", nullptr, "rope_scaling.short_factor is missing"},
      {"longrope, short", "long_factor", nullptr, "rope_scaling.long_factor is missing"},
      {"longrope, long", "long_factor", {1, 2, 3}, "needed is a list of 16 numbers"},
      {"longrope, long", "long_factor", Json(std::vector<double>(16, 0)), "needed is a list of 16 numbers"},
      {"longrope, long", "long_factor", Json(std::vector<double>(17, 1)), "needed is a list of 16 numbers"},
      {"longrope, long", "long_mscale", 1.2, "rope_scaling.long_mscale is 1.2"},
      {"longrope, long", "original_max_position_embeddings", 1, "original_max_position_embeddings is 1"},
      {"llama3", "high_freq_factor", 1, "rope_scaling.high_freq_factor is 1"},
      {"llama3", "low_freq_factor", nullptr, "rope_scaling.low_freq_factor is missing"},
  };
  for (const Bad& b : bad) {
    CAPTURE(b.words);
    const std::string message = refused(b.name, [&](Json& scaling) { scaling[b.key] = b.value; });
    CAPTURE(message);
    CHECK(message.find(b.words) != std::string::npos);
    CHECK(message.starts_with("config.json: "));
  }
  Json config = config_of("dynamic");
  config["partial_rotary_factor"] = 0.0625;  // one pair, whose base has no exponent
  CHECK_THROWS_WITH_AS(read_hf(config, 0), doctest::Contains("2 values of a head turn"), Error);
  config = config_of("yarn");
  config["rope_theta"] = 1;
  CHECK_THROWS_WITH_AS(read_hf(config, 0), doctest::Contains("rope_theta is 1"), Error);
}

TEST_CASE("FILE-09 a GGUF scaling that cannot be computed is refused by name") {
  const auto yarn = Checkpoint::open(tiny::folder("llama-yarn/llama.gguf"));
  const auto phi = Checkpoint::open(tiny::folder("phi3/phi3.gguf"));
  CHECK(refusal(*yarn, [](EditedCheckpoint&) {}).empty());
  CHECK(refusal(*phi, [](EditedCheckpoint&) {}).empty());
  struct Bad {
    const char* key;
    Json value;
    std::string words;
  };
  const Bad bad[] = {
      {"llama.rope.scaling.type", "dynamic", "rope.scaling.type is 'dynamic', needed is none, linear, yarn"},
      {"llama.rope.scaling.factor", nullptr, "rope.scaling.factor is missing"},
      {"llama.rope.scaling.factor", 0, "rope.scaling.factor is 0"},
      {"llama.rope.scaling.original_context_length", 0, "original_context_length is 0"},
      {"llama.rope.scaling.yarn_ext_factor", 0.5, "yarn_ext_factor is 0.5, needed is 1"},
      {"llama.rope.scaling.yarn_log_multiplier", 0.1, "yarn_log_multiplier is 0.1"},
      {"llama.rope.scaling.yarn_beta_slow", 100, "yarn_beta_slow is 100"},
      {"llama.rope.scaling.attn_factor", 0, "attn_factor is 0"},
      {"llama.rope.scaling.type", "longrope", "rope_factors_short.weight is missing"},
      {"llama.rope.freq_base", 1, "rope.freq_base is 1"},
  };
  for (const Bad& b : bad) {
    CAPTURE(b.words);
    const std::string message = refusal(*yarn, [&](EditedCheckpoint& e) { e.config_[b.key] = b.value; });
    CAPTURE(message);
    CHECK(message.find(b.words) != std::string::npos);
  }
  for (const char* length : {"short", "long"}) {
    const std::string name = "rope_factors_" + std::string(length) + ".weight";
    CHECK(refusal(*phi, [&](EditedCheckpoint& e) { e.weights_.erase(name); }).find(name + " is missing") !=
          std::string::npos);
    CHECK(refusal(*phi, [&](EditedCheckpoint& e) {
            e.weights_[name].shape = {3};
          }).find(name + " has 3 values of F32, needed are 6") != std::string::npos);
    const std::vector<float> zeros(6, 0.0f);
    CHECK(refusal(*phi, [&](EditedCheckpoint& e) {
            e.weights_[name].data = reinterpret_cast<const uint8_t*>(zeros.data());
          }).find(name + " holds 0, needed are numbers above zero") != std::string::npos);
  }
}

#include "sample/sampler.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>

#include "base/error.h"

using namespace vllm;
using nlohmann::json;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kMax = std::numeric_limits<float>::max();

json load(const char* name) { return json::parse(std::ifstream(std::string(FIXTURES "/sampler/") + name)); }

std::vector<uint32_t> mask_of(const std::vector<int32_t>& ids, int32_t vocab) {
  std::vector<uint32_t> bits((vocab + 31) / 32);
  for (int32_t id : ids) bits[id / 32] |= 1u << id % 32;
  return bits;
}

SamplerState state_of(const std::vector<int32_t>& prompt, const std::vector<int32_t>& output) {
  SamplerState state(prompt);
  for (int32_t id : output) state.add_output(id);
  return state;
}

/// A small row and what to sample it with.
struct Case {
  std::vector<float> logits{};
  SamplingParams params{};
  std::vector<int32_t> prompt{}, output{};
  std::vector<uint32_t> mask{};
  std::vector<int32_t> end_ids{};

  SampledToken sample(uint64_t seed = 0) const {
    auto row = logits;
    return sampler().sample(row, normalised(), state_of(prompt, output), output, mask, seed);
  }
  std::vector<Candidate> distribution() const {
    auto row = logits, copy = row;
    auto s = sampler();
    const auto found = s.distribution(row, normalised(), state_of(prompt, output), output, mask);
    return {found.begin(), found.end()};
  }
  std::vector<int32_t> ids() const {
    std::vector<int32_t> out;
    for (const auto& candidate : distribution()) out.push_back(candidate.id);
    std::ranges::sort(out);
    return out;
  }
  std::string error() const {
    try {
      sample();
    } catch (const Error& error) {
      CHECK(error.status() == Status::Runtime);
      return error.message();
    }
    return "";
  }

 private:
  Sampler sampler() const { return Sampler(size(), size(), end_ids); }
  int32_t size() const { return static_cast<int32_t>(logits.size()); }
  SamplingParams normalised() const {
    auto p = params;
    p.validate_and_normalise(size());
    return p;
  }
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<float> random_row(size_t size, uint64_t seed, float scale = 1.0f) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> row(size);
  for (float& x : row) x = normal(random);
  return row;
}

using Ids = std::vector<int32_t>;

}  // namespace

TEST_CASE("distributions and log-probabilities equal the oracle's") {
  const json fixture = load("distributions.json");
  const int32_t vocab = fixture["vocab_size"], allowed = fixture["allowed_vocab"];
  std::vector<std::vector<float>> rows;
  for (const auto& values : fixture["rows"]) {
    auto& row = rows.emplace_back();
    for (const auto& value : values) row.push_back(value.is_string() ? -kInfinity : value.get<float>());
  }
  Sampler sampler(vocab, allowed, fixture["end_ids"].get<Ids>());
  int errors = 0, several = 0, with_logprobs = 0;
  for (const auto& c : fixture["cases"]) {
    CAPTURE(c.dump());
    SamplingParams params;
    params.temperature = c.value("temperature", 1.0f);
    params.top_k = c.value("top_k", 0);
    params.top_p = c.value("top_p", 1.0f);
    params.min_p = c.value("min_p", 0.0f);
    params.repetition_penalty = c.value("repetition_penalty", 1.0f);
    params.frequency_penalty = c.value("frequency_penalty", 0.0f);
    params.presence_penalty = c.value("presence_penalty", 0.0f);
    params.min_tokens = c.value("min_tokens", 0);
    params.stop_token_ids = c.value("stop_token_ids", Ids{});
    params.allowed_token_ids = c.value("allowed_token_ids", Ids{});
    params.bad_words = c.value("bad_words", std::vector<Ids>{});
    params.logit_bias = c.value("logit_bias", std::vector<std::pair<int32_t, float>>{});
    params.logprobs = c.value("logprobs", -1);
    params.validate_and_normalise(vocab);
    const Ids prompt = c["prompt"], output = c["output"];
    const auto mask = c.contains("mask") ? mask_of(c["mask"].get<Ids>(), vocab) : std::vector<uint32_t>{};
    const auto state = state_of(prompt, output);
    const auto& logits = rows[c["row"].get<int>()];

    auto row = logits;
    if (c.contains("error")) {
      CHECK_THROWS_AS(sampler.sample(row, params, state, output, mask, 1), Error);
      ++errors;
      continue;
    }
    std::map<int32_t, double> expected;
    for (const auto& entry : c["candidates"]) expected[entry[0]] = entry[1];
    std::map<int32_t, double> found;
    for (const auto& [id, p] : sampler.distribution(row, params, state, output, mask)) {
      REQUIRE(found.emplace(id, p).second);
    }
    several += found.size() > 1;
    // Every id of either: the rules never drop a token as light as the absolute term.
    auto ids = expected;
    ids.insert(found.begin(), found.end());
    for (const auto& entry : ids) {
      const int32_t id = entry.first;
      CAPTURE(id);
      REQUIRE(std::abs(found[id] - expected[id]) <= 2e-5 * expected[id] + 1e-12);
    }
    for (uint64_t seed = 0; seed < 5; ++seed) {
      row = logits;
      const auto token = sampler.sample(row, params, state, output, mask, seed);
      REQUIRE(expected[token.id] > 0.0);
      if (!c.contains("logprobs")) continue;
      ++with_logprobs;
      const auto& top = c["top"];
      REQUIRE(token.top.size() == top.size());
      for (size_t i = 0; i < top.size(); ++i) {
        REQUIRE(token.top[i].id == top[i][0].get<int32_t>());
        REQUIRE(token.top[i].logprob == doctest::Approx(top[i][1].get<double>()).epsilon(1e-5));
        if (token.top[i].id == token.id) REQUIRE(token.top[i].logprob == token.logprob);
      }
    }
  }
  CHECK(errors > 0);
  CHECK(several > 150);
  CHECK(with_logprobs > 200);
}

TEST_CASE("uniform draws are Philox4x32-10") {
  // First vector published with Random123: counter 0, key 0 gives 6627e8d5 e169c58d.
  CHECK(uniform(0, 0) == static_cast<double>(0xe169c58d6627e8d5u >> 11) / 9007199254740992.0);
  for (const auto& entry : load("uniform.json")) {
    CHECK(uniform(entry[0].get<uint64_t>(), entry[1].get<uint64_t>()) == entry[2].get<double>());
  }
}

TEST_CASE("draws follow the distribution (chi-square)") {
  struct Setting {
    float temperature, top_p, min_p;
    int32_t top_k;
  };
  const Setting settings[] = {
      {1.0f, 1.0f, 0.0f, 0}, {0.7f, 0.9f, 0.0f, 0}, {1.3f, 1.0f, 0.05f, 0}, {2.0f, 0.95f, 0.0f, 20}};
  constexpr int kDraws = 20000;
  Sampler sampler(70, 70, {});
  const SamplerState state({});
  for (const bool by_seed : {true, false}) {
    for (const auto& setting : settings) {
      SamplingParams params{.temperature = setting.temperature,
                            .top_p = setting.top_p,
                            .top_k = setting.top_k,
                            .min_p = setting.min_p};
      params.validate_and_normalise(70);
      const auto logits = random_row(70, 11, 1.5f);
      auto row = logits;
      std::map<int32_t, double> expected;
      for (const auto& [id, p] : sampler.distribution(row, params, state, {}, {}))
        expected[id] = p * double{kDraws};
      std::map<int32_t, int> found;
      const Ids output(kDraws, 0);
      for (int i = 0; i < kDraws; ++i) {
        row = logits;
        const auto so_far = by_seed ? std::span<const int32_t>{} : std::span(output).first(i);
        ++found[sampler.sample(row, params, state, so_far, {}, by_seed ? i : 42).id];
      }
      double chi = 0.0, rare_expected = 0.0, rare_found = 0.0;
      int degrees = -1;
      for (const auto& [id, e] : expected) {
        if (e < 10) {
          rare_expected += e;
          rare_found += found[id];
          continue;
        }
        chi += (found[id] - e) * (found[id] - e) / e;
        ++degrees;
      }
      if (rare_expected > 10) {
        chi += (rare_found - rare_expected) * (rare_found - rare_expected) / rare_expected;
        ++degrees;
      }
      REQUIRE(degrees >= 5);
      // Wilson-Hilferty: the cube root of chi-square / degrees is nearly normal; 4 sigma is one in 30,000.
      const double spread = 2.0 / (9.0 * degrees);
      CHECK(std::abs(std::cbrt(chi / degrees) - (1.0 - spread)) / std::sqrt(spread) < 4.0);
    }
  }
}

TEST_CASE("SAMP-03 the draw depends on seed and position alone") {
  const auto logits = random_row(5000, 3);
  SamplingParams params{.temperature = 0.8f, .seed = 42};
  params.validate_and_normalise(5000);
  const auto run = [&](Sampler& sampler, uint64_t seed, size_t position) {
    auto row = logits;
    const Ids output(position, 7);
    return sampler.sample(row, params, state_of({1, 2}, output), output, {}, seed).id;
  };
  Sampler alone(5000, 5000, {}), busy(5000, 5000, {});
  Ids first, second;
  for (size_t i = 0; i < 50; ++i) first.push_back(run(alone, 42, i));
  for (size_t i = 50; i-- > 0;) {
    run(busy, i, 3);
    second.push_back(run(busy, 42, i));
  }
  std::ranges::reverse(second);
  CHECK(first == second);
  Ids other;
  for (size_t i = 0; i < 50; ++i) other.push_back(run(alone, 43, i));
  CHECK(first != other);
  std::ranges::sort(first);
  CHECK(std::unique(first.begin(), first.end()) - first.begin() > 40);
}

TEST_CASE("SAMP-02 greedy takes the lowest id of the largest") {
  Case c{.logits = std::vector<float>(300, -1.0f),
         .params = {.temperature = 0.0f, .top_p = 0.5f, .top_k = 3, .min_p = 0.5f}};
  c.logits[299] = c.logits[130] = c.logits[131] = c.logits[64] = 2.0f;
  CHECK(c.sample().id == 64);
  c.logits[64] = 0.0f;
  CHECK(c.sample().id == 130);
  c.logits[130] = c.logits[131] = -kInfinity;
  CHECK(c.sample().id == 299);
  c.logits.assign(300, -kMax);
  CHECK(c.sample().id == 0);
  REQUIRE(c.distribution().size() == 1);
  CHECK(c.distribution()[0].probability == 1.0f);
}

TEST_CASE("SAMP-02 top_k keeps ties, min_p 1 the best, a tiny top_p one; one always stays") {
  Case c{.logits = {0, 5, 3, 5, 3, 3, -2, 1}};
  c.params.top_k = 3;
  CHECK(c.ids() == Ids{1, 2, 3, 4, 5});
  c.params.top_k = 2;
  CHECK(c.ids() == Ids{1, 3});
  c.params.top_k = 1;
  CHECK(c.ids() == Ids{1, 3});
  c.params = {.min_p = 1.0f};
  CHECK(c.ids() == Ids{1, 3});
  c.params = {.top_p = 1e-30f};
  CHECK(c.ids() == Ids{1});
  c.params = {.temperature = 0.01f, .top_p = 1e-9f, .top_k = 1, .min_p = 1.0f};
  CHECK(c.ids() == Ids{1});
  c.params = {.top_p = 0.5f};
  c.logits = {1, 1, 1, 1};
  CHECK(c.ids() == Ids{0, 1});
  c.params = {.top_p = 0.50001f};
  CHECK(c.ids() == Ids{0, 1, 2});
}

TEST_CASE("SAMP-07 presence and frequency count output only, repetition prompt and output") {
  Case c{.logits = {1, 1, 1, -1, -1, -1}, .prompt = {0, 0, 3}, .output = {1, 4, 4, 4}};
  c.params.allowed_token_ids = {};
  const auto logit_of = [](const Case& from, int32_t id) {
    // Against token 2 or 5, which nothing touches.
    const auto found = from.distribution();
    return std::log(found[id].probability / found[2].probability) + 1.0f;
  };
  c.params.presence_penalty = 0.5f;
  CHECK(logit_of(c, 0) == doctest::Approx(1.0f).epsilon(1e-4));
  CHECK(logit_of(c, 1) == doctest::Approx(0.5f).epsilon(1e-4));
  CHECK(logit_of(c, 4) == doctest::Approx(-1.5f).epsilon(1e-4));
  c.params = {.frequency_penalty = 0.5f};
  CHECK(logit_of(c, 3) == doctest::Approx(-1.0f).epsilon(1e-4));
  CHECK(logit_of(c, 1) == doctest::Approx(0.5f).epsilon(1e-4));
  CHECK(logit_of(c, 4) == doctest::Approx(-2.5f).epsilon(1e-4));
  c.params = {.repetition_penalty = 2.0f};
  CHECK(logit_of(c, 0) == doctest::Approx(0.5f).epsilon(1e-4));
  CHECK(logit_of(c, 1) == doctest::Approx(0.5f).epsilon(1e-4));
  CHECK(logit_of(c, 3) == doctest::Approx(-2.0f).epsilon(1e-4));
  CHECK(logit_of(c, 4) == doctest::Approx(-2.0f).epsilon(1e-4));
  CHECK(logit_of(c, 5) == doctest::Approx(-1.0f).epsilon(1e-4));
}

TEST_CASE("penalties of any size leave finite logits") {
  for (const float repetition : {1e-38f, 1e38f}) {
    Case c{.logits = {1e30f, -1e30f, kMax, -kMax}, .prompt = {0, 1, 2, 3}};
    c.params.repetition_penalty = repetition;
    CHECK(c.error().empty());
    CHECK_FALSE(c.ids().empty());
    c.params.temperature = 0.0f;
    CHECK(c.error().empty());
  }
}

TEST_CASE("SAMP-04 logits that are not finite end the request with their position") {
  for (const size_t size : {7, 64, 200}) {
    for (const float temperature : {0.0f, 1.0f}) {
      for (const size_t at : {size_t{0}, size_t{5}, size - 1}) {
        CAPTURE(size);
        CAPTURE(at);
        Case c{.logits = random_row(size, 1), .params = {.temperature = temperature}, .output = {3, 3, 3}};
        CHECK(c.error().empty());
        c.logits[at] = -kInfinity;
        CHECK(c.error().empty());
        for (const float bad : {kNan, -kNan, kInfinity}) {
          c.logits[at] = bad;
          const auto message = c.error();
          CHECK(contains(message, "not finite"));
          CHECK(contains(message, "position 3"));
          CHECK(contains(message, "token " + std::to_string(at)));
          c.mask = mask_of({1}, static_cast<int32_t>(size));  // also where the constraint rules it out
          CHECK(contains(c.error(), "not finite"));
          c.mask.clear();
        }
        c.logits.assign(size, -kInfinity);
        CHECK(contains(c.error(), "position 3"));
      }
    }
  }
}

TEST_CASE("SAMP-04 padding is not looked at and never chosen") {
  Sampler sampler(100, 90, {});
  for (const float temperature : {0.0f, 2.0f}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      auto row = random_row(100, seed, 0.1f);
      for (size_t i = 90; i < 100; ++i) row[i] = i % 2 ? kNan : 50.0f;
      SamplingParams params{.temperature = temperature, .logprobs = 100};
      params.validate_and_normalise(100);
      const auto token = sampler.sample(row, params, SamplerState({}), {}, {}, seed);
      CHECK(token.id < 90);
      CHECK(token.top.size() == 90);
    }
  }
  std::vector<float> row(99);
  CHECK_THROWS_AS(sampler.sample(row, {}, SamplerState({}), {}, {}, 0), Error);
  CHECK_THROWS_AS(Sampler(0, 0, {}), Error);
}

TEST_CASE("a row that leaves nothing is an error that says so") {
  Case c{.logits = {1, 2, 3}, .output = {0, 0}};
  c.mask = {0};
  CHECK(contains(c.error(), "position 2"));
  c.mask = mask_of({1}, 3);
  c.logits[1] = -kInfinity;
  CHECK(contains(c.error(), "No token can be chosen"));
  c.logits[1] = 1.0f;
  c.params.bad_words = {{1}};
  CHECK(contains(c.error(), "No token can be chosen"));
  c.params.bad_words = {};
  c.params.allowed_token_ids = {0, 2};
  CHECK(contains(c.error(), "No token can be chosen"));
}

TEST_CASE("a mask shorter than the vocabulary rules the rest out") {
  Case c{.logits = random_row(80, 5)};
  c.mask = {0xF0u};
  CHECK(c.ids() == Ids{4, 5, 6, 7});
}

TEST_CASE("SAMP-05 with one legal token the log-probabilities are finite and the others left out") {
  Case c{.logits = random_row(100, 5, 4.0f), .params = {.logprobs = 5}};
  c.mask = mask_of({70}, 100);
  const auto token = c.sample();
  CHECK(token.id == 70);
  double sum = 0.0;
  for (float x : c.logits) sum += std::exp(static_cast<double>(x));
  CHECK(token.logprob == doctest::Approx(c.logits[70] - std::log(sum)).epsilon(1e-5));
  REQUIRE(token.top.size() == 1);
  CHECK(token.top[0].id == 70);
  CHECK(token.top[0].logprob == token.logprob);

  c.mask.clear();
  for (size_t i = 3; i < 100; ++i) c.logits[i] = -kInfinity;
  CHECK(c.sample().top.size() == 3);
  c.logits = {kMax, -kMax};
  c.mask = mask_of({1}, 2);
  CHECK(std::isfinite(c.sample().logprob));
  c.params.logprobs = -1;
  CHECK(c.sample().top.empty());
}

TEST_CASE("log-probabilities are those of the unmodified logits") {
  Case c{.logits = random_row(100, 6, 2.0f), .params = {.temperature = 0.0f, .logprobs = 3}};
  const auto plain = c.sample();
  CHECK(plain.id == plain.top[0].id);
  c.params.logit_bias = {{50, 100.0f}};
  c.params.repetition_penalty = 1.5f;
  c.prompt = {plain.id};
  const auto biased = c.sample();
  CHECK(biased.id == 50);
  CHECK(biased.top[0].id == plain.id);
  CHECK(biased.top[0].logprob == plain.logprob);
  CHECK(biased.logprob < -1.0f);
}

TEST_CASE("end and stop tokens wait for min_tokens unless nothing else is legal") {
  Case c{.logits = {0, 9, 8, 7}, .params = {.temperature = 0.0f}, .output = {0, 0}, .end_ids = {1, 500, -1}};
  c.params.stop_token_ids = {2, 1, 777};
  CHECK(c.sample().id == 1);
  c.params.min_tokens = 3;
  CHECK(c.sample().id == 3);
  c.output = {0, 0, 0};
  CHECK(c.sample().id == 1);
  c.output = {};
  c.mask = mask_of({1, 2}, 4);
  CHECK(c.sample().id == 1);
  c.mask = mask_of({2}, 4);
  CHECK(c.sample().id == 2);
}

TEST_CASE("the logits processor sees bias and mask, comes before the penalties and cannot leave the mask") {
  Case c{.logits = {1, 2, 3, 4}, .params = {.temperature = 0.0f}, .prompt = {2}, .output = {3, 3}};
  c.params.logit_bias = {{0, 10.0f}};
  c.params.frequency_penalty = 1.0f;
  c.mask = mask_of({0, 2, 3}, 4);
  int calls = 0;
  c.params.logits_processor = [&](std::span<const int32_t> output, std::span<float> logits) {
    ++calls;
    CHECK(Ids(output.begin(), output.end()) == Ids{3, 3});
    CHECK(Ids(logits.begin(), logits.end()) == Ids{11, INT32_MIN, 3, 4});
    logits[1] = 100.0f;
    logits[2] = 12.0f;
    logits[3] = 13.0f;
  };
  c.logits[1] = -2147483648.0f;  // an integer, so that it can be compared above
  c.mask = mask_of({0, 1, 2, 3}, 4);
  CHECK(c.sample().id == 1);
  CHECK(calls == 1);
  c.mask = mask_of({0, 1, 2, 3}, 4);
  c.params.logits_processor = [](auto, std::span<float> logits) {
    CHECK(logits[1] == -kInfinity);
    logits[1] = 100.0f;
    logits[2] = 12.0f;
    logits[3] = 13.0f;
  };
  c.mask = mask_of({0, 2, 3}, 4);
  CHECK(c.sample().id == 2);
  c.params.logits_processor = [](auto, std::span<float> logits) { logits[0] = kNan; };
  CHECK(contains(c.error(), "logits processor"));
  c.params.logits_processor = [](auto, std::span<float> logits) { std::ranges::fill(logits, -kInfinity); };
  CHECK(contains(c.error(), "position 2"));
}

TEST_CASE("large vocabularies equal a plain sort in double") {
  constexpr int32_t kVocab = 50021;
  struct Setting {
    float temperature, top_p, min_p;
    int32_t top_k;
    float scale;
  };
  const Setting settings[] = {{1.0f, 1.0f, 0.0f, 0, 1.0f},   {1.0f, 0.9f, 0.0f, 0, 1.0f},
                              {0.7f, 0.5f, 0.0f, 0, 3.0f},   {1.0f, 1.0f, 0.02f, 0, 1.0f},
                              {1.0f, 1.0f, 0.0f, 50, 1.0f},  {1.0f, 0.8f, 0.0f, 5000, 1.0f},
                              {2.0f, 0.99f, 0.0f, 0, 0.01f}, {1.0f, 0.3f, 0.0f, 0, 0.0f},
                              {0.01f, 0.9f, 0.0f, 0, 30.0f}, {1.5f, 0.9f, 0.01f, 700, 2.0f}};
  Sampler sampler(kVocab, kVocab, {});
  for (const auto& setting : settings) {
    CAPTURE(setting.top_p);
    CAPTURE(setting.top_k);
    CAPTURE(setting.scale);
    auto row = random_row(kVocab, 17, setting.scale);
    std::vector<std::pair<double, int32_t>> sorted;
    for (int32_t id = 0; id < kVocab; ++id) sorted.push_back({row[id], id});
    std::ranges::sort(sorted, [](auto& a, auto& b) {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    const double best = sorted[0].first, temperature = setting.temperature;
    if (setting.min_p > 0) {
      std::erase_if(
          sorted, [&](auto& e) { return std::exp((e.first - best) / temperature) < double{setting.min_p}; });
    }
    if (setting.top_k > 0 && sorted.size() > static_cast<size_t>(setting.top_k)) {
      const double kth = sorted[setting.top_k - 1].first;
      std::erase_if(sorted, [&](auto& e) { return e.first < kth; });
    }
    double total = 0.0, kept = 0.0;
    for (auto& [x, id] : sorted) total += x = std::exp((x - best) / temperature);
    size_t count = 0;
    while (count < sorted.size() && (setting.top_p == 1.0f || kept < double{setting.top_p} * total))
      kept += sorted[count++].first;

    SamplingParams params{.temperature = setting.temperature,
                          .top_p = setting.top_p,
                          .top_k = setting.top_k,
                          .min_p = setting.min_p};
    params.validate_and_normalise(kVocab);
    const auto found = sampler.distribution(row, params, SamplerState({}), {}, {});
    std::map<int32_t, double> ours;
    double sum = 0.0;
    for (const auto& [id, p] : found) sum += ours[id] = p;
    CHECK(sum == doctest::Approx(1.0).epsilon(1e-5));
    // Rounding may move the edge by a token; what differs must be as light as that.
    double missing = 0.0, worst = 0.0;
    for (size_t i = 0; i < count; ++i) {
      const double p = sorted[i].first / kept;
      if (const auto it = ours.find(sorted[i].second); it == ours.end()) {
        missing += p;
      } else {
        worst = std::max(worst, std::abs(it->second / p - 1.0));
        ours.erase(it);
      }
    }
    for (const auto& [id, p] : ours) missing += p;
    CHECK(missing < (setting.scale == 0.0f ? 1e-12 : 1e-4));
    CHECK(worst < 1e-4);
  }
}

/// The `count` largest of a row, as a device gives them.
std::vector<RankedValue> largest_of(std::span<const float> row, int count) {
  std::vector<RankedValue> all;
  for (size_t i = 0; i < row.size(); ++i) all.push_back({static_cast<int32_t>(i), row[i]});
  std::ranges::partial_sort(all, all.begin() + count, [](auto& a, auto& b) { return a.before(b); });
  all.resize(static_cast<size_t>(count));
  return all;
}

TEST_CASE("the largest logits alone give the token that the whole row gives, bit for bit") {
  int compared = 0, refused = 0;
  for (const auto& [vocab, allowed] : {std::pair{5, 5}, {64, 61}, {300, 300}, {50021, 50000}}) {
    Sampler whole(vocab, allowed, {}), parts(vocab, allowed, {});
    for (uint64_t seed = 0; seed < (vocab > 1000 ? 40u : 400u); ++seed) {
      std::mt19937 random(static_cast<uint32_t>(seed));
      const auto any = [&](auto... choices) {
        const std::array list{choices...};
        return list[random() % list.size()];
      };
      auto row = random_row(static_cast<size_t>(vocab), static_cast<uint32_t>(seed), any(0.3f, 1.0f, 5.0f));
      if (const float step = any(0.0f, 0.0f, 0.25f); step > 0)  // many are equal
        for (float& x : row) x = std::round(x / step) * step;
      if (random() % 4 == 0)
        for (size_t i = 0; i < row.size(); ++i)
          if (i % 7 != 3) row[i] = -kInfinity;
      SamplingParams params{.temperature = any(0.0f, 0.01f, 0.7f, 1.0f, 2.0f),
                            .top_p = any(1.0f, 0.95f, 0.5f, 0.01f),
                            .top_k = any(1, 2, 20, 40, 64),
                            .min_p = any(0.0f, 0.0f, 0.05f, 1.0f)};
      params.validate_and_normalise(vocab);
      const size_t outputs = random() % 100;
      const std::vector<int32_t> output(outputs, 0);
      const int count = parts.decisive(params, outputs, false);
      if (count == 0) continue;  // top_k beyond the vocabulary
      REQUIRE(count <= Sampler::kMostLargest);
      const auto got = parts.sample_largest(
          largest_of(std::span(row).first(static_cast<size_t>(allowed)), count), params, outputs, seed);
      CAPTURE(vocab);
      CAPTURE(seed);
      ++(got ? compared : refused);
      if (got) REQUIRE(got->id == whole.sample(row, params, SamplerState({}), output, {}, seed).id);
    }
  }
  CHECK(compared > 700);
  CHECK(refused > 50);  // equal to the last of top_k
}

TEST_CASE("whole rows are asked for where the largest logits do not settle the token") {
  const Sampler sampler(1000, 1000, {2});
  const SamplingParams greedy{.temperature = 0.0f}, top_k{.top_k = 40};
  CHECK(sampler.decisive(greedy, 0, false) == 1);
  CHECK(sampler.decisive(top_k, 0, false) == 41);
  CHECK(Sampler(20, 20, {}).decisive({.top_k = 20}, 0, false) == 20);
  CHECK(sampler.decisive({.top_k = 65}, 0, false) == 0);
  CHECK(sampler.decisive({.top_p = 0.9f}, 0, false) == 0);
  CHECK(sampler.decisive({.min_p = 0.1f}, 0, false) == 0);
  for (const SamplingParams& base : {greedy, top_k}) {
    CHECK(sampler.decisive(base, 0, true) == 0);
    const auto with = [&](auto edit) {
      SamplingParams params = base;
      edit(params);
      return sampler.decisive(params, 3, false);
    };
    CHECK(with([](SamplingParams& p) { p.logprobs = 0; }) == 0);
    CHECK(with([](SamplingParams& p) { p.presence_penalty = 0.1f; }) == 0);
    CHECK(with([](SamplingParams& p) { p.frequency_penalty = 0.1f; }) == 0);
    CHECK(with([](SamplingParams& p) { p.repetition_penalty = 1.1f; }) == 0);
    CHECK(with([](SamplingParams& p) { p.logit_bias = {{1, 2.0f}}; }) == 0);
    CHECK(with([](SamplingParams& p) { p.allowed_token_ids = {1}; }) == 0);
    CHECK(with([](SamplingParams& p) { p.bad_words = {{1}}; }) == 0);
    CHECK(with([](SamplingParams& p) { p.logits_processor = [](auto, auto) {}; }) == 0);
    CHECK(with([](SamplingParams& p) { p.min_tokens = 4; }) == 0);
    CHECK(with([](SamplingParams& p) { p.min_tokens = 3; }) > 0);
  }
  Sampler own(4, 4, {});
  for (const float bad : {kNan, kInfinity, -kInfinity})
    CHECK_FALSE(own.sample_largest(std::array{RankedValue{1, bad}}, greedy, 0, 1));
}

TEST_CASE("exp_block is exact to a millionth") {
  for (float start = 0.0f; start > -90.0f; start -= 0.37f) {
    std::array<float, kLogitBlock> x, out;
    for (size_t i = 0; i < kLogitBlock; ++i) x[i] = start - static_cast<float>(i) * 0.0059f;
    const double sum = exp_block(x, 0.0f, 1.0f, -kMax, out);
    REQUIRE(sum == doctest::Approx(std::accumulate(out.begin(), out.end(), 0.0)));
    for (size_t i = 0; i < kLogitBlock; ++i) {
      const double expected = std::exp(static_cast<double>(x[i]));
      if (x[i] < -87.0f) {
        REQUIRE(out[i] == 0.0f);
      } else {
        REQUIRE(std::abs(out[i] / expected - 1.0) < 1e-6);
      }
    }
  }
  std::array<float, kLogitBlock> x, out;
  x.fill(-kInfinity);
  x[0] = 5.0f;
  x[1] = -kMax;
  exp_block(x, 5.0f, 100.0f, -kMax, out);
  CHECK(out[0] == 1.0f);
  CHECK(out[1] == 0.0f);
  CHECK(out[63] == 0.0f);
  for (size_t i = 0; i < kLogitBlock; ++i) x[i] = -static_cast<float>(i);
  CHECK(exp_block(x, 0.0f, 1.0f, -1.0f, out) == doctest::Approx(1.0 + std::exp(-1.0)));
  CHECK(out[1] > 0.0f);
  CHECK(out[2] == 0.0f);
}

TEST_CASE("kth_largest equals a sort") {
  std::vector<float> scratch;
  for (const size_t size : {1, 63, 64, 65, 1000}) {
    auto row = random_row(size, size);
    for (float& x : row) x = std::round(x * 20.0f) / 20.0f;
    if (size > 100) std::fill(row.begin() + 70, row.begin() + 200, -kInfinity);
    BlockMaxima maxima;
    REQUIRE(maxima.scan(row));
    auto sorted = row;
    std::erase(sorted, -kInfinity);
    std::ranges::sort(sorted, std::greater<>());
    for (size_t k = 1; k <= size; ++k) {
      REQUIRE(kth_largest(row, maxima, k, scratch) == (k <= sorted.size() ? sorted[k - 1] : -kMax));
    }
  }
}

// Timing against a pass of the same machine in the same run: VLLM_BENCH=1 sampler_test -tc="*cost*".
TEST_CASE("cost of a row of 262144 logits" * doctest::skip(std::getenv("VLLM_BENCH") == nullptr)) {
  constexpr int32_t kVocab = 262144;
  const auto logits = random_row(kVocab, 1, 2.5f);
  Sampler sampler(kVocab, kVocab, {});
  std::vector<float> row = logits;
  const auto measure = [&](const std::string& name, const SamplingParams& given) {
    auto params = given;
    params.validate_and_normalise(kVocab);
    const SamplerState state({});
    double best = 1e9;
    for (uint64_t i = 0; i < 30; ++i) {
      row = logits;
      const auto start = std::chrono::steady_clock::now();
      sampler.sample(row, params, state, {}, {}, i);
      best = std::min(
          best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    }
    MESSAGE(name << ": " << best << " ms");
  };
  measure("greedy", {.temperature = 0.0f});
  measure("plain", {});
  measure("top_k 40, top_p 0.9", {.top_p = 0.9f, .top_k = 40});
  measure("top_p 0.9", {.top_p = 0.9f});
  measure("min_p 0.05", {.min_p = 0.05f});
  measure("logprobs 20", {.temperature = 0.0f, .logprobs = 20});
}

#include "sample/sampling_params.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "base/error.h"

using namespace vllm;

namespace {

constexpr int32_t kVocab = 1000;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

SamplingParams normalised(SamplingParams params) {
  params.validate_and_normalise(kVocab);
  return params;
}

/// The message of the refusal; empty when there is none.
std::string refusal(SamplingParams params) {
  try {
    params.validate_and_normalise(kVocab);
  } catch (const Error& error) {
    CHECK(error.status() == Status::InvalidArgument);
    return error.message();
  }
  return "";
}

void check_names(const SamplingParams& params, const std::string& name, const std::string& value) {
  const std::string message = refusal(params);
  CAPTURE(message);
  CHECK(message.find(name) != std::string::npos);
  CHECK(message.find(value) != std::string::npos);
}

}  // namespace

TEST_CASE("defaults are valid and stay as they are") {
  const auto p = normalised({});
  CHECK(p.temperature == 1.0f);
  CHECK(p.top_p == 1.0f);
  CHECK(p.top_k == 0);
  CHECK(p.min_p == 0.0f);
  CHECK_FALSE(p.seed);
  CHECK_FALSE(p.greedy());
}

TEST_CASE("SAMP-02 values out of range are refused by name and value") {
  for (const auto& [value, text] :
       {std::pair{-0.5f, "-0.5"}, {2.5f, "2.5"}, {kNan, "nan"}, {kInfinity, "inf"}}) {
    check_names({.temperature = value}, "temperature", text);
  }
  for (const auto& [value, text] :
       {std::pair{-0.5f, "-0.5"}, {0.0f, "0"}, {1.5f, "1.5"}, {kNan, "nan"}, {-kInfinity, "-inf"}}) {
    check_names({.top_p = value}, "top_p", text);
  }
  for (const auto& [value, text] : {std::pair{-0.5f, "-0.5"}, {1.5f, "1.5"}, {kNan, "nan"}}) {
    check_names({.min_p = value}, "min_p", text);
  }
  check_names({.top_k = -2}, "top_k", "-2");
  for (const auto& [value, text] : {std::pair{-2.5f, "-2.5"}, {2.5f, "2.5"}, {kNan, "nan"}}) {
    check_names({.presence_penalty = value}, "presence_penalty", text);
    check_names({.frequency_penalty = value}, "frequency_penalty", text);
  }
  for (const auto& [value, text] : {std::pair{-1.0f, "-1"}, {0.0f, "0"}, {kNan, "nan"}, {kInfinity, "inf"}}) {
    check_names({.repetition_penalty = value}, "repetition_penalty", text);
  }
  check_names({.logprobs = -2}, "logprobs", "-2");
  check_names({.stop = {"a", ""}}, "stop", "empty");
  check_names({.stop = {std::string(1 << 19, 'a'), std::string((1 << 19) + 1, 'b')}}, "stop", "1048577");
  CHECK(refusal({.stop = {std::string(1 << 19, 'a'), std::string(1 << 19, 'b')}}).empty());
}

TEST_CASE("SAMP-02 the ends of the ranges are valid") {
  CHECK(refusal({.temperature = 2.0f, .top_p = 1.0f, .min_p = 1.0f}).empty());
  CHECK(refusal({.temperature = 0.0f, .top_p = 1e-30f, .min_p = 0.0f}).empty());
  CHECK(
      refusal({.presence_penalty = -2.0f, .frequency_penalty = 2.0f, .repetition_penalty = 1e-30f}).empty());
}

TEST_CASE("SAMP-02 spellings of off become one") {
  CHECK(normalised({.top_k = -1}).top_k == 0);
  CHECK(normalised({.top_k = kVocab}).top_k == 0);
  CHECK(normalised({.top_k = INT32_MAX}).top_k == 0);
  CHECK(normalised({.top_k = kVocab - 1}).top_k == kVocab - 1);
  CHECK_FALSE(normalised({.seed = -1}).seed);
  CHECK(normalised({.seed = 0}).seed == 0);
  CHECK(normalised({.seed = -2}).seed == -2);
  CHECK(normalised({.logprobs = INT32_MAX}).logprobs == kVocab);
  CHECK(normalised({.logprobs = 0}).logprobs == 0);
}

TEST_CASE("SAMP-02 SAMP-08 a vanishing temperature is greedy, whatever the rest; a small one is raised") {
  for (const float temperature : {0.0f, 9e-6f}) {
    const auto p = normalised({.temperature = temperature, .top_p = 0.3f, .top_k = 7, .min_p = 0.2f});
    CHECK(p.greedy());
    CHECK(p.top_p == 1.0f);
    CHECK(p.top_k == 0);
    CHECK(p.min_p == 0.0f);
  }
  for (const float temperature : {1.1e-5f, 0.005f, 0.01f}) {
    const auto p = normalised({.temperature = temperature, .top_k = 7});
    CHECK_FALSE(p.greedy());
    CHECK(p.temperature == 0.01f);
    CHECK(p.top_k == 7);
  }
}

TEST_CASE("SAMP-01 token limits") {
  CHECK(normalised({.max_tokens = 0}).output_limit(28) == 28);
  CHECK(normalised({.max_tokens = -5}).output_limit(28) == 28);
  CHECK(normalised({.max_tokens = INT64_MIN}).output_limit(28) == 28);
  CHECK(normalised({.max_tokens = INT64_MAX}).output_limit(28) == 28);
  CHECK(normalised({.max_tokens = 1}).output_limit(28) == 1);
  CHECK(normalised({.max_tokens = 28}).output_limit(28) == 28);
  check_names({.max_tokens = 5, .min_tokens = 6}, "min_tokens", "6");
  check_names({.max_tokens = 5, .min_tokens = -1}, "min_tokens", "-1");
  CHECK(refusal({.max_tokens = 5, .min_tokens = 5}).empty());
  CHECK(refusal({.max_tokens = 0, .min_tokens = 6}).empty());
}

TEST_CASE("SAMP-06 bias is clamped; tokens outside the vocabulary are refused by name") {
  const auto p = normalised({.logit_bias = {{0, -500.0f}, {999, 250.0f}, {5, 1.5f}, {6, kInfinity}}});
  CHECK(p.logit_bias[0].second == -100.0f);
  CHECK(p.logit_bias[1].second == 100.0f);
  CHECK(p.logit_bias[2].second == 1.5f);
  CHECK(p.logit_bias[3].second == 100.0f);
  check_names({.logit_bias = {{5, 1.0f}, {1000, 1.0f}}}, "logit_bias", "1000");
  check_names({.logit_bias = {{-1, 1.0f}}}, "logit_bias", "-1");
  check_names({.logit_bias = {{7, kNan}}}, "logit_bias", "7");
  check_names({.allowed_token_ids = {3, 2000}}, "allowed_token_ids", "2000");
  check_names({.bad_words = {{3}, {4, 1000}}}, "bad_words", "1000");
  check_names({.bad_words = {{3}, {}}}, "bad_words", "empty");
}

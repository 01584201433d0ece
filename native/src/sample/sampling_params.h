// How the next token of a request is chosen.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace vllm {

/// Edits the logits row of one request in place; output tokens so far, logits of the whole vocabulary.
using LogitsProcessor = std::function<void(std::span<const int32_t> output, std::span<float> logits)>;

struct SamplingParams {
  float temperature = 1.0f;         // [0, 2]; < 1e-5: greedy
  float top_p = 1.0f;               // (0, 1]
  int32_t top_k = 0;                // 0 or -1: off
  float min_p = 0.0f;               // [0, 1]
  std::optional<int64_t> seed{};    // none or -1: random
  float presence_penalty = 0.0f;    // [-2, 2]
  float frequency_penalty = 0.0f;   // [-2, 2]
  float repetition_penalty = 1.0f;  // > 0
  int64_t max_tokens = 0;           // <= 0: to the end of the context
  int64_t min_tokens = 0;           // [0, max_tokens]
  bool ignore_eos = false;
  std::vector<std::string> stop{};
  std::vector<int32_t> stop_token_ids{};
  bool include_stop = false;
  bool skip_special = true;
  int32_t logprobs = -1;  // alternatives reported a token; -1: no log-probabilities
  std::vector<std::pair<int32_t, float>> logit_bias{};
  std::vector<int32_t> allowed_token_ids{};       // empty: all
  std::vector<std::vector<int32_t>> bad_words{};  // token sequences that must not be completed
  LogitsProcessor logits_processor{};

  /// Throws Error(InvalidArgument) naming the parameter, the value and the valid range. Clamps what the rules
  /// clamp: temperature in (0, 0.01) to 0.01, bias to [-100, 100]; greedy resets top_p, top_k and min_p;
  /// spellings of "off" become one (top_k 0, max_tokens 0, no seed).
  void validate_and_normalise(int32_t vocab_size);
  bool greedy() const { return temperature < 1e-5f; }
  /// How many tokens to generate when the context has room for `room`.
  int64_t output_limit(int64_t room) const {
    return max_tokens <= 0 || max_tokens > room ? room : max_tokens;
  }
};

}  // namespace vllm

#include "sample/sampling_params.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace vllm {
namespace {

// Their matcher takes some 25 bytes of memory for each.
constexpr size_t kMaxStopBytes = size_t{1} << 20;

// Written so that NaN fails too.
void require(bool valid, const char* name, double value, const char* range) {
  if (!valid) fail_argument("%s is %g; it must be %s.", name, value, range);
}

void require_token(int32_t id, int32_t vocab_size, const char* where) {
  if (id < 0 || id >= vocab_size) {
    fail_argument("%s names token %d; the vocabulary has ids 0 to %d.", where, id, vocab_size - 1);
  }
}

}  // namespace

void SamplingParams::validate_and_normalise(int32_t vocab_size) {
  require(temperature >= 0.0f && temperature <= 2.0f, "temperature", temperature, "between 0 and 2");
  require(top_p > 0.0f && top_p <= 1.0f, "top_p", top_p, "above 0 and at most 1");
  require(top_k >= -1, "top_k", top_k, "0 or -1 for all tokens, or a positive count");
  require(min_p >= 0.0f && min_p <= 1.0f, "min_p", min_p, "between 0 and 1");
  require(std::abs(presence_penalty) <= 2.0f, "presence_penalty", presence_penalty, "between -2 and 2");
  require(std::abs(frequency_penalty) <= 2.0f, "frequency_penalty", frequency_penalty, "between -2 and 2");
  require(repetition_penalty > 0.0f && std::isfinite(repetition_penalty), "repetition_penalty",
          repetition_penalty, "finite and above 0");
  require(logprobs >= -1, "logprobs", logprobs, "-1 for none, or the number of alternatives");
  max_tokens = std::max<int64_t>(max_tokens, 0);
  if (min_tokens < 0 || (max_tokens > 0 && min_tokens > max_tokens)) {
    fail_argument("min_tokens is %lld; it must be at least 0 and at most max_tokens, which is %lld%s.",
                  static_cast<long long>(min_tokens), static_cast<long long>(max_tokens),
                  max_tokens == 0 ? " (no limit)" : "");
  }
  size_t stop_bytes = 0;
  for (const std::string& text : stop) {
    if (text.empty())
      fail_argument("stop has an empty string; every stop string needs at least one character.");
    stop_bytes += text.size();
  }
  if (stop_bytes > kMaxStopBytes)
    fail_argument("stop has %zu bytes in all; at most %zu are allowed.", stop_bytes, kMaxStopBytes);
  for (auto& [id, bias] : logit_bias) {
    require_token(id, vocab_size, "logit_bias");
    if (std::isnan(bias)) fail_argument("logit_bias of token %d is not a number.", id);
    bias = std::clamp(bias, -100.0f, 100.0f);
  }
  for (int32_t id : allowed_token_ids) require_token(id, vocab_size, "allowed_token_ids");
  for (const auto& word : bad_words) {
    if (word.empty()) fail_argument("bad_words has an empty entry; every entry needs at least one token.");
    for (int32_t id : word) require_token(id, vocab_size, "bad_words");
  }

  if (top_k == -1 || top_k >= vocab_size) top_k = 0;
  logprobs = std::min(logprobs, vocab_size);
  if (seed == -1) seed.reset();
  if (greedy()) {
    temperature = 0.0f;
    top_p = 1.0f;
    top_k = 0;
    min_p = 0.0f;
  } else {
    temperature = std::max(temperature, 0.01f);
  }
}

}  // namespace vllm

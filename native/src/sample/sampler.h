// From a row of logits to a token.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "sample/sampling_params.h"

namespace vllm {

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0.0f;
};

/// The chosen token first-class, the alternatives by falling probability; tokens of probability zero are left out.
struct SampledToken {
  int32_t id = 0;
  float logprob = 0.0f;                // valid when asked for
  std::vector<TokenLogprob> top;       // SamplingParams::logprobs entries at most
};

/// What one request's sampling remembers: token counts for the penalties.
class SamplerState {
 public:
  explicit SamplerState(std::span<const int32_t> prompt);
  void add_output(int32_t id);

 private:
  friend class Sampler;
  std::vector<int32_t> prompt_ids_;                    // sorted, unique
  std::vector<std::pair<int32_t, int32_t>> counts_;    // output id -> times, sorted by id
};

/// Chooses tokens for rows of logits; keeps scratch memory between calls. Not thread-safe.
class Sampler {
 public:
  /// `allowed_vocab`: ids >= it are never chosen (rows of padding). `end_ids`: suppressed while output < min_tokens.
  Sampler(int32_t vocab_size, int32_t allowed_vocab, std::vector<int32_t> end_ids);

  /// `logits`: [vocab_size], overwritten. `mask`: bits of the allowed tokens (LSB first), or empty. `seed` is the request's
  /// own (also for unseeded requests); the draw depends on (seed, output.size()) alone. Order of the steps: models.md 6.2.
  /// Throws Error(Runtime) naming the output position when the logits are not finite or nothing can be chosen.
  SampledToken sample(std::span<float> logits, const SamplingParams& params, const SamplerState& state,
                      std::span<const int32_t> output, std::span<const uint32_t> mask, uint64_t seed);

 private:
  int32_t vocab_size_;
  int32_t allowed_vocab_;
  std::vector<int32_t> end_ids_;
  std::vector<TokenLogprob> scratch_;
};

/// Counter-based uniform draw in [0, 1): depends on its arguments alone.
double uniform(uint64_t seed, uint64_t counter);

}  // namespace vllm

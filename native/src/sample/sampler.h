// From a row of logits to a token.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "device/largest.h"
#include "sample/logits.h"
#include "sample/random.h"
#include "sample/sampling_params.h"

namespace vllm {

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0.0f;
};

/// The chosen token first-class, the alternatives by falling probability (lower ids first where equal);
/// tokens of probability zero and tokens the mask or allowed_token_ids rule out are left out.
/// Log-probabilities are those of the unmodified logits at temperature 1.
struct SampledToken {
  int32_t id = 0;
  float logprob = 0.0f;           // valid when asked for
  std::vector<TokenLogprob> top;  // SamplingParams::logprobs entries at most
};

struct Candidate {
  int32_t id = 0;
  float probability = 0.0f;
};

/// What one request's sampling remembers: token counts for the penalties.
class SamplerState {
 public:
  explicit SamplerState(std::span<const int32_t> prompt);
  void add_output(int32_t id);

 private:
  friend class Sampler;
  std::vector<int32_t> prompt_ids_;                  // sorted, unique
  std::vector<std::pair<int32_t, int32_t>> counts_;  // output id -> times, sorted by id
};

/// Chooses tokens for rows of logits; keeps scratch memory between calls. Not thread-safe.
///
/// The steps, in order: constraint mask, allowed_token_ids, bad_words, end and stop tokens while the output
/// is shorter than min_tokens (left out where nothing else remains), logit_bias, logits processor (the mask
/// holds after it too), repetition, frequency and presence penalty; then the largest logit for greedy
/// requests, or temperature, min_p, top_k (ties with the k-th kept), top_p (of equal tokens the lower ids are
/// kept first) and a draw.
class Sampler {
 public:
  /// `allowed_vocab`: ids >= it are never chosen (rows of padding). `end_ids`: suppressed while output <
  /// min_tokens.
  Sampler(int32_t vocab_size, int32_t allowed_vocab, std::vector<int32_t> end_ids);

  /// `logits`: [vocab_size], overwritten. `mask`: bits of the allowed tokens (LSB first), or empty. `seed` is
  /// the request's own (also for unseeded requests); the draw depends on (seed, output.size()) alone.
  /// `params` have been validated. Throws Error(Runtime) naming the output position when the logits hold NaN
  /// or +inf or nothing can be chosen.
  SampledToken sample(std::span<float> logits, const SamplingParams& params, const SamplerState& state,
                      std::span<const int32_t> output, std::span<const uint32_t> mask, uint64_t seed);

  /// The largest logits of a row that settle what sample() gives for it, in the order of RankedValue, with
  /// `outputs` tokens before it; 0: all of them are needed. At most kMostLargest.
  int decisive(const SamplingParams& params, size_t outputs, bool masked) const;
  /// What sample() gives for a row whose decisive() largest logits these are; none where ties or numbers that
  /// are not finite make it a matter of the whole row after all.
  std::optional<SampledToken> sample_largest(std::span<const RankedValue> largest,
                                             const SamplingParams& params, size_t outputs, uint64_t seed);
  static constexpr int kMostLargest = 65;
  int32_t allowed_vocab() const { return allowed_vocab_; }

  /// The tokens that sample() draws from and their probabilities, which sum to 1; one token for greedy
  /// requests. Valid until the next call.
  std::span<const Candidate> distribution(std::span<float> logits, const SamplingParams& params,
                                          const SamplerState& state, std::span<const int32_t> output,
                                          std::span<const uint32_t> mask);

 private:
  void select(std::span<float> logits, const SamplingParams& params, const SamplerState& state,
              std::span<const int32_t> output, std::span<const uint32_t> mask);
  void choose(std::span<const float> row, const SamplingParams& params);
  int32_t draw(size_t outputs, uint64_t seed) const;
  void scan(std::span<const float> row, size_t position, const char* whose);
  // These return whether they may have changed the row.
  bool restrict_tokens(std::span<float> row, const SamplingParams& params, std::span<const uint32_t> mask);
  bool edit(std::span<float> logits, const SamplingParams& params, std::span<const int32_t> output,
            std::span<const uint32_t> mask);
  bool penalise(std::span<float> row, const SamplingParams& params, const SamplerState& state);
  void allow_only(std::span<float> row, std::span<const int32_t> ids);
  void suppress_ends(std::span<float> row, const SamplingParams& params);
  double weigh(std::span<const float> row, float threshold, float temperature);
  size_t collect(std::span<const float> row, float threshold, float above);
  void keep_nucleus(float top_p, size_t count, double total_weight);
  void keep_first(size_t count, double total_weight) {
    candidates_ = std::span(buffer_).first(count);
    total_weight_ = total_weight;
  }
  void report_logprobs(SampledToken& token, int32_t count);

  int32_t vocab_size_;
  int32_t allowed_vocab_;
  std::vector<int32_t> end_ids_;

  // Of the current row.
  BlockMaxima maxima_;
  std::vector<float> weights_;       // [allowed_vocab, up to a block], exp((logit - largest) / temperature)
  std::vector<Candidate> buffer_;    // one longer; holds weights until they are normalised
  std::span<Candidate> candidates_;  // the front of buffer_
  double total_weight_ = 0.0;        // of the candidates
  double log_sum_ = 0.0;             // log-sum-exp of the unmodified logits, for log-probabilities
  std::vector<float> raw_;           // the unmodified logits, -inf where mask or allowed_token_ids rule out

  std::vector<float> sparse_;  // row for sample_largest(), -inf between calls
  std::vector<float> scratch_;
  std::vector<double> buckets_;
  std::vector<Candidate> boundary_;
};

}  // namespace vllm

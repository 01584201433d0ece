#include "sample/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace vllm {
namespace {

constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr float kImpossible = -std::numeric_limits<float>::infinity();

bool inside(int32_t id, std::span<const float> row) {
  return id >= 0 && static_cast<size_t>(id) < row.size();
}

bool any_possible(std::span<const float> row) {
  return std::ranges::any_of(row, [](float x) { return x != kImpossible; });
}

void apply_mask(std::span<float> row, std::span<const uint32_t> mask) {
  for (size_t first = 0; first < row.size(); first += 32) {
    const uint32_t bits = first / 32 < mask.size() ? mask[first / 32] : 0;
    if (bits == ~uint32_t{0}) continue;
    const size_t count = std::min<size_t>(32, row.size() - first);
    for (size_t i = 0; i < count; ++i) {
      if (!(bits >> i & 1)) row[first + i] = kImpossible;
    }
  }
}

void forbid_bad_words(std::span<float> row, std::span<const std::vector<int32_t>> words,
                      std::span<const int32_t> output) {
  for (const auto& word : words) {
    const size_t before = word.size() - 1;
    if (before > output.size() || !inside(word.back(), row)) continue;
    if (std::equal(word.begin(), word.end() - 1, output.end() - static_cast<ptrdiff_t>(before))) {
      row[word.back()] = kImpossible;
    }
  }
}

// Finite stays finite, whatever the penalties.
float penalised(float logit, float repetition, float subtracted) {
  if (logit == kImpossible) return logit;
  const float repeated = logit > 0.0f ? logit / repetition : logit * repetition;
  return std::clamp(repeated - subtracted, kLowest, std::numeric_limits<float>::max());
}

bool larger(const Candidate& a, const Candidate& b) {
  return a.probability != b.probability ? a.probability > b.probability : a.id < b.id;
}

// Buckets of the weights in (0, 1], ordered as they are: exponent and 6 bits of the fraction.
constexpr int kBucketShift = 17;
constexpr size_t kBuckets = (std::bit_cast<uint32_t>(1.0f) >> kBucketShift) + 1;
size_t bucket_of(const Candidate& candidate) {
  return std::bit_cast<uint32_t>(candidate.probability) >> kBucketShift;
}

}  // namespace

SamplerState::SamplerState(std::span<const int32_t> prompt) : prompt_ids_(prompt.begin(), prompt.end()) {
  std::ranges::sort(prompt_ids_);
  prompt_ids_.erase(std::unique(prompt_ids_.begin(), prompt_ids_.end()), prompt_ids_.end());
}

void SamplerState::add_output(int32_t id) {
  const auto place = std::lower_bound(counts_.begin(), counts_.end(), std::pair<int32_t, int32_t>{id, 0});
  if (place != counts_.end() && place->first == id) {
    ++place->second;
  } else {
    counts_.insert(place, {id, 1});
  }
}

Sampler::Sampler(int32_t vocab_size, int32_t allowed_vocab, std::vector<int32_t> end_ids)
    : vocab_size_(vocab_size),
      allowed_vocab_(std::min(vocab_size, allowed_vocab)),
      end_ids_(std::move(end_ids)) {
  if (allowed_vocab_ < 1) {
    fail_load("The vocabulary has %d tokens that may be chosen; at least 1 is needed.", allowed_vocab_);
  }
  weights_.resize((allowed_vocab_ + kLogitBlock - 1) / kLogitBlock * kLogitBlock);
  buffer_.resize(weights_.size() + 1);  // one more, for what is written but not kept
}

SampledToken Sampler::sample(std::span<float> logits, const SamplingParams& params, const SamplerState& state,
                             std::span<const int32_t> output, std::span<const uint32_t> mask, uint64_t seed) {
  select(logits, params, state, output, mask);
  SampledToken token;
  token.id = draw(output.size(), seed);
  if (params.logprobs >= 0) report_logprobs(token, params.logprobs);
  return token;
}

int32_t Sampler::draw(size_t outputs, uint64_t seed) const {
  if (candidates_.size() == 1) return candidates_[0].id;
  const double target = uniform(seed, outputs) * total_weight_;
  double sum = 0.0;
  for (const Candidate& candidate : candidates_) {
    sum += candidate.probability;
    if (sum > target) return candidate.id;
  }
  return candidates_.back().id;
}

int Sampler::decisive(const SamplingParams& params, size_t outputs, bool masked) const {
  const bool edited = masked || params.logprobs >= 0 || !params.allowed_token_ids.empty() ||
                      !params.bad_words.empty() || static_cast<int64_t>(outputs) < params.min_tokens ||
                      !params.logit_bias.empty() || params.logits_processor ||
                      params.repetition_penalty != 1.0f || params.frequency_penalty != 0.0f ||
                      params.presence_penalty != 0.0f;
  if (edited) return 0;
  if (params.greedy()) return 1;
  // One more than top_k tells whether others equal the last of them.
  if (params.top_k < 1 || params.top_k >= kMostLargest) return 0;
  return std::min(params.top_k + 1, allowed_vocab_);
}

std::optional<SampledToken> Sampler::sample_largest(std::span<const RankedValue> largest,
                                                    const SamplingParams& params, size_t outputs,
                                                    uint64_t seed) {
  if (!std::isfinite(largest[0].value)) return std::nullopt;
  SampledToken token;
  token.id = largest[0].column;
  if (params.greedy()) return token;
  const auto k = static_cast<size_t>(params.top_k);
  if (largest.size() > k && largest[k].value == largest[k - 1].value) return std::nullopt;
  // Of the other tokens none is a candidate, and -inf in their place changes no sum.
  if (sparse_.empty()) sparse_.assign(static_cast<size_t>(allowed_vocab_), kImpossible);
  maxima_.of_block.assign((sparse_.size() + kLogitBlock - 1) / kLogitBlock, kImpossible);
  maxima_.largest = largest[0].value;
  for (const auto& [id, logit] : largest) {
    sparse_[static_cast<size_t>(id)] = logit;
    float& most = maxima_.of_block[static_cast<size_t>(id) / kLogitBlock];
    most = std::max(most, logit);
  }
  choose(sparse_, params);
  token.id = draw(outputs, seed);
  for (const RankedValue& each : largest) sparse_[static_cast<size_t>(each.column)] = kImpossible;
  return token;
}

std::span<const Candidate> Sampler::distribution(std::span<float> logits, const SamplingParams& params,
                                                 const SamplerState& state, std::span<const int32_t> output,
                                                 std::span<const uint32_t> mask) {
  select(logits, params, state, output, mask);
  for (Candidate& candidate : candidates_) {
    candidate.probability = static_cast<float>(candidate.probability / total_weight_);
  }
  return candidates_;
}

void Sampler::select(std::span<float> logits, const SamplingParams& params, const SamplerState& state,
                     std::span<const int32_t> output, std::span<const uint32_t> mask) {
  if (logits.size() != static_cast<size_t>(vocab_size_)) {
    fail_runtime("A row has %zu logits; the vocabulary has %d tokens.", logits.size(), vocab_size_);
  }
  const auto row = logits.first(allowed_vocab_);
  scan(row, output.size(), "model");
  if (params.logprobs >= 0) log_sum_ = log_sum_exp(row, maxima_);
  bool edited = restrict_tokens(row, params, mask);
  if (params.logprobs >= 0) raw_.assign(row.begin(), row.end());
  edited |= edit(logits, params, output, mask);
  edited |= penalise(row, params, state);
  if (edited) maxima_.scan(row);
  if (maxima_.largest == kImpossible) {
    fail_runtime("No token can be chosen at output position %zu: constraint and parameters rule out all %d.",
                 output.size(), allowed_vocab_);
  }
  choose(row, params);
}

/// The candidates of a row whose maxima are known, and their weights.
void Sampler::choose(std::span<const float> row, const SamplingParams& params) {
  if (params.greedy()) {
    buffer_[0] = {argmax(row, maxima_), 1.0f};
    keep_first(1, 1.0);
    return;
  }
  float threshold = kLowest;
  if (params.min_p > 0.0f) {
    const double distance =
        static_cast<double>(params.temperature) * std::log(static_cast<double>(params.min_p));
    threshold = std::max(threshold, static_cast<float>(maxima_.largest + distance));
  }
  if (params.top_k > 0) threshold = std::max(threshold, kth_largest(row, maxima_, params.top_k, scratch_));
  const double total = weigh(row, threshold, params.temperature);
  if (params.top_p < 1.0f) {
    // Tokens this light weigh less than 1 - top_p even if all are, so none of them is in the nucleus.
    const double light = 0.99 * (1.0 - params.top_p) * total / static_cast<double>(row.size());
    keep_nucleus(params.top_p, collect(row, threshold, static_cast<float>(light)), total);
  } else {
    keep_first(collect(row, threshold, 0.0f), total);
  }
}

bool Sampler::restrict_tokens(std::span<float> row, const SamplingParams& params,
                              std::span<const uint32_t> mask) {
  if (!mask.empty()) apply_mask(row, mask);
  if (!params.allowed_token_ids.empty()) allow_only(row, params.allowed_token_ids);
  return !mask.empty() || !params.allowed_token_ids.empty();
}

bool Sampler::edit(std::span<float> logits, const SamplingParams& params, std::span<const int32_t> output,
                   std::span<const uint32_t> mask) {
  const auto row = logits.first(allowed_vocab_);
  bool edited = false;
  if (!params.bad_words.empty()) {
    forbid_bad_words(row, params.bad_words, output);
    edited = true;
  }
  if (static_cast<int64_t>(output.size()) < params.min_tokens) {
    suppress_ends(row, params);
    edited = true;
  }
  for (const auto& [id, bias] : params.logit_bias) {
    if (inside(id, row)) row[id] += bias;
    edited = true;
  }
  if (params.logits_processor) {
    params.logits_processor(output, logits);
    scan(row, output.size(), "logits processor");
    if (!mask.empty()) apply_mask(row, mask);
    edited = true;
  }
  return edited;
}

bool Sampler::penalise(std::span<float> row, const SamplingParams& params, const SamplerState& state) {
  const bool repetition = params.repetition_penalty != 1.0f;
  if (!repetition && params.frequency_penalty == 0.0f && params.presence_penalty == 0.0f) return false;
  if (repetition) {
    auto seen = state.counts_.begin();
    for (int32_t id : state.prompt_ids_) {
      while (seen != state.counts_.end() && seen->first < id) ++seen;
      const bool in_output = seen != state.counts_.end() && seen->first == id;
      if (!in_output && inside(id, row)) row[id] = penalised(row[id], params.repetition_penalty, 0.0f);
    }
  }
  for (const auto& [id, count] : state.counts_) {
    const float subtracted = params.frequency_penalty * static_cast<float>(count) + params.presence_penalty;
    if (inside(id, row)) row[id] = penalised(row[id], params.repetition_penalty, subtracted);
  }
  return true;
}

void Sampler::scan(std::span<const float> row, size_t position, const char* whose) {
  if (!maxima_.scan(row)) {
    const auto bad =
        std::ranges::find_if(row, [](float x) { return !(x <= std::numeric_limits<float>::max()); });
    fail_runtime("The logits of the %s are not finite at output position %zu: token %td has %g.", whose,
                 position, bad - row.begin(), *bad);
  }
  if (maxima_.largest == kImpossible) {
    fail_runtime("The logits of the %s are not finite at output position %zu: all %zu tokens have -inf.",
                 whose, position, row.size());
  }
}

void Sampler::allow_only(std::span<float> row, std::span<const int32_t> ids) {
  scratch_.clear();
  for (int32_t id : ids) scratch_.push_back(inside(id, row) ? row[id] : kImpossible);
  std::ranges::fill(row, kImpossible);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (inside(ids[i], row)) row[ids[i]] = scratch_[i];
  }
}

void Sampler::suppress_ends(std::span<float> row, const SamplingParams& params) {
  scratch_.clear();
  const auto for_each_end = [&](auto&& edit) {
    for (int32_t id : end_ids_) {
      if (inside(id, row)) edit(row[id]);
    }
    for (int32_t id : params.stop_token_ids) {
      if (inside(id, row)) edit(row[id]);
    }
  };
  for_each_end([&](float& logit) {
    scratch_.push_back(logit);
    logit = kImpossible;
  });
  if (!any_possible(row)) {
    // An id may come twice; its first value is the true one.
    auto saved = scratch_.begin();
    for_each_end([&](float& logit) { logit = std::max(logit, *saved++); });
  }
}

double Sampler::weigh(std::span<const float> row, float threshold, float temperature) {
  double total = 0.0;
  for_each_block(row, maxima_, threshold, [&](size_t block, std::span<const float, kLogitBlock> logits) {
    const auto weights = std::span(weights_).subspan(block * kLogitBlock).first<kLogitBlock>();
    total += exp_block(logits, maxima_.largest, 1.0f / temperature, threshold, weights);
  });
  return total;
}

// Puts the tokens that weigh more than `above` into the buffer, in order of ids, and returns how many they
// are.
size_t Sampler::collect(std::span<const float> row, float threshold, float above) {
  size_t count = 0;
  for_each_block(row, maxima_, threshold, [&](size_t block, std::span<const float, kLogitBlock>) {
    const size_t first = block * kLogitBlock;
    for (size_t i = first; i < first + kLogitBlock; ++i) {
      buffer_[count] = {static_cast<int32_t>(i), weights_[i]};
      count += weights_[i] > above;
    }
  });
  return count;
}

// The smallest set of the heaviest candidates that reaches `top_p` of the weight: a candidate goes when those
// before it have reached that. Only the bucket where this happens is sorted.
void Sampler::keep_nucleus(float top_p, size_t count, double total_weight) {
  const auto all = std::span(buffer_).first(count);
  buckets_.assign(kBuckets, 0.0);
  for (const Candidate& candidate : all) buckets_[bucket_of(candidate)] += candidate.probability;
  const double target = static_cast<double>(top_p) * total_weight;
  double kept = 0.0;
  size_t last = kBuckets - 1;  // the bucket of the heaviest
  while (last > 0 && kept + buckets_[last] < target) kept += buckets_[last--];

  boundary_.clear();
  count = 0;
  for (const Candidate& candidate : all) {
    const size_t bucket = bucket_of(candidate);
    if (bucket > last) buffer_[count++] = candidate;
    if (bucket == last) boundary_.push_back(candidate);
  }
  std::ranges::sort(boundary_, larger);
  for (const Candidate& candidate : boundary_) {
    if (count > 0 && kept >= target) break;
    buffer_[count++] = candidate;
    kept += candidate.probability;
  }
  keep_first(count, kept);
}

void Sampler::report_logprobs(SampledToken& token, int32_t count) {
  const auto logprob = [&](int32_t id) {
    return static_cast<float>(std::max(raw_[id] - log_sum_, static_cast<double>(kLowest)));
  };
  token.logprob = logprob(token.id);
  if (count < 1) return;
  maxima_.scan(raw_);
  const float threshold = kth_largest(raw_, maxima_, count, scratch_);
  for_each_block(raw_, maxima_, threshold, [&](size_t block, std::span<const float, kLogitBlock> values) {
    for (size_t i = 0; i < kLogitBlock; ++i) {
      if (values[i] >= threshold)
        token.top.push_back({static_cast<int32_t>(block * kLogitBlock + i), values[i]});
    }
  });
  std::ranges::sort(token.top, [](const TokenLogprob& a, const TokenLogprob& b) {
    return a.logprob != b.logprob ? a.logprob > b.logprob : a.id < b.id;
  });
  if (token.top.size() > static_cast<size_t>(count)) token.top.resize(count);
  for (TokenLogprob& entry : token.top) entry.logprob = logprob(entry.id);
}

}  // namespace vllm

#include "device/cpu/experts.h"

#include <algorithm>
#include <atomic>
#include <cmath>

namespace vllm::cpu {
namespace {

constexpr int64_t kPanels = 32;  // outputs, a multiple of what any panel holds

/// A thread's unit of work is kPanels outputs times a step. For few rows it is large, since weights are read
/// faster in long runs, as long as there are enough units for the threads.
constexpr int64_t kFewRows = 16, kLongestStep = 8;

int64_t step_of(int64_t blocks, int threads, int64_t longest) {
  return std::clamp<int64_t>(blocks / (8 * threads), 1, longest);
}

/// Choices (pairs of a row and an expert) that are computed at once, or as many as there are rows: it bounds
/// the memory.
constexpr int64_t kMostChoices = 4096;

/// Below this many products, waking other threads costs more than it saves.
constexpr int64_t kAloneProducts = 16384;

/// Grows without shrinking again.
template <class T>
void grow(std::vector<T>& v, int64_t count) {
  if (v.size() < static_cast<size_t>(count)) v.resize(static_cast<size_t>(count));
}

/// The choices of one row; p: scratch of `experts` values.
void choose(const RouterSpec& router, const float* logits, int64_t experts, float* p, int32_t* choice,
            float* weight) {
  float top = -INFINITY, sum = 0;
  for (int64_t e = 0; e < experts; ++e) top = std::fmax(top, logits[e]);
  for (int64_t e = 0; e < experts; ++e) sum += p[e] = std::exp(logits[e] - top);
  for (int64_t e = 0; e < experts; ++e) {
    p[e] /= sum;
    if (!std::isfinite(p[e])) p[e] = 0;
  }
  float total = 0;
  for (int i = 0; i < router.experts_per_row; ++i) {
    const auto best = static_cast<int32_t>(std::max_element(p, p + experts) - p);  // the first of equals
    choice[i] = best;
    weight[i] = p[best];
    total += p[best];
    p[best] = -1;
  }
  const float divisor = router.renormalise && total > 0 ? total : 1;
  for (int i = 0; i < router.experts_per_row; ++i) weight[i] = weight[i] / divisor * router.scale;
}

}  // namespace

/// unit(index, thread) for all units, shared out when there are `values` products or more.
template <class Unit>
void ExpertDriver::for_units(int64_t count, int64_t values, Unit unit) {
  std::atomic<int64_t> next{0};
  const auto part = [&](int thread) {
    for (int64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) unit(i, thread);
  };
  if (values < kAloneProducts) {
    part(0);
  } else {
    pool_.run(part);
  }
}

void ExpertDriver::route(const RouterSpec& router, const float* logits, int64_t ldl, int64_t rows,
                         int64_t experts) {
  const int64_t per_row = router.experts_per_row;
  grow(p_, rows * experts);
  grow(choice_, rows * per_row);
  grow(weight_, rows * per_row);
  constexpr int64_t kRows = 8;
  for_units((rows + kRows - 1) / kRows, rows * experts * per_row, [&](int64_t unit, int) {
    for (int64_t t = unit * kRows; t < std::min(rows, (unit + 1) * kRows); ++t)
      choose(router, logits + t * ldl, experts, p_.data() + t * experts, choice_.data() + t * per_row,
             weight_.data() + t * per_row);
  });
}

/// Sorts the choices by expert.
void ExpertDriver::group(int64_t rows, int64_t experts, int64_t per_row) {
  const int64_t choices = rows * per_row;
  grow(row_, choices);
  grow(factor_, choices);
  active_.reserve(static_cast<size_t>(experts));
  start_.reserve(static_cast<size_t>(experts) + 1);
  first_.assign(static_cast<size_t>(experts) + 1, 0);
  for (int64_t i = 0; i < choices; ++i)
    if (weight_[i] != 0) ++first_[choice_[i] + 1];
  active_.clear();
  start_.clear();
  for (int64_t e = 0; e < experts; ++e) {
    if (first_[e + 1] > 0) {
      active_.push_back(static_cast<int32_t>(e));
      start_.push_back(first_[e]);
    }
    first_[e + 1] += first_[e];
  }
  start_.push_back(first_[experts]);
  for (int64_t i = 0; i < choices; ++i) {
    if (weight_[i] == 0) continue;
    const int32_t at = first_[choice_[i]]++;
    row_[at] = static_cast<int32_t>(i / per_row);
    factor_[at] = weight_[i];
  }
}

void ExpertDriver::run(const RouterSpec& router, std::span<const ExpertWeights> experts, Gated gated,
                       const float* x, int64_t ldx, int64_t rows, const float* logits, int64_t ldl,
                       bool accumulate, float* out, int64_t ldo) {
  if (rows == 0) return;
  const auto count = static_cast<int64_t>(experts.size());
  route(router, logits, ldl, rows, count);
  group(rows, count, router.experts_per_row);
  weights_.reserve(2 * experts.size());
  wave_start_.reserve(experts.size() + 1);
  // A wave writes what a later one would read where the result takes the place of the input.
  const int64_t all = rows * router.experts_per_row;
  const int64_t most = x == out ? all : std::min(all, std::max(rows, kMostChoices));
  grow(hidden_, most * experts[0].gate->rows);
  grow(partial_, pool_.threads() * std::max(2 * rows, kFewRows * kLongestStep) * kPanels);
  const Call call{experts, gated, x, ldx, rows, out, ldo};
  size_t first = 0;
  do {
    size_t end = std::min(first + 1, active_.size());
    while (end < active_.size() && start_[end + 1] - start_[first] <= most) ++end;
    run_wave(call, first, end, accumulate || first > 0);
    first = end;
  } while (first < active_.size());
}

void ExpertDriver::run_wave(const Call& call, size_t begin, size_t end, bool accumulate) {
  const int64_t cols = call.experts[0].gate->cols, inner = call.experts[0].gate->rows, rows = call.rows;
  const std::span<const int32_t> active = std::span(active_).subspan(begin, end - begin);
  const int32_t* const row = row_.data() + start_[begin];
  const float* const factor = factor_.data() + start_[begin];
  std::vector<int32_t>& start = wave_start_;
  start.clear();
  for (size_t g = begin; g <= end; ++g) start.push_back(start_[g] - start_[begin]);
  const auto groups = static_cast<int64_t>(active.size());
  const int64_t choices = start.back(), products = choices * cols * inner;

  const int64_t longest = rows <= kFewRows ? kLongestStep : 1;
  const auto partial = [&](int thread) {
    return partial_.data() + thread * std::max(2 * rows, kFewRows * kLongestStep) * kPanels;
  };

  weights_.clear();
  for (const int32_t e : active) {
    weights_.push_back(call.experts[e].gate);
    weights_.push_back(call.experts[e].up);
  }
  // The experts of a single row share its activations.
  constexpr int32_t kOneRow[] = {0, 1};
  const std::span<const int32_t> groups_of_rows = rows == 1 ? std::span<const int32_t>(kOneRow) : start;
  if (choices > 0) in_.prepare(call.x, call.ldx, cols, row, groups_of_rows, weights_);
  const int64_t inner_blocks = (inner + kPanels - 1) / kPanels;
  const int64_t width = step_of(groups * inner_blocks, pool_.threads(), longest) * kPanels;
  const int64_t units = (inner + width - 1) / width;
  for_units(groups * units, products, [&](int64_t unit, int thread) {
    const auto g = static_cast<size_t>(unit / units);
    const int64_t first = unit % units * width, count = std::min(width, inner - first);
    const ExpertWeights& expert = call.experts[active[g]];
    float* const gate = hidden_.data() + start[g] * inner + first;
    float* const up = partial(thread);
    in_.multiply(rows == 1 ? 0 : g, *expert.gate, first, width, gate, inner);
    in_.multiply(rows == 1 ? 0 : g, *expert.up, first, width, up, width);
    for (int64_t t = 0; t < start[g + 1] - start[g]; ++t)
      call.gated(gate + t * inner, up + t * width, count, gate + t * inner);
  });

  weights_.clear();
  for (const int32_t e : active) weights_.push_back(call.experts[e].down);
  if (choices > 0) inner_.prepare(hidden_.data(), inner, inner, nullptr, start, weights_);
  // A unit owns its columns of all rows, so that the sum over the experts has an order.
  const int64_t down_width = step_of((cols + kPanels - 1) / kPanels, pool_.threads(), longest) * kPanels;
  for_units((cols + down_width - 1) / down_width, products, [&](int64_t unit, int thread) {
    const int64_t first = unit * down_width, count = std::min(cols, first + down_width) - first;
    float* const y = partial(thread);
    // Of many rows the sums are kept side by side until they are done: the columns of a unit in rows that are
    // a power of two apart would fall on each other in the cache.
    const bool apart = rows > kFewRows;
    float* const sums = apart ? y + rows * kPanels : call.out + first;
    const int64_t stride = apart ? kPanels : call.ldo;
    for (int64_t t = 0; t < rows; ++t) {
      float* const sum = sums + t * stride;
      if (!accumulate) {
        std::fill_n(sum, count, 0.0f);
      } else if (apart) {
        std::copy_n(call.out + t * call.ldo + first, count, sum);
      }
    }
    for (int64_t g = 0; g < groups; ++g) {
      inner_.multiply(static_cast<size_t>(g), *call.experts[active[g]].down, first, down_width, y,
                      down_width);
      for (int64_t i = start[g]; i < start[g + 1]; ++i) {
        const float* const from = y + (i - start[g]) * down_width;
        float* const to = sums + row[i] * stride;
        for (int64_t c = 0; c < count; ++c) to[c] += factor[i] * from[c];
      }
    }
    for (int64_t t = 0; apart && t < rows; ++t)
      std::copy_n(sums + t * kPanels, count, call.out + t * call.ldo + first);
  });
}

}  // namespace vllm::cpu

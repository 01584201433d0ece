// Fast passes over a row of logits.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace vllm {

inline constexpr size_t kLogitBlock = 64;

/// The largest value of every kLogitBlock values of a row, which lets later passes skip what is too small.
struct BlockMaxima {
  std::vector<float> of_block;
  float largest = 0.0f;  // of the row

  /// One pass over the row. False when it holds NaN or +inf; the maxima are then meaningless.
  bool scan(std::span<const float> row);
};

/// out[i] = exp(scale * (x[i] - shift)) where x[i] >= threshold, else 0; returns the sum. For results at most
/// 1: below e^-87 they are 0. Any x but NaN and +inf. Relative error below 1e-6, exactly 1 where x[i] ==
/// shift.
double exp_block(std::span<const float, kLogitBlock> x, float shift, float scale, float threshold,
                 std::span<float, kLogitBlock> out);

/// Calls f(index of the block, its values) for the blocks with a value of at least `threshold`; the last one
/// is filled up with -inf.
template <typename F>
void for_each_block(std::span<const float> row, const BlockMaxima& maxima, float threshold, F&& f) {
  for (size_t block = 0; block < maxima.of_block.size(); ++block) {
    if (maxima.of_block[block] < threshold) continue;
    const auto values = row.subspan(block * kLogitBlock);
    if (values.size() >= kLogitBlock) {
      f(block, values.first<kLogitBlock>());
    } else {
      std::array<float, kLogitBlock> padded;
      padded.fill(-std::numeric_limits<float>::infinity());
      std::copy(values.begin(), values.end(), padded.begin());
      f(block, std::span<const float, kLogitBlock>(padded));
    }
  }
}

/// log(sum(exp(x))); the largest must be finite.
double log_sum_exp(std::span<const float> row, const BlockMaxima& maxima);

/// The lowest id with the largest value.
int32_t argmax(std::span<const float> row, const BlockMaxima& maxima);

/// The k-th largest finite value, k >= 1; the lowest finite float when there are fewer. `scratch` keeps its
/// memory.
float kth_largest(std::span<const float> row, const BlockMaxima& maxima, size_t k,
                  std::vector<float>& scratch);

}  // namespace vllm

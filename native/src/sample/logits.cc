#include "sample/logits.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>

namespace vllm {
namespace {

// Four lanes: the width that every x86-64 and AArch64 has.
using Float4 = float __attribute__((vector_size(16)));
using Int4 = int32_t __attribute__((vector_size(16)));
constexpr size_t kLanes = 4;

constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

Float4 load(const float* from) {
  Float4 v;
  std::memcpy(&v, from, sizeof(v));
  return v;
}

Float4 splat(float x) { return Float4{x, x, x, x}; }

// exp(x) for x <= 0: 2^n * e^r with n = round(x / ln 2), |r| <= ln(2) / 2 and the Taylor polynomial of
// degree 7.
Float4 exp4(Float4 x) {
  const Float4 lowest = splat(-87.0f);
  const Int4 keep = x >= lowest;
  x = keep ? x : lowest;
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  const Float4 shifted = x * 1.44269504f + 12582912.0f;
  const Float4 n = shifted - 12582912.0f;
  const Float4 r = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts, the first exact times n
  Float4 e = splat(1.0f / 5040);
  e = e * r + 1.0f / 720;
  e = e * r + 1.0f / 120;
  e = e * r + 1.0f / 24;
  e = e * r + 1.0f / 6;
  e = e * r + 0.5f;
  e = e * r + 1.0f;
  e = e * r + 1.0f;
  const Int4 scale = reinterpret_cast<Int4>(shifted) << 23;
  return reinterpret_cast<Float4>((reinterpret_cast<Int4>(e) + scale) & keep);
}

}  // namespace

bool BlockMaxima::scan(std::span<const float> row) {
  const size_t full = row.size() / kLogitBlock;
  of_block.resize((row.size() + kLogitBlock - 1) / kLogitBlock);
  Int4 nan = {0, 0, 0, 0};
  const float* x = row.data();
  for (size_t block = 0; block < full; ++block, x += kLogitBlock) {
    Float4 most[4] = {load(x), load(x + kLanes), load(x + 2 * kLanes), load(x + 3 * kLanes)};
    nan |= (most[0] != most[0]) | (most[1] != most[1]) | (most[2] != most[2]) | (most[3] != most[3]);
    for (size_t i = 4 * kLanes; i < kLogitBlock; i += 4 * kLanes) {
      for (size_t lane = 0; lane < 4; ++lane) {
        const Float4 v = load(x + i + lane * kLanes);
        nan |= v != v;
        most[lane] = v > most[lane] ? v : most[lane];
      }
    }
    most[0] = most[1] > most[0] ? most[1] : most[0];
    most[2] = most[3] > most[2] ? most[3] : most[2];
    most[0] = most[2] > most[0] ? most[2] : most[0];
    of_block[block] = std::max(std::max(most[0][0], most[0][1]), std::max(most[0][2], most[0][3]));
  }
  bool finite = (nan[0] | nan[1] | nan[2] | nan[3]) == 0;
  if (full < of_block.size()) {
    float most = -kInfinity;
    for (float v : row.subspan(full * kLogitBlock)) {
      finite &= !std::isnan(v);
      most = std::max(most, v);
    }
    of_block[full] = most;
  }
  largest = -kInfinity;
  for (float most : of_block) largest = std::max(largest, most);
  return finite && largest < kInfinity;
}

double exp_block(std::span<const float, kLogitBlock> x, float shift, float scale, float threshold,
                 std::span<float, kLogitBlock> out) {
  Float4 sum = splat(0.0f);
  for (size_t i = 0; i < kLogitBlock; i += kLanes) {
    const Float4 v = load(x.data() + i);
    const Int4 keep = v >= splat(threshold);
    const Float4 e = reinterpret_cast<Float4>(reinterpret_cast<Int4>(exp4((v - shift) * scale)) & keep);
    std::memcpy(out.data() + i, &e, sizeof(e));
    sum += e;
  }
  return static_cast<double>(sum[0] + sum[1]) + static_cast<double>(sum[2] + sum[3]);
}

double log_sum_exp(std::span<const float> row, const BlockMaxima& maxima) {
  std::array<float, kLogitBlock> unused;
  double sum = 0.0;
  for_each_block(row, maxima, kLowest, [&](size_t, std::span<const float, kLogitBlock> x) {
    sum += exp_block(x, maxima.largest, 1.0f, kLowest, unused);
  });
  return maxima.largest + std::log(sum);
}

int32_t argmax(std::span<const float> row, const BlockMaxima& maxima) {
  const auto block = std::ranges::find(maxima.of_block, maxima.largest);
  const auto first = row.begin() + (block - maxima.of_block.begin()) * static_cast<ptrdiff_t>(kLogitBlock);
  return static_cast<int32_t>(std::find(first, row.end(), maxima.largest) - row.begin());
}

float kth_largest(std::span<const float> row, const BlockMaxima& maxima, size_t k,
                  std::vector<float>& scratch) {
  const auto kth = [&] {
    std::nth_element(scratch.begin(), scratch.begin() + static_cast<ptrdiff_t>(k - 1), scratch.end(),
                     std::greater<>());
    return scratch[k - 1];
  };
  // k blocks have a maximum of at least the k-th largest maximum, so the k-th largest value is no smaller.
  float bound = kLowest;
  if (k <= maxima.of_block.size()) {
    scratch.assign(maxima.of_block.begin(), maxima.of_block.end());
    bound = std::max(bound, kth());
  }
  scratch.clear();
  for_each_block(row, maxima, bound, [&](size_t, std::span<const float, kLogitBlock> values) {
    std::ranges::copy_if(values, std::back_inserter(scratch), [&](float x) { return x >= bound; });
  });
  return scratch.size() < k ? kLowest : kth();
}

}  // namespace vllm

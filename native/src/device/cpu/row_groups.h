// Products where groups of rows meet different weights, as in a mixture of experts.
#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include "device/cpu/isa.h"
#include "device/cpu/pool.h"
#include "device/device.h"

namespace vllm::cpu {

/// Rows in groups, in the forms that the weights of the groups need. A row's product does not depend on the
/// rows around it. Memory grows on demand and is kept.
class RowGroups {
 public:
  RowGroups(ThreadPool& pool, Isa isa);
  ~RowGroups();

  /// Row i is x[row_of[i]], or x[i] where `row_of` is null; rows of x are ldx apart, [cols]. Group g is the
  /// rows start[g] .. start[g + 1] - 1. `weights` are all that the groups will be multiplied with: as many
  /// for each group, in the order of the groups.
  void prepare(const float* x, int64_t ldx, int64_t cols, const int32_t* row_of,
               std::span<const int32_t> start, std::span<const DeviceWeight* const> weights);
  /// out[i][c] = row start[group] + i times output first + c of the weight, for c < count; `first` and
  /// `count` are multiples of 32, outputs beyond the weight's are left out. Threads may call it at once.
  void multiply(size_t group, const DeviceWeight& weight, int64_t first, int64_t count, float* out,
                int64_t ldo) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace vllm::cpu

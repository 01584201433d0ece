// Packed weights of the CPU device and the products with them.
#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include "device/cpu/isa.h"
#include "device/cpu/pool.h"
#include "device/device.h"

namespace vllm::cpu {

/// Repacks a weight for the instruction set; see Device::pack. Keeps the file's rows reachable for embed_row.
std::unique_ptr<DeviceWeight> pack_weight(ThreadPool& pool, const WeightView& weight, Isa isa,
                                          bool lookup_only);
/// The bytes of its result.
size_t packed_bytes(const WeightView& weight, bool lookup_only);

/// Scratch of matmul (quantised activations), grown on demand and kept.
class MatmulScratch {
 public:
  MatmulScratch();
  ~MatmulScratch();
  size_t bytes() const;

 private:
  friend void matmul(ThreadPool&, Isa, std::span<const DeviceWeight* const>, const float*, int64_t, int64_t,
                     const float*, bool, float*, int64_t, MatmulScratch&);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// out[t] (+)= x[t] W^T + bias for `rows` rows t, W the weights stacked by rows; x rows are ldx, out rows ldo
/// elements apart, bias may be null. The weights were packed for the same `isa` and have equal cols. A row's
/// result does not depend on `rows`, on its place among them, or on the number of threads.
void matmul(ThreadPool& pool, Isa isa, std::span<const DeviceWeight* const> weights, const float* x,
            int64_t ldx, int64_t rows, const float* bias, bool accumulate, float* out, int64_t ldo,
            MatmulScratch& scratch);

/// out = scale * row `id` of the table, [cols].
void embed_row(const DeviceWeight& table, int32_t id, float scale, float* out);

}  // namespace vllm::cpu

// Mixture of experts of the CPU device.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "device/cpu/row_groups.h"

namespace vllm::cpu {

/// Each expert's weights are read once a call, by all rows that chose it. The experts are taken in waves of
/// as many as a bounded memory holds the rows of, and a wave in four stages, each shared out among the
/// threads at once: the rows' activations, gate and up with the activation function, the activations of
/// those, down with the weighted sum. Memory grows on demand and is kept.
class ExpertDriver {
 public:
  using Gated = void (*)(const float* gate, const float* up, int64_t n, float* out);

  ExpertDriver(ThreadPool& pool, Isa isa) : pool_(pool), in_(pool, isa), inner_(pool, isa) {}

  /// See Device::experts. Rows are ldx, ldl and ldo elements apart.
  void run(const RouterSpec& router, std::span<const ExpertWeights> experts, Gated gated, const float* x,
           int64_t ldx, int64_t rows, const float* logits, int64_t ldl, bool accumulate, float* out,
           int64_t ldo);

 private:
  void route(const RouterSpec& router, const float* logits, int64_t ldl, int64_t rows, int64_t experts);
  void group(int64_t rows, int64_t experts, int64_t per_row);
  struct Call {
    std::span<const ExpertWeights> experts;
    Gated gated;
    const float* x;
    int64_t ldx, rows;
    float* out;
    int64_t ldo;
  };
  /// Adds what the active experts [begin, end) give to `out`, or sets it.
  void run_wave(const Call& call, size_t begin, size_t end, bool accumulate);
  template <class Unit>
  void for_units(int64_t count, int64_t values, Unit unit);

  ThreadPool& pool_;
  RowGroups in_, inner_;
  // of the choices of all rows, [rows][experts_per_row]
  std::vector<float> p_;         // [rows][experts], scratch
  std::vector<int32_t> choice_;  // expert
  std::vector<float> weight_;    // 0: not taken
  // of the choices that are taken, sorted by expert, then by row
  std::vector<int32_t> row_;
  std::vector<float> factor_;
  std::vector<int32_t> first_;   // [experts + 1], scratch of the sort
  std::vector<int32_t> active_;  // experts that were taken
  std::vector<int32_t> start_;   // [active + 1]
  // of a wave
  std::vector<int32_t> wave_start_;  // [active + 1]
  std::vector<const DeviceWeight*> weights_;
  std::vector<float> hidden_;   // [choices][inner]
  std::vector<float> partial_;  // of each thread, [rows][outputs of a unit]: an expert's, and the sums
};

}  // namespace vllm::cpu

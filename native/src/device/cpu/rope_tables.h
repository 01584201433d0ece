// Cosines and sines of a step's positions, computed once a step and rope spec and used by all layers.
#pragma once
#include <deque>
#include <vector>

#include "device/cpu/elementwise.h"
#include "device/cpu/pool.h"
#include "device/device.h"

namespace vllm::cpu {

class RopeTables {
 public:
  class Table {
   public:
    Rotation row(int64_t t) const {
      const int64_t pairs = static_cast<int64_t>(inv_freq_.size());
      return {values_.data() + 2 * t * pairs, values_.data() + (2 * t + 1) * pairs, pairs, false};
    }

   private:
    friend class RopeTables;
    std::vector<float> inv_freq_;
    float magnitude_ = 1.0f;
    bool current_ = false;       // computed for this step
    std::vector<float> values_;  // [rows][cos, sin][pairs]
  };

  void begin_step();
  /// Valid until the next step.
  const Table& get(ThreadPool& pool, const RopeSpec& rope, const StepBatch& batch);

 private:
  std::deque<Table> tables_;
};

}  // namespace vllm::cpu

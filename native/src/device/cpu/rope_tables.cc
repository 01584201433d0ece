#include "device/cpu/rope_tables.h"

#include <cmath>

namespace vllm::cpu {

void RopeTables::begin_step() {
  for (Table& table : tables_) table.current_ = false;
}

const RopeTables::Table& RopeTables::get(ThreadPool& pool, const RopeSpec& rope, const StepBatch& batch) {
  Table* table = nullptr;
  for (Table& known : tables_)
    if (known.magnitude_ == rope.magnitude && known.inv_freq_ == rope.inv_freq) table = &known;
  if (!table) {
    table = &tables_.emplace_back();
    table->inv_freq_ = rope.inv_freq;
    table->magnitude_ = rope.magnitude;
  }
  if (table->current_) return *table;

  const int64_t pairs = static_cast<int64_t>(rope.inv_freq.size()), rows = batch.rows();
  table->values_.resize(2 * rows * pairs);
  const auto fill = [&](Range range) {
    for (int64_t t = range.begin; t < range.end; ++t) {
      float* cosines = table->values_.data() + 2 * t * pairs;
      for (int64_t i = 0; i < pairs; ++i) {
        const float angle = static_cast<float>(batch.positions[t]) * rope.inv_freq[i];
        cosines[i] = std::cos(angle) * rope.magnitude;
        cosines[pairs + i] = std::sin(angle) * rope.magnitude;
      }
    }
  };
  if (rows < 8) {
    fill({0, rows});
  } else {
    pool.run([&](int thread) { fill(share(rows, thread, pool.threads())); });
  }
  table->current_ = true;
  return *table;
}

}  // namespace vllm::cpu

// The batch is data: what one forward step computes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace vllm {

/// T rows (tokens) of S sequences. The rows of sequence s are seq_start[s] .. seq_start[s + 1] - 1, with
/// ascending, contiguous positions. Prefill chunks, decodes, verifications and resumed sequences are all just
/// rows.
struct StepBatch {
  std::vector<int32_t> token_ids;    // [T]
  std::vector<int32_t> positions;    // [T], position in its sequence, from 0
  std::vector<int32_t> seq_start;    // [S + 1], row index
  std::vector<int32_t> block_table;  // [S * max_blocks], KV block ids; unused entries are -1
  std::vector<int32_t> state_slots;  // [S], slot of recurrent state, -1 for models without
  std::vector<int32_t> logit_rows;   // [R], ascending row indices whose logits are needed
  int32_t max_blocks = 0;

  int rows() const { return static_cast<int>(token_ids.size()); }
  int sequences() const { return seq_start.empty() ? 0 : static_cast<int>(seq_start.size()) - 1; }
  /// Sequence s after this step holds positions 0 .. context_len(s) - 1.
  int context_len(int s) const { return positions[seq_start[s + 1] - 1] + 1; }
  const int32_t* blocks_of(int s) const { return block_table.data() + static_cast<size_t>(s) * max_blocks; }
  void clear();
};

inline void StepBatch::clear() { *this = StepBatch{}; }

}  // namespace vllm

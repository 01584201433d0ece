#include "schedule/state_checkpoints.h"

namespace vllm {

StateCheckpoints::StateCheckpoints(int first_slot, int count) : first_slot_(first_slot), count_(count) {}

int32_t StateCheckpoints::use(const BlockHash& hash) {
  const auto entry = by_hash_.at(hash);
  entries_.splice(entries_.begin(), entries_, entry);
  return entry->slot;
}

int32_t StateCheckpoints::add(const BlockHash& hash, const BlockHash* instead) {
  if (count_ == 0 || has(hash)) return -1;
  int32_t slot = first_slot_ + static_cast<int32_t>(entries_.size());
  auto leaving = entries_.end();
  if (instead != nullptr && has(*instead)) {
    leaving = by_hash_.at(*instead);
  } else if (static_cast<int>(entries_.size()) == count_) {
    leaving = std::prev(entries_.end());
  }
  if (leaving != entries_.end()) {
    slot = leaving->slot;
    by_hash_.erase(leaving->hash);
    entries_.erase(leaving);
  }
  entries_.push_front({hash, slot});
  by_hash_[hash] = entries_.begin();
  return slot;
}

}  // namespace vllm

// Which slots hold copies of recurrent state, and after which prefix.
#pragma once
#include <list>
#include <unordered_map>

#include "schedule/block_pool.h"

namespace vllm {

/// Slots first_slot .. first_slot + count - 1. A state is known by the hash of the full block that it comes
/// after; the one used longest ago gives way to a new one.
class StateCheckpoints {
 public:
  StateCheckpoints(int first_slot, int count);

  int count() const { return count_; }
  bool has(const BlockHash& hash) const { return by_hash_.contains(hash); }
  /// The slot of a state that is there, which counts as used.
  int32_t use(const BlockHash& hash);
  /// The slot that the state after the block `hash` must be copied to, that of `instead` if it is still
  /// there; -1 when the state is known already.
  int32_t add(const BlockHash& hash, const BlockHash* instead);

 private:
  struct Entry {
    BlockHash hash;
    int32_t slot;
  };
  struct HashOfHash {
    size_t operator()(const BlockHash& hash) const { return static_cast<size_t>(hash[0] ^ hash[1]); }
  };

  int first_slot_, count_;
  std::list<Entry> entries_;  // the one used last in front
  std::unordered_map<BlockHash, std::list<Entry>::iterator, HashOfHash> by_hash_;
};

}  // namespace vllm

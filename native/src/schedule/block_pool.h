// KV blocks and the prefix cache.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace vllm {

using BlockHash = std::array<uint64_t, 2>;

/// Hash of a full block: its tokens and the hash of the block before it (zero for the first). XXH3-128 over
/// the 16 bytes of `parent`, then the tokens.
BlockHash hash_block(const BlockHash& parent, std::span<const int32_t> tokens);

/// Hands out block ids 0 .. num_blocks - 1, ascending at first. Freed blocks that nobody can find go first,
/// the latest before all, whose memory is warm; then those that were never used; then the findable ones,
/// which keep their content until then, the one freed longest ago first. Every call costs time in the blocks
/// it names, never in the blocks of the pool.
class BlockPool {
 public:
  BlockPool(int num_blocks, int block_size, bool caching);

  int total() const { return static_cast<int>(blocks_.size()); }
  int available() const { return num_free_; }  // blocks nobody holds
  int block_size() const { return block_size_; }
  bool caching() const { return caching_; }

  /// One block with reference count 1. Must not be called when available() is 0.
  int32_t allocate();
  /// Drops one reference of each, last first: the tail of a chain is evicted first.
  void free(std::span<const int32_t> blocks);
  /// Looks the chain of full blocks of `tokens` up; returns the ids of the longest cached run of at most
  /// (tokens.size() - 1) / block_size blocks and takes no reference. `hashes` is extended as far as the
  /// look-up goes. A hit is verified token by token.
  std::vector<int32_t> lookup(std::span<const int32_t> tokens, std::vector<BlockHash>& hashes) const;
  struct Part {
    int32_t block;
    int tokens;
  };
  /// Of the newest cached blocks that follow `parent`, full or not, the one that shares most first tokens
  /// with `tokens`; 0 tokens where none shares any. Takes no reference.
  Part lookup_part(const BlockHash& parent, std::span<const int32_t> tokens) const;
  void acquire(std::span<const int32_t> blocks);  // takes a reference of each
  /// How many of `blocks` nobody holds: acquiring them lowers available() by as much.
  int count_free(std::span<const int32_t> blocks) const;
  /// Makes a full block findable. Equal blocks are all kept; the one published first is found first.
  void publish(int32_t block, const BlockHash& hash, const BlockHash& parent,
               std::span<const int32_t> tokens);
  /// Makes the first tokens of a block findable for lookup_part(), unless a block is that has them.
  void publish_part(int32_t block, const BlockHash& parent, std::span<const int32_t> tokens);
  int num_cached() const { return num_cached_; }  // blocks findable by hash

  /// For tests, in time linear in the pool: throws Error(Runtime) naming what is inconsistent, and when the
  /// references held do not add up to `references`.
  void check_invariants(int64_t references) const;

 private:
  static constexpr int32_t kNone = -1;

  struct Block {
    int32_t references = 0;
    int32_t previous = kNone, next = kNone;  // neighbours in the free list
    int cached = 0;                          // its first tokens, which can be found
    int32_t previous_equal = kNone,
            next_equal = kNone;            // neighbours among the cached blocks of the same hash
    int32_t newer = kNone, older = kNone;  // neighbours among the cached blocks of the same parent
    BlockHash hash{}, parent{};            // valid when cached; the hash, when all tokens are
  };
  struct SameHash {
    int32_t first, last;
  };
  struct HashOfHash {
    size_t operator()(const BlockHash& hash) const { return static_cast<size_t>(hash[0] ^ hash[1]); }
  };

  void insert_free(int32_t id, int32_t next);
  void unlink_free(int32_t id);
  void remember(int32_t id, const BlockHash& parent, std::span<const int32_t> tokens);
  void forget(int32_t id);  // removes the block from the prefix cache
  int32_t find(const BlockHash& hash, const BlockHash& parent, std::span<const int32_t> tokens) const;
  std::span<const int32_t> tokens_of(int32_t id) const {
    return std::span(tokens_).subspan(static_cast<size_t>(id) * block_size_, blocks_[id].cached);
  }

  int block_size_;
  bool caching_;
  std::vector<Block> blocks_;
  int32_t first_free_ = kNone, last_free_ = kNone;
  int num_free_ = 0;
  int num_cached_ = 0;
  std::vector<int32_t> tokens_;  // [num_blocks, block_size], of the cached blocks; empty without caching
  std::unordered_map<BlockHash, SameHash, HashOfHash> by_hash_;
  std::unordered_map<BlockHash, int32_t, HashOfHash> newest_of_parent_;
};

}  // namespace vllm

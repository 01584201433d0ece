// KV blocks and the prefix cache.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace vllm {

using BlockHash = std::array<uint64_t, 2>;

/// Hash of a full block: its tokens and the hash of the block before it (zero for the first).
BlockHash hash_block(const BlockHash& parent, std::span<const int32_t> tokens);

/// Hands out block ids 0 .. num_blocks - 1. Freed blocks keep their content, and stay findable by hash, until they are
/// handed out again; the block that was freed longest ago goes first. A fresh pool hands out ascending ids.
class BlockPool {
 public:
  BlockPool(int num_blocks, int block_size, bool caching);

  int total() const;
  int available() const;  // blocks nobody holds
  int block_size() const { return block_size_; }
  bool caching() const { return caching_; }

  /// One block with reference count 1. Must not be called when available() is 0.
  int32_t allocate();
  void free(std::span<const int32_t> blocks);  // drops one reference of each, last first: the tail of a chain is evicted first
  /// Looks the chain of full blocks of `tokens` up; returns the ids of the longest cached run of at most
  /// (tokens.size() - 1) / block_size blocks and takes no reference. `hashes` is extended as far as the look-up goes.
  /// A hit is verified token by token.
  std::vector<int32_t> lookup(std::span<const int32_t> tokens, std::vector<BlockHash>& hashes) const;
  void acquire(std::span<const int32_t> blocks);  // takes a reference of each
  /// Makes a full block findable.
  void publish(int32_t block, const BlockHash& hash, const BlockHash& parent, std::span<const int32_t> tokens);
  int num_cached() const;  // blocks findable by hash

 private:
  struct Block;
  int block_size_;
  bool caching_;
  // the helper that implements this completes the private part
};

}  // namespace vllm

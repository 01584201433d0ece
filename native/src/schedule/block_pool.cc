#include "schedule/block_pool.h"

#include <algorithm>

#include "base/error.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace vllm {
namespace {

constexpr int kPartCandidates = 16;  // blocks compared token by token to find the start of another

}  // namespace

BlockHash hash_block(const BlockHash& parent, std::span<const int32_t> tokens) {
  XXH3_state_t state;
  XXH3_INITSTATE(&state);
  XXH3_128bits_reset(&state);
  XXH3_128bits_update(&state, parent.data(), sizeof(parent));
  XXH3_128bits_update(&state, tokens.data(), tokens.size_bytes());
  const XXH128_hash_t digest = XXH3_128bits_digest(&state);
  return {digest.low64, digest.high64};
}

BlockPool::BlockPool(int num_blocks, int block_size, bool caching)
    : block_size_(block_size), caching_(caching) {
  if (num_blocks < 1) fail_load("num_blocks is %d; a KV pool needs at least one block.", num_blocks);
  if (block_size < 1) fail_load("block_size is %d; a KV block needs at least one token.", block_size);
  blocks_.resize(num_blocks);
  for (int32_t id = 0; id < num_blocks; ++id) insert_free(id, kNone);
  if (caching) tokens_.resize(static_cast<size_t>(num_blocks) * block_size);
}

/// Before `next`, or last.
void BlockPool::insert_free(int32_t id, int32_t next) {
  Block& block = blocks_[id];
  block.previous = next == kNone ? last_free_ : blocks_[next].previous;
  block.next = next;
  (block.previous == kNone ? first_free_ : blocks_[block.previous].next) = id;
  (next == kNone ? last_free_ : blocks_[next].previous) = id;
  ++num_free_;
}

void BlockPool::unlink_free(int32_t id) {
  Block& block = blocks_[id];
  (block.previous == kNone ? first_free_ : blocks_[block.previous].next) = block.next;
  (block.next == kNone ? last_free_ : blocks_[block.next].previous) = block.previous;
  block.previous = block.next = kNone;
  --num_free_;
}

int32_t BlockPool::allocate() {
  const int32_t id = first_free_;
  if (id == kNone) fail_runtime("The KV pool has no free block left of its %d.", total());
  unlink_free(id);
  if (blocks_[id].cached) forget(id);
  blocks_[id].references = 1;
  return id;
}

void BlockPool::free(std::span<const int32_t> blocks) {
  for (size_t i = blocks.size(); i-- > 0;) {
    Block& block = blocks_[blocks[i]];
    if (block.references < 1) fail_runtime("KV block %d is freed but nobody holds it.", blocks[i]);
    if (--block.references == 0) insert_free(blocks[i], block.cached ? kNone : first_free_);
  }
}

void BlockPool::acquire(std::span<const int32_t> blocks) {
  for (int32_t id : blocks) {
    if (blocks_[id].references++ == 0) unlink_free(id);
  }
}

int BlockPool::count_free(std::span<const int32_t> blocks) const {
  return static_cast<int>(
      std::count_if(blocks.begin(), blocks.end(), [&](int32_t id) { return blocks_[id].references == 0; }));
}

int32_t BlockPool::find(const BlockHash& hash, const BlockHash& parent,
                        std::span<const int32_t> tokens) const {
  const auto entry = by_hash_.find(hash);
  if (entry == by_hash_.end()) return kNone;
  for (int32_t id = entry->second.first; id != kNone; id = blocks_[id].next_equal) {
    if (blocks_[id].parent == parent && std::ranges::equal(tokens_of(id), tokens)) return id;
  }
  return kNone;
}

std::vector<int32_t> BlockPool::lookup(std::span<const int32_t> tokens,
                                       std::vector<BlockHash>& hashes) const {
  std::vector<int32_t> found;
  if (!caching_ || tokens.empty()) return found;
  const size_t limit = (tokens.size() - 1) / block_size_;
  BlockHash parent{};
  for (size_t i = 0; i < limit; ++i) {
    const auto block_tokens = tokens.subspan(i * block_size_, block_size_);
    if (hashes.size() == i) hashes.push_back(hash_block(parent, block_tokens));
    const int32_t id = find(hashes[i], parent, block_tokens);
    if (id == kNone) break;
    found.push_back(id);
    parent = hashes[i];
  }
  return found;
}

BlockPool::Part BlockPool::lookup_part(const BlockHash& parent, std::span<const int32_t> wanted) const {
  Part best{kNone, 0};
  const auto newest = newest_of_parent_.find(parent);
  int32_t id = newest == newest_of_parent_.end() ? kNone : newest->second;
  for (int seen = 0; id != kNone && seen < kPartCandidates; id = blocks_[id].older, ++seen) {
    const auto shared = std::ranges::mismatch(wanted, tokens_of(id)).in1 - wanted.begin();
    if (shared > best.tokens) best = {id, static_cast<int>(shared)};
  }
  return best;
}

void BlockPool::publish(int32_t id, const BlockHash& hash, const BlockHash& parent,
                        std::span<const int32_t> tokens) {
  if (!caching_) return;
  Block& block = blocks_[id];
  if (block.references < 1) fail_runtime("KV block %d is published but nobody holds it.", id);
  if (tokens.size() != static_cast<size_t>(block_size_)) {
    fail_runtime("KV block %d is published with %zu tokens; a full block has %d.", id, tokens.size(),
                 block_size_);
  }
  if (block.cached) forget(id);
  remember(id, parent, tokens);
  block.hash = hash;
  const auto [entry, added] = by_hash_.try_emplace(hash, SameHash{id, id});
  if (!added) {
    block.previous_equal = entry->second.last;
    blocks_[entry->second.last].next_equal = id;
    entry->second.last = id;
  }
  ++num_cached_;
}

void BlockPool::publish_part(int32_t id, const BlockHash& parent, std::span<const int32_t> tokens) {
  if (!caching_ || lookup_part(parent, tokens).tokens == static_cast<int>(tokens.size())) return;
  const Block& block = blocks_[id];
  if (block.references != 1 || block.cached || tokens.size() >= static_cast<size_t>(block_size_))
    fail_runtime("%zu tokens of KV block %d are published; %d hold it and %d are.", tokens.size(), id,
                 block.references, block.cached);
  remember(id, parent, tokens);
}

void BlockPool::remember(int32_t id, const BlockHash& parent, std::span<const int32_t> tokens) {
  Block& block = blocks_[id];
  block.cached = static_cast<int>(tokens.size());
  block.parent = parent;
  std::ranges::copy(tokens, tokens_.begin() + static_cast<ptrdiff_t>(id) * block_size_);
  const auto [newest, first] = newest_of_parent_.try_emplace(parent, id);
  if (first) return;
  block.older = newest->second;
  blocks_[block.older].newer = id;
  newest->second = id;
}

void BlockPool::forget(int32_t id) {
  Block& block = blocks_[id];
  if (block.cached == block_size_) {
    const auto entry = by_hash_.find(block.hash);
    SameHash& same = entry->second;
    (block.previous_equal == kNone ? same.first : blocks_[block.previous_equal].next_equal) =
        block.next_equal;
    (block.next_equal == kNone ? same.last : blocks_[block.next_equal].previous_equal) = block.previous_equal;
    if (same.first == kNone) by_hash_.erase(entry);
    block.previous_equal = block.next_equal = kNone;
    --num_cached_;
  }
  if (block.older != kNone) blocks_[block.older].newer = block.newer;
  if (block.newer != kNone)
    blocks_[block.newer].older = block.older;
  else if (block.older != kNone)
    newest_of_parent_[block.parent] = block.older;
  else
    newest_of_parent_.erase(block.parent);
  block.newer = block.older = kNone;
  block.cached = 0;
}

void BlockPool::check_invariants(int64_t references) const {
  int64_t held = 0;
  int free_blocks = 0, cached = 0, whole = 0;
  for (const Block& block : blocks_) {
    if (block.references < 0) fail_runtime("A KV block has %d references.", block.references);
    held += block.references;
    free_blocks += block.references == 0;
    cached += block.cached > 0;
    whole += block.cached == block_size_;
  }
  if (held != references) {
    fail_runtime("The KV blocks have %lld references; the requests hold %lld.", static_cast<long long>(held),
                 static_cast<long long>(references));
  }
  int listed = 0;
  int32_t previous = kNone;
  for (int32_t id = first_free_; id != kNone && listed <= total(); id = blocks_[id].next, ++listed) {
    if (blocks_[id].references != 0) fail_runtime("KV block %d is in the free list but held.", id);
    if (blocks_[id].previous != previous) fail_runtime("The free list is broken before KV block %d.", id);
    previous = id;
  }
  if (previous != last_free_ || listed != free_blocks || listed != num_free_) {
    fail_runtime("The free list has %d KV blocks; %d are free and %d are counted.", listed, free_blocks,
                 num_free_);
  }
  int findable = 0;
  for (const auto& [hash, same] : by_hash_) {
    previous = kNone;
    for (int32_t id = same.first; id != kNone && findable <= total();
         id = blocks_[id].next_equal, ++findable) {
      const Block& block = blocks_[id];
      if (block.cached != block_size_ || block.hash != hash || block.previous_equal != previous) {
        fail_runtime("KV block %d is findable under a hash that is not its own.", id);
      }
      previous = id;
    }
    if (previous != same.last) fail_runtime("A list of equal KV blocks does not end where it should.");
  }
  int followers = 0;
  for (const auto& [parent, newest] : newest_of_parent_) {
    previous = kNone;
    for (int32_t id = newest; id != kNone && followers <= total(); id = blocks_[id].older, ++followers) {
      const Block& block = blocks_[id];
      if (!block.cached || block.parent != parent || block.newer != previous)
        fail_runtime("KV block %d is listed as following one that it does not follow.", id);
      previous = id;
    }
  }
  if (followers != cached) fail_runtime("%d KV blocks are cached and %d follow one.", cached, followers);
  if (findable != whole || whole != num_cached_) {
    fail_runtime("%d KV blocks are findable, %d are marked as cached and %d are counted.", findable, whole,
                 num_cached_);
  }
}

}  // namespace vllm

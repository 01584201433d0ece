#include "schedule/block_pool.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <random>

#include "base/error.h"

using namespace vllm;

namespace {

std::vector<int32_t> iota(int count, int first = 0) {
  std::vector<int32_t> out(count);
  std::iota(out.begin(), out.end(), first);
  return out;
}

std::vector<int32_t> allocate(BlockPool& pool, int count) {
  std::vector<int32_t> out;
  for (int i = 0; i < count; ++i) out.push_back(pool.allocate());
  return out;
}

/// Allocates and publishes the full blocks of `tokens`.
std::vector<int32_t> fill(BlockPool& pool, const std::vector<int32_t>& tokens) {
  const int size = pool.block_size();
  std::vector<int32_t> blocks;
  BlockHash parent{};
  for (size_t i = 0; (i + 1) * size <= tokens.size(); ++i) {
    const auto part = std::span(tokens).subspan(i * size, size);
    const BlockHash hash = hash_block(parent, part);
    blocks.push_back(pool.allocate());
    pool.publish(blocks.back(), hash, parent, part);
    parent = hash;
  }
  return blocks;
}

std::vector<int32_t> lookup(const BlockPool& pool, const std::vector<int32_t>& tokens) {
  std::vector<BlockHash> hashes;
  return pool.lookup(tokens, hashes);
}

}  // namespace

// Expected values: Python package xxhash, xxh3_128 of struct.pack("<2Q", *parent) + struct.pack("<{n}i",
// *tokens).
TEST_CASE("a block's hash is XXH3-128 over parent and tokens") {
  const BlockHash first = hash_block({}, iota(16));
  CHECK(first == BlockHash{0x0b49a1755bdbc8b2, 0x16d310809c3605d6});
  const std::vector<int32_t> tokens{-1, 7, 2147483647, 49151};
  CHECK(hash_block(first, tokens) == BlockHash{0xd2cbb4eb8c1f9296, 0xfee0d137732d4044});
}

TEST_CASE("a fresh pool hands out ascending ids, all of them") {
  BlockPool pool(5, 4, true);
  CHECK(pool.available() == 5);
  CHECK(allocate(pool, 5) == iota(5));
  CHECK(pool.available() == 0);
  CHECK_THROWS_AS(pool.allocate(), Error);
  pool.check_invariants(5);
}

TEST_CASE("findable blocks are freed last first and come back longest-free first, after unused ones") {
  BlockPool pool(6, 4, true);
  const auto a = fill(pool, iota(12));
  const auto b = fill(pool, {9, 9, 9, 9, 9, 9, 9, 9});
  pool.free(a);
  pool.free(b);
  CHECK(allocate(pool, 6) == std::vector<int32_t>{5, 2, 1, 0, 4, 3});
}

TEST_CASE("blocks that nobody can find come back first, ascending as they were taken") {
  for (bool caching : {false, true}) {
    BlockPool pool(8, 4, caching);
    const auto a = allocate(pool, 3);
    const auto b = allocate(pool, 2);
    pool.free(a);
    pool.free(b);
    CHECK(allocate(pool, 8) == std::vector<int32_t>{3, 4, 0, 1, 2, 5, 6, 7});
  }
}

TEST_CASE("sizes that cannot be are refused") {
  CHECK_THROWS_AS(BlockPool(0, 16, true), Error);
  CHECK_THROWS_AS(BlockPool(-3, 16, true), Error);
  CHECK_THROWS_AS(BlockPool(4, 0, true), Error);
}

TEST_CASE("freeing what nobody holds is an error") {
  BlockPool pool(2, 4, true);
  const auto a = allocate(pool, 1);
  pool.free(a);
  CHECK_THROWS_AS(pool.free(a), Error);
}

TEST_CASE("KV-04 look-up finds full blocks and leaves the last token to compute") {
  BlockPool pool(20, 16, true);
  const auto tokens = iota(160);
  const auto blocks = fill(pool, tokens);
  const int lengths[][2] = {{1, 0}, {15, 0}, {16, 0}, {17, 1}, {32, 1}, {33, 2}, {159, 9}, {160, 9}};
  for (const auto [length, hits] : lengths) {
    CAPTURE(length);
    const auto found = lookup(pool, {tokens.begin(), tokens.begin() + length});
    CHECK(found == std::vector<int32_t>(blocks.begin(), blocks.begin() + hits));
  }
  CHECK(lookup(pool, {}).empty());
  auto longer = tokens;
  longer.push_back(9);
  CHECK(lookup(pool, longer) == blocks);
  longer[20] = -5;  // second block differs
  CHECK(lookup(pool, longer) == std::vector<int32_t>{blocks[0]});
  pool.check_invariants(10);
}

TEST_CASE("look-up extends the given hashes and no further than it looks") {
  BlockPool pool(8, 4, true);
  const auto tokens = iota(17);
  fill(pool, iota(8));
  std::vector<BlockHash> hashes;
  CHECK(pool.lookup(tokens, hashes).size() == 2);
  REQUIRE(hashes.size() == 3);  // two hits and the miss
  CHECK(hashes[1] == hash_block(hash_block({}, iota(4)), iota(4, 4)));
  const auto before = hashes;
  CHECK(pool.lookup(tokens, hashes).size() == 2);
  CHECK(hashes == before);
}

TEST_CASE("look-up of a part finds the block that begins most alike, the newest of as good ones") {
  BlockPool pool(40, 8, true);
  const auto part = [&](const BlockHash& parent, const std::vector<int32_t>& tokens) {
    const BlockPool::Part found = pool.lookup_part(parent, tokens);
    return std::pair(found.block, found.tokens);
  };
  const auto with = [](int shared, int32_t other) {
    auto tokens = iota(8);
    std::fill(tokens.begin() + shared, tokens.end(), other);
    return tokens;
  };
  CHECK(part({}, iota(8)).second == 0);
  const int32_t three = fill(pool, with(3, -1))[0], five = fill(pool, with(5, -2))[0],
                also_five = fill(pool, with(5, -3))[0];
  CHECK(part({}, iota(20)) == std::pair(also_five, 5));
  CHECK(part({}, with(3, -1)) == std::pair(three, 8));
  CHECK(part({}, iota(4)) == std::pair(also_five, 4));
  CHECK(part({}, {}).second == 0);
  CHECK(part({}, with(0, 9)).second == 0);
  CHECK(part(hash_block({}, iota(8)), iota(8)).second == 0);
  CHECK(part({}, with(5, -2)) == std::pair(five, 8));
  pool.check_invariants(3);
  for (int i = 0; i < 16; ++i) fill(pool, with(1, -10 - i));
  CHECK(part({}, iota(20)).second == 1);  // older ones are not looked at
  pool.free(iota(19));
  pool.check_invariants(0);
  allocate(pool, 30);  // 21 never used, 9 of those freed, the last first
  pool.check_invariants(30);
  CHECK(pool.num_cached() == 10);
  CHECK(part({}, iota(20)) == std::pair(also_five, 5));
}

TEST_CASE("the first tokens of a block that is not full are found, once, until it is used again") {
  BlockPool pool(4, 8, true);
  const auto tail = [&](const std::vector<int32_t>& tokens) {
    const int32_t id = pool.allocate();
    pool.publish_part(id, {}, tokens);
    pool.free(std::vector{id});
    pool.check_invariants(0);
    return id;
  };
  const auto found = [&](const std::vector<int32_t>& tokens) {
    const BlockPool::Part part = pool.lookup_part({}, tokens);
    return std::pair(part.block, part.tokens);
  };
  const int32_t first = tail(iota(6));
  CHECK(found(iota(8)) == std::pair(first, 6));
  CHECK(lookup(pool, iota(9)).empty());
  CHECK(pool.num_cached() == 0);
  const int32_t second = tail(iota(7));
  CHECK(found(iota(8)) == std::pair(second, 7));
  const int32_t same = tail(iota(5));  // there is nothing new in it, so it is free to all
  CHECK(pool.allocate() == same);
  const auto all = allocate(pool, 2);  // one never used, then the tail freed longest ago
  CHECK(all[1] == first);
  CHECK(found(iota(8)) == std::pair(second, 7));
  CHECK(pool.allocate() == second);
  CHECK(found(iota(8)).second == 0);
  pool.check_invariants(4);
  CHECK_THROWS_AS(pool.publish_part(second, {}, iota(8)), Error);
}

TEST_CASE("the same tokens after another prefix are another block") {
  BlockPool pool(8, 4, true);
  fill(pool, {1, 1, 1, 1, 5, 5, 5, 5});
  CHECK(lookup(pool, {1, 1, 1, 1, 5, 5, 5, 5, 0}).size() == 2);
  CHECK(lookup(pool, {2, 2, 2, 2, 5, 5, 5, 5, 0}).empty());
  CHECK(lookup(pool, {5, 5, 5, 5, 0}).empty());
}

TEST_CASE("a hit is verified by tokens and parent, not by hash alone") {
  BlockPool pool(8, 4, true);
  const std::vector<int32_t> wanted{1, 2, 3, 4}, other{9, 9, 9, 9};
  const BlockHash hash = hash_block({}, wanted);
  const int32_t forged = pool.allocate();
  pool.publish(forged, hash, {}, other);  // as if the hash had collided
  CHECK(lookup(pool, {1, 2, 3, 4, 0}).empty());
  const int32_t stray = pool.allocate();
  pool.publish(stray, hash, {7, 7}, wanted);
  CHECK(lookup(pool, {1, 2, 3, 4, 0}).empty());
  const int32_t genuine = pool.allocate();
  pool.publish(genuine, hash, {}, wanted);
  CHECK(lookup(pool, {1, 2, 3, 4, 0}) == std::vector<int32_t>{genuine});
  pool.check_invariants(3);
}

TEST_CASE("equal blocks are all kept, and the next one is found when the first goes") {
  BlockPool pool(3, 4, true);
  const std::vector<int32_t> tokens{1, 2, 3, 4}, longer{1, 2, 3, 4, 5};
  const auto a = fill(pool, tokens), b = fill(pool, tokens), c = fill(pool, tokens);
  CHECK(pool.num_cached() == 3);
  CHECK(lookup(pool, longer) == a);
  pool.free(b);
  pool.free(a);
  pool.free(c);
  CHECK(pool.allocate() == b[0]);
  CHECK(lookup(pool, longer) == a);
  CHECK(pool.allocate() == a[0]);
  CHECK(lookup(pool, longer) == c);
  CHECK(pool.allocate() == c[0]);
  CHECK(lookup(pool, longer).empty());
  CHECK(pool.num_cached() == 0);
  pool.check_invariants(3);
}

TEST_CASE("freed blocks stay findable, a hit takes them off the free list") {
  BlockPool pool(4, 4, true);
  const auto tokens = iota(9);
  const auto blocks = fill(pool, tokens);
  pool.free(blocks);
  CHECK(pool.available() == 4);
  const auto found = lookup(pool, tokens);
  REQUIRE(found == blocks);
  CHECK(pool.count_free(found) == 2);
  pool.acquire(found);
  CHECK(pool.available() == 2);
  CHECK(pool.count_free(found) == 0);
  pool.acquire(found);  // a second holder
  CHECK(pool.available() == 2);
  CHECK(allocate(pool, 2) == std::vector<int32_t>{2, 3});
  pool.free(found);
  CHECK(pool.available() == 0);
  pool.free(found);
  CHECK(pool.available() == 2);
  pool.check_invariants(2);
  // Tail of the chain first: the head survives one allocation.
  CHECK(pool.allocate() == blocks[1]);
  CHECK(lookup(pool, tokens) == std::vector<int32_t>{blocks[0]});
}

TEST_CASE("without caching nothing is findable") {
  BlockPool pool(4, 4, false);
  fill(pool, iota(8));
  CHECK(pool.num_cached() == 0);
  CHECK(lookup(pool, iota(9)).empty());
  pool.check_invariants(2);
}

TEST_CASE("the pool agrees with a naive one over random work") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const int total = 12, size = 2;
    BlockPool pool(total, size, true);
    std::deque<int32_t> free_list;
    for (int32_t id = 0; id < total; ++id) free_list.push_back(id);
    std::map<int32_t, std::vector<int32_t>> content;  // block -> the whole prefix it ends
    std::map<int32_t, int> references;
    std::vector<std::vector<int32_t>> held;

    for (int round = 0; round < 400; ++round) {
      if (random() % 2 && !held.empty()) {
        const size_t pick = random() % held.size();
        const auto blocks = held[pick];
        held.erase(held.begin() + static_cast<ptrdiff_t>(pick));
        pool.free(blocks);
        for (size_t i = blocks.size(); i-- > 0;) {
          if (--references[blocks[i]] > 0) continue;
          if (content.contains(blocks[i])) {
            free_list.push_back(blocks[i]);
          } else {
            free_list.push_front(blocks[i]);
          }
        }
      } else {
        std::vector<int32_t> tokens(1 + random() % 9);
        for (auto& token : tokens) token = static_cast<int32_t>(random() % 2);
        const auto found = lookup(pool, tokens);
        // As long as the naive run, and each block holds the very prefix.
        for (size_t i = 0; i < found.size(); ++i) {
          REQUIRE(
              content.at(found[i]) ==
              std::vector<int32_t>(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>((i + 1) * size)));
        }
        const size_t next = (found.size() + 1) * size;
        if (next <= tokens.size() - 1) {
          const std::vector<int32_t> prefix(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(next));
          REQUIRE(std::none_of(content.begin(), content.end(),
                               [&](const auto& c) { return c.second == prefix; }));
        }
        auto blocks = found;
        pool.acquire(found);
        for (int32_t id : found) {
          if (references[id]++ == 0) std::erase(free_list, id);
        }
        const size_t wanted = (tokens.size() + size - 1) / size;
        std::vector<BlockHash> hashes;
        while (blocks.size() < wanted && !free_list.empty()) {
          const int32_t id = pool.allocate();
          REQUIRE(id == free_list.front());
          free_list.pop_front();
          content.erase(id);
          references[id] = 1;
          const size_t i = blocks.size();
          blocks.push_back(id);
          if ((i + 1) * size > tokens.size()) continue;
          BlockHash parent{};
          for (size_t j = 0; j < i; ++j)
            parent = hash_block(parent, std::span(tokens).subspan(j * size, size));
          const auto part = std::span(tokens).subspan(i * size, size);
          pool.publish(id, hash_block(parent, part), parent, part);
          content[id].assign(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>((i + 1) * size));
        }
        held.push_back(blocks);
      }
      int64_t sum = 0;
      for (const auto& blocks : held) sum += static_cast<int64_t>(blocks.size());
      REQUIRE_NOTHROW(pool.check_invariants(sum));
      REQUIRE(pool.available() == static_cast<int>(free_list.size()));
      REQUIRE(pool.num_cached() == static_cast<int>(content.size()));
    }
  }
}

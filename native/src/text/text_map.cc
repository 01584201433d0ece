#include "text/text_map.h"

#include <algorithm>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace vllm {
namespace {

constexpr size_t kChunk = size_t{1} << 20;

/// Slots for `count` entries: a power of two, at most half full.
size_t slots_for(size_t count) {
  size_t slots = 16;
  while (slots < 2 * count) slots *= 2;
  return slots;
}

uint32_t hash_text(std::string_view text) {
  return static_cast<uint32_t>(XXH3_64bits(text.data(), text.size()));
}

}  // namespace

void TextMap::reserve(size_t count) {
  if (slots_for(count) <= slots_.size()) return;
  std::vector<Slot> old(slots_for(count));
  old.swap(slots_);
  const size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (!slot.data) continue;
    size_t at = slot.hash & mask;
    while (slots_[at].data) at = (at + 1) & mask;
    slots_[at] = slot;
  }
}

bool TextMap::insert(std::string_view text, int32_t id) {
  if (2 * (count_ + 1) > slots_.size()) reserve(std::max<size_t>(2 * count_, 8));
  const uint32_t hash = hash_text(text);
  const size_t mask = slots_.size() - 1;
  size_t at = hash & mask;
  for (; slots_[at].data; at = (at + 1) & mask) {
    const Slot& slot = slots_[at];
    if (slot.hash == hash && std::string_view(slot.data, slot.size) == text) return false;
  }
  slots_[at] = {text.data() ? text.data() : "", static_cast<uint32_t>(text.size()), hash, id};
  ++count_;
  longest_ = std::max(longest_, text.size());
  return true;
}

int32_t TextMap::find(std::string_view text) const {
  if (slots_.empty() || text.size() > longest_) return -1;
  const uint32_t hash = hash_text(text);
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash & mask; slots_[at].data; at = (at + 1) & mask) {
    const Slot& slot = slots_[at];
    if (slot.hash == hash && std::string_view(slot.data, slot.size) == text) return slot.id;
  }
  return -1;
}

void PairMap::reserve(size_t count) {
  if (slots_for(count) <= slots_.size()) return;
  std::vector<Slot> old(slots_for(count));
  old.swap(slots_);
  const size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.key == kFree) continue;
    size_t at = hash(slot.key) & mask;
    while (slots_[at].key != kFree) at = (at + 1) & mask;
    slots_[at] = slot;
  }
}

void PairMap::insert(int32_t left, int32_t right, Merge merge) {
  if (2 * (count_ + 1) > slots_.size()) reserve(std::max<size_t>(2 * count_, 8));
  const uint64_t key =
      static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  const size_t mask = slots_.size() - 1;
  size_t at = hash(key) & mask;
  while (slots_[at].key != kFree && slots_[at].key != key) at = (at + 1) & mask;
  if (slots_[at].key == kFree) ++count_;
  slots_[at] = {key, merge};
}

std::string_view TextStore::add(std::string_view text) {
  if (text.empty()) return {"", 0};
  if (chunks_.empty() || chunks_.back().capacity() - chunks_.back().size() < text.size()) {
    chunks_.emplace_back().reserve(std::max(kChunk, text.size()));
  }
  std::vector<char>& chunk = chunks_.back();
  const size_t at = chunk.size();
  chunk.insert(chunk.end(), text.begin(), text.end());
  return {chunk.data() + at, text.size()};
}

}  // namespace vllm

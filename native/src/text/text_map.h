// Text -> token id and pair of ids -> merge, as flat hash tables: vocabularies have up to half a million
// entries.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace vllm {

/// Maps texts to ids. The texts are borrowed and must outlive the map.
class TextMap {
 public:
  void reserve(size_t count);
  /// False, and nothing changes, when `text` is there already.
  bool insert(std::string_view text, int32_t id);
  /// -1 when absent.
  int32_t find(std::string_view text) const;
  size_t size() const { return count_; }
  size_t longest() const { return longest_; }  // bytes of the longest text

 private:
  struct Slot {
    const char* data = nullptr;  // null: free
    uint32_t size = 0;
    uint32_t hash = 0;
    int32_t id = 0;
  };
  std::vector<Slot> slots_;
  size_t count_ = 0;
  size_t longest_ = 0;
};

struct Merge {
  uint32_t rank;  // lower goes first
  int32_t id;     // of the merged token
};

/// Maps (left id, right id), both >= 0, to a merge.
class PairMap {
 public:
  void reserve(size_t count);
  /// Replaces what is there.
  void insert(int32_t left, int32_t right, Merge merge);
  /// Null when absent.
  const Merge* find(int32_t left, int32_t right) const {
    if (slots_.empty()) return nullptr;
    const uint64_t key =
        static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
    const size_t mask = slots_.size() - 1;
    for (size_t at = hash(key) & mask;; at = (at + 1) & mask) {
      if (slots_[at].key == key) return &slots_[at].merge;
      if (slots_[at].key == kFree) return nullptr;
    }
  }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};  // no pair: ids are not negative
  struct Slot {
    uint64_t key = kFree;
    Merge merge{0, 0};
  };
  static size_t hash(uint64_t key) {
    key *= 0x9e3779b97f4a7c15;
    return static_cast<size_t>(key ^ key >> 32);
  }
  std::vector<Slot> slots_;
  size_t count_ = 0;
};

/// Owns texts; a view given out stays valid as long as the store, also when that is moved.
class TextStore {
 public:
  std::string_view add(std::string_view text);

 private:
  std::vector<std::vector<char>> chunks_;
};

}  // namespace vllm

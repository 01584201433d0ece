// Byte-pair encoding of one piece of text.
#pragma once
#include <array>
#include <bitset>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/text_map.h"

namespace vllm {

/// The symbols of a piece while it is merged, a linked list in an array. Kept by the caller to save
/// allocations.
struct BpeScratch {
  struct Symbol {
    int32_t id;
    uint32_t begin, end;  // bytes of the piece; score merging only
    uint32_t prev, next;
    uint32_t rank;   // of the merge with `next`; kNoRank: none
    int32_t merged;  // its token
  };
  std::vector<Symbol> symbols;
  std::vector<uint64_t> queue;
};

class Bpe {
 public:
  enum class Symbols : uint8_t { Bytes, Chars };  // what a piece is cut into at first

  Symbols symbols = Symbols::Bytes;
  bool ignore_merges = false;  // a piece that is a token stays whole
  bool by_score = false;       // merge what gives the token with the best score, instead of listed pairs
  bool fuse_unknown = false;   // neighbouring unknown characters become one unknown token
  int32_t unknown = -1;
  TextMap tokens;  // that merging may meet, by text; raw bytes in the case of Symbols::Bytes
  PairMap merges;
  std::vector<uint32_t> score_ranks;  // by id, lower goes first; kNoRank: never a merge's result

  /// Id of each byte's own token, -1 without: of the byte itself (Symbols::Bytes), or what a character that
  /// is no token falls back to (Symbols::Chars; all -1 without byte fallback).
  std::array<int32_t, 256> byte_ids{};

  static constexpr uint32_t kNoRank = UINT32_MAX;

  Bpe() { byte_ids.fill(-1); }
  /// Call once after filling the fields. `texts`: all texts of `tokens`.
  void prepare(const std::vector<std::string_view>& texts);
  /// Appends the ids of `piece`, valid UTF-8 and not empty. Time n log n in its length.
  /// Throws Error(InvalidArgument) for a character that has no token when there is no unknown token either.
  void encode(std::string_view piece, std::vector<int32_t>& ids, BpeScratch& scratch) const;

 private:
  void encode_part(std::string_view part, std::vector<int32_t>& ids, BpeScratch& scratch) const;
  void add_bytes(std::string_view part, BpeScratch& scratch) const;
  void add_chars(std::string_view part, BpeScratch& scratch) const;
  void add_symbol(int32_t id, size_t begin, size_t end, BpeScratch& scratch) const;
  void find_merge(std::string_view part, BpeScratch& scratch, uint32_t left) const;
  void merge_short(std::string_view part, BpeScratch& scratch) const;
  void merge_long(std::string_view part, BpeScratch& scratch) const;
  void apply_merge(std::string_view part, BpeScratch& scratch, uint32_t left) const;
  [[noreturn]] void refuse(std::string_view text) const;

  // No token holds U+2581 behind a byte that is not in here, so that a piece may be cut there before merging.
  bool cut_at_markers_ = false;
  std::bitset<256> before_marker_;
};

}  // namespace vllm

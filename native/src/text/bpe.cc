#include "text/bpe.h"

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "text/unicode.h"

namespace vllm {
namespace {

constexpr std::string_view kMarker = "\xe2\x96\x81";  // U+2581
constexpr uint32_t kEnd = UINT32_MAX;                 // no neighbour
constexpr size_t kShort = 24;                         // symbols; below, a scan beats a queue

using Symbol = BpeScratch::Symbol;

}  // namespace

void Bpe::prepare(const std::vector<std::string_view>& texts) {
  cut_at_markers_ = symbols == Symbols::Chars && tokens.find(kMarker) >= 0;
  if (!cut_at_markers_) return;
  for (const std::string_view text : texts) {
    for (size_t at = 0; (at = text.find(kMarker, at)) != std::string_view::npos; at += kMarker.size()) {
      if (at > 0) before_marker_.set(static_cast<uint8_t>(text[at - 1]));
    }
  }
}

void Bpe::encode(std::string_view piece, std::vector<int32_t>& ids, BpeScratch& scratch) const {
  if (ignore_merges) {
    if (const int32_t id = tokens.find(piece); id >= 0) {
      ids.push_back(id);
      return;
    }
  }
  if (!cut_at_markers_) return encode_part(piece, ids, scratch);
  size_t begin = 0;
  for (size_t at = 1; (at = piece.find(kMarker, at)) != std::string_view::npos; at += kMarker.size()) {
    if (before_marker_[static_cast<uint8_t>(piece[at - 1])]) continue;
    encode_part(piece.substr(begin, at - begin), ids, scratch);
    begin = at;
  }
  encode_part(piece.substr(begin), ids, scratch);
}

void Bpe::encode_part(std::string_view part, std::vector<int32_t>& ids, BpeScratch& scratch) const {
  scratch.symbols.clear();
  if (symbols == Symbols::Bytes) {
    add_bytes(part, scratch);
  } else {
    add_chars(part, scratch);
  }
  if (scratch.symbols.empty()) return;
  scratch.symbols.back().next = kEnd;
  for (uint32_t i = 0; i + 1 < scratch.symbols.size(); ++i) find_merge(part, scratch, i);
  scratch.symbols.back().rank = kNoRank;
  if (scratch.symbols.size() <= kShort) {
    merge_short(part, scratch);
  } else {
    merge_long(part, scratch);
  }
  for (uint32_t i = 0; i != kEnd; i = scratch.symbols[i].next) {
    const Symbol& symbol = scratch.symbols[i];
    if (symbol.id >= 0) {
      ids.push_back(symbol.id);
      continue;
    }
    // A character that score merging left over and that is no token.
    bool all = true;
    for (uint32_t at = symbol.begin; at < symbol.end; ++at)
      all &= byte_ids[static_cast<uint8_t>(part[at])] >= 0;
    if (all) {
      for (uint32_t at = symbol.begin; at < symbol.end; ++at) {
        ids.push_back(byte_ids[static_cast<uint8_t>(part[at])]);
      }
    } else if (unknown >= 0) {
      ids.push_back(unknown);
    } else {
      refuse(part.substr(symbol.begin, symbol.end - symbol.begin));
    }
  }
}

void Bpe::add_symbol(int32_t id, size_t begin, size_t end, BpeScratch& scratch) const {
  const auto at = static_cast<uint32_t>(scratch.symbols.size());
  scratch.symbols.push_back({id, static_cast<uint32_t>(begin), static_cast<uint32_t>(end),
                             at == 0 ? kEnd : at - 1, at + 1, kNoRank, -1});
}

void Bpe::add_bytes(std::string_view part, BpeScratch& scratch) const {
  bool after_unknown = false;
  for (size_t at = 0; at < part.size(); ++at) {
    const int32_t id = byte_ids[static_cast<uint8_t>(part[at])];
    if (id < 0 && unknown < 0) refuse(part.substr(at, 1));
    if (id >= 0 || !(after_unknown && fuse_unknown)) add_symbol(id >= 0 ? id : unknown, at, at + 1, scratch);
    after_unknown = id < 0;
  }
}

void Bpe::add_chars(std::string_view part, BpeScratch& scratch) const {
  bool after_unknown = false;
  for (size_t pos = 0; pos < part.size();) {
    const size_t begin = pos;
    read_utf8(part, pos);
    const std::string_view text = part.substr(begin, pos - begin);
    const int32_t id = tokens.find(text);
    if (id >= 0 || by_score) {  // score merging may still find a token that begins or ends with it
      add_symbol(id, begin, pos, scratch);
      after_unknown = false;
      continue;
    }
    const auto byte_id = [&](char c) { return byte_ids[static_cast<uint8_t>(c)]; };
    if (std::all_of(text.begin(), text.end(), [&](char c) { return byte_id(c) >= 0; })) {
      for (size_t at = begin; at < pos; ++at) add_symbol(byte_id(part[at]), at, at + 1, scratch);
      after_unknown = false;
    } else {
      if (unknown < 0) refuse(text);
      if (!(after_unknown && fuse_unknown)) add_symbol(unknown, begin, pos, scratch);
      after_unknown = true;
    }
  }
}

void Bpe::find_merge(std::string_view part, BpeScratch& scratch, uint32_t left) const {
  Symbol& symbol = scratch.symbols[left];
  symbol.rank = kNoRank;
  if (symbol.next == kEnd) return;
  const Symbol& right = scratch.symbols[symbol.next];
  if (by_score) {
    const int32_t id = tokens.find(part.substr(symbol.begin, right.end - symbol.begin));
    if (id >= 0) symbol.rank = score_ranks[id], symbol.merged = id;
  } else if (const Merge* merge = merges.find(symbol.id, right.id)) {
    symbol.rank = merge->rank, symbol.merged = merge->id;
  }
}

void Bpe::apply_merge(std::string_view part, BpeScratch& scratch, uint32_t left) const {
  Symbol& symbol = scratch.symbols[left];
  Symbol& right = scratch.symbols[symbol.next];
  symbol.id = symbol.merged;
  symbol.end = right.end;
  symbol.next = right.next;
  right.rank = kNoRank;
  if (symbol.next != kEnd) scratch.symbols[symbol.next].prev = left;
  find_merge(part, scratch, left);
  if (symbol.prev != kEnd) find_merge(part, scratch, symbol.prev);
}

void Bpe::merge_short(std::string_view part, BpeScratch& scratch) const {
  for (;;) {
    uint32_t best = 0;
    for (uint32_t i = 0; i != kEnd; i = scratch.symbols[i].next) {
      if (scratch.symbols[i].rank < scratch.symbols[best].rank) best = i;
    }
    if (scratch.symbols[best].rank == kNoRank) return;
    apply_merge(part, scratch, best);
  }
}

void Bpe::merge_long(std::string_view part, BpeScratch& scratch) const {
  // Entries are rank << 32 | symbol, the smallest first: the lowest rank, leftmost on ties. One whose rank is
  // no longer that of its symbol is out of date.
  std::vector<uint64_t>& queue = scratch.queue;
  queue.clear();
  const auto entry = [&](uint32_t i) { return static_cast<uint64_t>(scratch.symbols[i].rank) << 32 | i; };
  for (uint32_t i = 0; i < scratch.symbols.size(); ++i) {
    if (scratch.symbols[i].rank != kNoRank) queue.push_back(entry(i));
  }
  std::make_heap(queue.begin(), queue.end(), std::greater<>());
  const auto push = [&](uint32_t i) {
    if (scratch.symbols[i].rank == kNoRank) return;
    queue.push_back(entry(i));
    std::push_heap(queue.begin(), queue.end(), std::greater<>());
  };
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    const uint64_t top = queue.back();
    queue.pop_back();
    const auto left = static_cast<uint32_t>(top);
    if (scratch.symbols[left].rank != top >> 32) continue;
    apply_merge(part, scratch, left);
    push(left);
    if (scratch.symbols[left].prev != kEnd) push(scratch.symbols[left].prev);
  }
}

void Bpe::refuse(std::string_view text) const {
  fail_argument("The tokenizer has no token for %s of the text and no unknown token.", quote(text).c_str());
}

}  // namespace vllm

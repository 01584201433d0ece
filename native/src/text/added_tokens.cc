#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode.h"

namespace vllm {
namespace {

/// Start of the character that ends at `end` > 0.
size_t char_before(std::string_view text, size_t end) {
  do --end;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xc0) == 0x80);
  return end;
}

bool word_char_at(std::string_view text, size_t pos) { return is_word_char(read_utf8(text, pos)); }

bool space_at(std::string_view text, size_t pos) { return char_class(read_utf8(text, pos)) & kSpace; }

}  // namespace

AddedTokenFinder::AddedTokenFinder() { roots_.fill(-1); }

int32_t AddedTokenFinder::child_of(int32_t node, uint8_t byte) const {
  int32_t child = nodes_[node].child;
  while (child >= 0 && nodes_[child].byte != byte) child = nodes_[child].sibling;
  return child;
}

void AddedTokenFinder::add(AddedToken token) {
  if (token.content.empty()) return;
  int32_t node = -1;
  for (const char c : token.content) {
    const auto byte = static_cast<uint8_t>(c);
    int32_t next = node < 0 ? roots_[byte] : child_of(node, byte);
    if (next < 0) {
      next = static_cast<int32_t>(nodes_.size());
      nodes_.push_back({byte});
      if (node < 0) {
        roots_[byte] = next;
      } else {
        nodes_[next].sibling = nodes_[node].child;
        nodes_[node].child = next;
      }
    }
    node = next;
  }
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(std::move(token));
}

std::vector<TokenSpan> AddedTokenFinder::split(std::string_view text, bool special) const {
  std::vector<TokenSpan> spans;
  size_t done = 0;  // all before is in spans
  for (size_t at = 0; at < text.size();) {
    int32_t node = roots_[static_cast<uint8_t>(text[at])];
    int32_t found = -1;
    size_t found_end = 0;
    for (size_t pos = at + 1; node >= 0; ++pos) {
      const int32_t token = nodes_[node].token;
      if (token >= 0 && (special || !tokens_[token].special)) found = token, found_end = pos;
      if (pos == text.size()) break;
      node = child_of(node, static_cast<uint8_t>(text[pos]));
    }
    if (found < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[found];
    size_t begin = at, end = found_end;
    at = found_end;
    if (token.single_word && ((begin > 0 && word_char_at(text, char_before(text, begin))) ||
                              (end < text.size() && word_char_at(text, end)))) {
      continue;
    }
    if (token.lstrip) {
      for (size_t before; begin > done && space_at(text, before = char_before(text, begin));) begin = before;
    }
    if (token.rstrip) {
      while (end < text.size() && space_at(text, end)) read_utf8(text, end);
      at = end;
    }
    if (begin > done) spans.push_back({done, begin, -1});
    spans.push_back({begin, end, token.id});
    done = end;
  }
  if (done < text.size()) spans.push_back({done, text.size(), -1});
  return spans;
}

}  // namespace vllm

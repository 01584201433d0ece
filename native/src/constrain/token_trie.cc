#include "constrain/token_trie.h"

#include <algorithm>
#include <numeric>

namespace vllm {
namespace {

constexpr size_t kMaxTokenBytes = 60000;  // depths are 16 bits

}  // namespace

TokenTrie::TokenTrie(const Tokenizer& tokenizer, std::vector<int32_t> end_ids, int32_t model_vocab)
    : vocab_size_(std::min(tokenizer.vocab_size(), model_vocab)), end_ids_(std::move(end_ids)) {
  std::erase_if(end_ids_, [&](int32_t id) { return id < 0 || id >= vocab_size_; });
  std::sort(end_ids_.begin(), end_ids_.end());
  end_ids_.erase(std::unique(end_ids_.begin(), end_ids_.end()), end_ids_.end());
  offsets_.reserve(vocab_size_ + 1);
  offsets_.push_back(0);
  std::vector<int32_t> sorted;
  for (int32_t id = 0; id < vocab_size_; ++id) {
    const std::string_view text = tokenizer.bytes(id);
    if (is_end(id)) {
      ends_.push_back({std::string(text), id});
    } else if (tokenizer.is_control(id)) {
      if (!text.empty()) controls_.push_back({std::string(text), id});
    } else if (!text.empty() && text.size() <= kMaxTokenBytes) {
      texts_ += text;
      sorted.push_back(id);
    }
    offsets_.push_back(static_cast<uint32_t>(texts_.size()));
  }
  std::sort(controls_.begin(), controls_.end(),
            [](const Control& a, const Control& b) { return a.text < b.text; });
  std::sort(sorted.begin(), sorted.end(), [&](int32_t a, int32_t b) { return text_of(a) < text_of(b); });

  nodes_.push_back({});
  std::vector<uint32_t> path{0};
  const auto close_to = [&](size_t depth) {
    while (path.size() > depth + 1) {
      const uint32_t node = path.back();
      path.pop_back();
      nodes_[node].skip = static_cast<uint32_t>(nodes_.size());
      nodes_[path.back()].longest = std::max(nodes_[path.back()].longest, nodes_[node].longest);
    }
  };
  std::string_view before;
  for (const int32_t id : sorted) {
    const std::string_view text = text_of(id);
    const size_t common =
        std::mismatch(text.begin(), text.end(), before.begin(), before.end()).first - text.begin();
    close_to(common);
    for (size_t i = common; i < text.size(); ++i) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({.skip = 0,
                        .first_token = static_cast<uint32_t>(tokens_.size()),
                        .depth = static_cast<uint16_t>(i + 1),
                        .longest = static_cast<uint16_t>(text.size()),
                        .byte = static_cast<uint8_t>(text[i])});
    }
    tokens_.push_back(id);
    before = text;
  }
  close_to(0);
  nodes_[0].skip = static_cast<uint32_t>(nodes_.size());
  nodes_.shrink_to_fit();

  up_to_.assign(kShort + 1, std::vector<uint32_t>((vocab_size_ + 31) / 32));
  for (const int32_t id : sorted) {
    const auto size = static_cast<int>(std::min<size_t>(text_of(id).size(), kShort + 1));
    for (int bytes = size; bytes <= kShort; ++bytes) up_to_[bytes][id / 32] |= 1u << id % 32;
  }
}

bool TokenTrie::is_end(int32_t id) const { return std::binary_search(end_ids_.begin(), end_ids_.end(), id); }

std::optional<int32_t> TokenTrie::find(std::string_view text) const {
  for (const auto* list : {&controls_, &ends_}) {
    for (const Control& control : *list) {
      if (control.text == text) return control.id;
    }
  }
  for (int32_t id = 0; id < vocab_size_; ++id) {
    if (text_of(id) == text && !text.empty()) return id;
  }
  return std::nullopt;
}

}  // namespace vllm

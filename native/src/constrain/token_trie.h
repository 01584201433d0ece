// The texts of a vocabulary's tokens as one tree, made once per tokenizer and shared.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace vllm {

/// Control tokens, end ids and tokens without bytes are no part of the tree: no text matches them.
class TokenTrie {
 public:
  /// `end_ids`: what ends an output; ids outside the vocabulary are ignored. `model_vocab`: ids that the
  /// model can put out; what the tokenizer has beyond is no part of the vocabulary.
  TokenTrie(const Tokenizer& tokenizer, std::vector<int32_t> end_ids, int32_t model_vocab);

  /// Nodes in preorder: the children of node n are n + 1, then the node at that child's `skip`, and so on up
  /// to n's `skip`. Node 0 is the root.
  struct Node {
    uint32_t skip;         // the node behind this one's subtree
    uint32_t first_token;  // index into tokens(); those of this node end where the next node's begin
    uint16_t depth;        // bytes from the root
    uint16_t longest;      // bytes of the longest token in the subtree, itself included
    uint8_t byte;
  };
  std::span<const Node> nodes() const { return nodes_; }
  /// Ids of the tokens that end at a node.
  std::span<const int32_t> tokens_at(uint32_t node) const {
    const uint32_t end =
        node + 1 < nodes_.size() ? nodes_[node + 1].first_token : static_cast<uint32_t>(tokens_.size());
    return {tokens_.data() + nodes_[node].first_token, end - nodes_[node].first_token};
  }

  /// One bit a token: those with at most `bytes` bytes, which is at most kShort.
  std::span<const uint32_t> tokens_up_to(int bytes) const { return up_to_[bytes]; }
  static constexpr int kShort = 32;

  int32_t vocab_size() const { return vocab_size_; }
  const std::vector<int32_t>& end_ids() const { return end_ids_; }
  bool is_end(int32_t id) const;
  /// A token of the tree: one that text can match.
  bool is_text(int32_t id) const { return id >= 0 && id < vocab_size_ && !text_of(id).empty(); }
  std::string_view text_of(int32_t id) const {
    return std::string_view(texts_).substr(offsets_[id], offsets_[id + 1] - offsets_[id]);
  }

  /// Control tokens that end no output, with the text that names them.
  struct Control {
    std::string text;
    int32_t id;
  };
  const std::vector<Control>& controls() const { return controls_; }
  /// Any token with this text, by whatever it is.
  std::optional<int32_t> find(std::string_view text) const;

 private:
  int32_t vocab_size_;
  std::vector<int32_t> end_ids_;  // sorted
  std::string texts_;
  std::vector<uint32_t> offsets_;
  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;
  std::vector<std::vector<uint32_t>> up_to_;
  std::vector<Control> controls_;  // sorted by text
  std::vector<Control> ends_;
};

}  // namespace vllm

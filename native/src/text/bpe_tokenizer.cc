#include "text/bpe_tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "text/unicode.h"

namespace vllm {
namespace {

constexpr size_t kMaxText = size_t{1} << 24;  // encoding it takes about a gigabyte and ten seconds

}  // namespace

BpeTokenizer::BpeTokenizer(TokenizerParts parts) : parts_(std::move(parts)) {
  vocab_size_ = static_cast<int32_t>(parts_.vocabulary.size());
  for (const auto& bytes : parts_.vocabulary.bytes) longest_token_ = std::max(longest_token_, bytes.size());
  adds_bos_ = parts_.adds_bos;
  strips_leading_space_ = parts_.strips_leading_space;
  bos_ = parts_.bos;
  end_ids_ = parts_.end_ids;
  std::sort(end_ids_.begin(), end_ids_.end());
  end_ids_.erase(std::unique(end_ids_.begin(), end_ids_.end()), end_ids_.end());
}

std::vector<int32_t> BpeTokenizer::encode(std::string_view text, bool parse_special, bool add_bos) const {
  if (text.size() > kMaxText)
    fail_argument("The text has %zu bytes; at most %zu are allowed.", text.size(), kMaxText);
  if (const size_t at = find_invalid_utf8(text); at != std::string_view::npos) {
    fail_argument("The text is not valid UTF-8 at byte %zu.", at);
  }
  std::vector<int32_t> ids;
  BpeScratch scratch;
  std::deque<std::string> storage;
  for (const TokenSpan& span : parts_.added.split(text, parse_special)) {
    if (span.id >= 0) {
      ids.push_back(span.id);
      continue;
    }
    const std::string_view raw = text.substr(span.begin, span.end - span.begin);
    const std::string normalized = parts_.normalizer.empty() ? std::string() : parts_.normalizer.apply(raw);
    const std::string_view segment = parts_.normalizer.empty() ? raw : normalized;
    for (const TokenSpan& inner : parts_.added_normalized.split(segment, parse_special)) {
      if (inner.id >= 0) {
        ids.push_back(inner.id);
        continue;
      }
      const bool at_start = span.begin == 0 && inner.begin == 0;
      const std::string_view part = segment.substr(inner.begin, inner.end - inner.begin);
      for (const Piece& piece : parts_.pre_tokenizer.split(part, at_start, storage)) {
        parts_.bpe.encode(piece.text, ids, scratch);
      }
      storage.clear();
    }
  }
  if (add_bos && adds_bos_ && (ids.empty() || ids.front() != *bos_)) ids.insert(ids.begin(), *bos_);
  return ids;
}

std::string_view BpeTokenizer::bytes(int32_t id) const {
  return id >= 0 && id < vocab_size_ ? parts_.vocabulary.bytes[id] : std::string_view();
}

bool BpeTokenizer::is_control(int32_t id) const {
  if (id < 0 || id >= vocab_size_) return false;
  const TokenKind kind = parts_.vocabulary.kinds[id];
  return kind == TokenKind::Control || kind == TokenKind::Unknown || kind == TokenKind::Unused;
}

std::optional<int32_t> BpeTokenizer::find(std::string_view text) const {
  if (const auto found = parts_.vocabulary.added.find(text); found != parts_.vocabulary.added.end()) {
    return found->second;
  }
  const int32_t id = parts_.bpe.tokens.find(text);
  return id >= 0 ? std::optional(id) : std::nullopt;
}

bool ends_generation(std::string_view text) {
  static constexpr std::string_view kTexts[] = {
      "<|eot_id|>",
      "<|im_end|>",
      "<|end|>",
      "<end_of_turn>",
      "<|endoftext|>",
      "<|end_of_text|>",
      "<|eom_id|>",
      "<EOT>",
      "<|eot|>",
      "<|end_of_turn|>",
      "</s>",
      "<eos>",
      "<|return|>",
      "<|endofprompt|>",
      "<|fim_pad|>",
      "<fim_pad>",
      "<fim-pad>",
      "<|fim_repo|>",
      "<|repo_name|>",
      "<repo_name>",
      "<reponame>",
      "<|file_sep|>",
      "<file_sep>",
      "<|fim_sep|>",
      "<\xef\xbd\x9c"
      "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
  };
  return std::find(std::begin(kTexts), std::end(kTexts), text) != std::end(kTexts);
}

}  // namespace vllm

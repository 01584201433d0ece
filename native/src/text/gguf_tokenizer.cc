// Tokenizers from the metadata of a GGUF: models "gpt2" (byte-level BPE) and "llama" (SentencePiece with
// scores).
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "text/bpe_tokenizer.h"
#include "text/unicode.h"

namespace vllm {
namespace {

constexpr std::string_view kMarker = "\xe2\x96\x81";  // U+2581, a space in SentencePiece vocabularies

class GgufLoader {
 public:
  explicit GgufLoader(const Checkpoint& checkpoint) : checkpoint_(checkpoint), config_(checkpoint.config()) {}

  std::unique_ptr<Tokenizer> load() {
    const std::string model = string("model").value_or("");
    if (model != "gpt2" && model != "llama") {
      fail_load(
          "%s: the tokenizer model %s (tokenizer.ggml.model) is not supported; gpt2 or llama is needed.",
          path(), quote(model).c_str());
    }
    spm_ = model == "llama";
    read_tokens();
    unknown_ = id_of("unknown_token_id");
    if (spm_) {
      add_space_prefix_ = boolean("add_space_prefix").value_or(true);
      add_spm_tokens();
      load_spm();
    } else {
      add_bpe_tokens();
      load_bpe();
    }
    set_bos();
    set_end_ids();
    return std::make_unique<BpeTokenizer>(std::move(parts_));
  }

 private:
  const char* path() const { return checkpoint_.path().c_str(); }

  const Json* key(const char* name) const {
    const auto found = config_.find(std::string("tokenizer.ggml.") + name);
    return found == config_.end() || found->is_null() ? nullptr : &*found;
  }
  std::optional<std::string> string(const char* name) const {
    const Json* value = key(name);
    if (!value) return std::nullopt;
    if (!value->is_string()) fail_load("%s: tokenizer.ggml.%s must be a string.", path(), name);
    return value->get<std::string>();
  }
  std::optional<bool> boolean(const char* name) const {
    const Json* value = key(name);
    if (!value) return std::nullopt;
    if (!value->is_boolean()) fail_load("%s: tokenizer.ggml.%s must be true or false.", path(), name);
    return value->get<bool>();
  }
  std::optional<int32_t> id_of(const char* name) const {
    const Json* value = key(name);
    if (!value) return std::nullopt;
    if (!value->is_number_integer()) fail_load("%s: tokenizer.ggml.%s must be an integer.", path(), name);
    const auto id = value->get<int64_t>();
    if (id == -1 || id == UINT32_MAX) return std::nullopt;  // how converters write "none"
    if (id < 0 || id >= static_cast<int64_t>(texts_.size())) {
      fail_load("%s: tokenizer.ggml.%s is %lld, but the vocabulary has %zu tokens.", path(), name,
                static_cast<long long>(id), texts_.size());
    }
    return static_cast<int32_t>(id);
  }

  void read_tokens() {
    const auto tokens = checkpoint_.string_array("tokenizer.ggml.tokens");
    if (tokens.empty()) fail_load("%s: tokenizer.ggml.tokens is missing or empty.", path());
    const auto types = checkpoint_.int_array("tokenizer.ggml.token_type");
    if (!types.empty() && types.size() != tokens.size()) {
      fail_load("%s: tokenizer.ggml.token_type has %zu entries, but there are %zu tokens.", path(),
                types.size(), tokens.size());
    }
    texts_.reserve(tokens.size());
    vocabulary().kinds.reserve(tokens.size());
    for (size_t id = 0; id < tokens.size(); ++id) {
      if (find_invalid_utf8(tokens[id]) != std::string_view::npos) {
        fail_load("%s: token %zu, %s, is not valid UTF-8.", path(), id, quote(tokens[id]).c_str());
      }
      texts_.push_back(vocabulary().store.add(tokens[id]));
      vocabulary().kinds.push_back(types.empty() ? kind_by_text(tokens[id]) : kind_by_type(types[id], id));
    }
  }

  TokenKind kind_by_text(std::string_view text) const {
    return spm_ && byte_of_token(text) >= 0 ? TokenKind::Byte : TokenKind::Normal;
  }
  TokenKind kind_by_type(int32_t type, size_t id) const {
    switch (type) {
      case 1:
        return TokenKind::Normal;
      case 2:
        return TokenKind::Unknown;
      case 3:
        return TokenKind::Control;
      case 4:
        return TokenKind::UserDefined;
      case 5:
        return TokenKind::Unused;
      case 6:
        return TokenKind::Byte;
      default:
        fail_load("%s: token %zu has type %d; 1 to 6 is needed.", path(), id, type);
    }
  }

  Vocabulary& vocabulary() { return parts_.vocabulary; }

  [[noreturn]] void fail_duplicate(size_t id) const {
    fail_load("%s: the text of token %zu, %s, stands twice in tokenizer.ggml.tokens.", path(), id,
              quote(texts_[id]).c_str());
  }

  /// Makes `id` findable by its own text, and found in input where its kind says so.
  void add_named(size_t id) {
    const TokenKind kind = vocabulary().kinds[id];
    const std::string_view text = texts_[id];
    if (!vocabulary().added.emplace(text, static_cast<int32_t>(id)).second) fail_duplicate(id);
    const bool special = kind == TokenKind::Control || kind == TokenKind::Unknown;
    if (!special && kind != TokenKind::UserDefined) return;
    if (text.size() > AddedTokenFinder::kMaxLength) {
      fail_load("%s: the special token %zu has %zu bytes; at most %zu are allowed.", path(), id, text.size(),
                AddedTokenFinder::kMaxLength);
    }
    AddedToken token{static_cast<int32_t>(id), std::string(text), special};
    if (spm_ && !special && !add_space_prefix_ && text.find(' ') != std::string_view::npos) {
      // A run of spaces, which the vocabulary means as a run of U+2581: that is found in the text itself
      // first, then in what the spaces become.
      token.content = with_markers(text);
      parts_.added_normalized.add(token);
    }
    parts_.added.add(std::move(token));
  }

  std::string with_markers(std::string_view text) const {
    Normalizer normalizer;
    normalizer.add(Normalizer::Replace{" ", nullptr, std::string(kMarker)});
    return normalizer.apply(text);
  }

  void add_bpe_tokens() {
    std::string raw;
    vocabulary().bytes.resize(texts_.size());
    parts_.bpe.tokens.reserve(texts_.size());
    for (size_t id = 0; id < texts_.size(); ++id) {
      const TokenKind kind = vocabulary().kinds[id];
      if (texts_[id].empty()) continue;
      const bool plain = kind == TokenKind::Normal || kind == TokenKind::Byte;
      const bool printable = from_printable_bytes(texts_[id], raw);
      vocabulary().bytes[id] = texts_[id];
      if (printable) {
        const std::string_view stored = raw == texts_[id] ? texts_[id] : vocabulary().store.add(raw);
        if (plain) vocabulary().bytes[id] = stored;
        if (!parts_.bpe.tokens.insert(stored, static_cast<int32_t>(id))) fail_duplicate(id);
        if (stored.size() == 1)
          parts_.bpe.byte_ids[static_cast<uint8_t>(stored[0])] = static_cast<int32_t>(id);
      }
      if (!plain || !printable) add_named(id);
    }
  }

  void load_bpe() {
    const std::optional<std::string> pre = string("pre");
    if (!pre || *pre == "default") {
      log_warning(
          "%s: tokenizer.ggml.pre is %s; text is split by the default rules, which may not be the model's "
          "own.",
          path(), pre ? "\"default\"" : "absent");
    }
    NamedPreTokenizer named = named_pre_tokenizer(pre.value_or("default"));
    parts_.pre_tokenizer = std::move(named.pre_tokenizer);
    if (named.nfc) parts_.normalizer.add(NormalForm::NFC);
    parts_.bpe.symbols = Bpe::Symbols::Bytes;
    parts_.bpe.ignore_merges = named.ignore_merges;
    adds_bos_by_default_ = named.adds_bos;
    parts_.bpe.unknown = unknown_.value_or(-1);
    bool any_byte = false;
    for (const int32_t id : parts_.bpe.byte_ids) any_byte |= id >= 0;
    if (!any_byte) fail_load("%s: the vocabulary has no token for a single byte.", path());
    add_merges();
    parts_.bpe.prepare({});
  }

  void add_merges() {
    const auto merges = checkpoint_.string_array("tokenizer.ggml.merges");
    if (merges.empty()) fail_load("%s: tokenizer.ggml.merges is missing or empty.", path());
    const Bpe& bpe = parts_.bpe;
    parts_.bpe.merges.reserve(merges.size());
    std::string raw;
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      // A token never holds a plain space; the first character may be one only in a malformed file.
      const std::string_view merge = merges[rank];
      const size_t space = merge.find(' ');
      const bool valid = space != std::string_view::npos && space > 0 && space + 1 < merge.size() &&
                         find_invalid_utf8(merge) == std::string_view::npos;
      if (!valid) {
        fail_load("%s: merge %zu, %s, must be two tokens with a space between.", path(), rank,
                  quote(merge).c_str());
      }
      const auto id = [&](std::string_view printable) {
        return from_printable_bytes(printable, raw) ? bpe.tokens.find(raw) : -1;
      };
      const int32_t left = id(merge.substr(0, space)), right = id(merge.substr(space + 1));
      const int32_t merged = left < 0 || right < 0
                                 ? -1
                                 : id(std::string(merge.substr(0, space)).append(merge.substr(space + 1)));
      if (merged < 0) {
        fail_load("%s: merge %zu, %s, names or makes a token that is not in the vocabulary.", path(), rank,
                  quote(merge).c_str());
      }
      parts_.bpe.merges.insert(left, right, {static_cast<uint32_t>(rank), merged});
    }
  }

  void add_spm_tokens() {
    std::string spaced;
    vocabulary().bytes.resize(texts_.size());
    parts_.bpe.tokens.reserve(texts_.size());
    for (size_t id = 0; id < texts_.size(); ++id) {
      const TokenKind kind = vocabulary().kinds[id];
      const std::string_view text = texts_[id];
      if (text.empty()) continue;
      vocabulary().bytes[id] = text;
      if (kind == TokenKind::Byte) {
        const int byte = byte_of_token(text);
        if (byte < 0) {
          fail_load("%s: token %zu, %s, has the type of a byte, but <0x00> to <0xFF> is needed.", path(), id,
                    quote(text).c_str());
        }
        const char c = static_cast<char>(byte);
        vocabulary().bytes[id] = vocabulary().store.add({&c, 1});
        parts_.bpe.byte_ids[byte] = static_cast<int32_t>(id);
        add_named(id);
        continue;
      }
      if (kind == TokenKind::Normal || kind == TokenKind::UserDefined) {
        if (text.find(kMarker) != std::string_view::npos) {
          spaced = text;
          for (size_t at = 0; (at = spaced.find(kMarker, at)) != std::string::npos; ++at) {
            spaced.replace(at, kMarker.size(), " ");
          }
          vocabulary().bytes[id] = vocabulary().store.add(spaced);
        }
        if (!parts_.bpe.tokens.insert(text, static_cast<int32_t>(id))) fail_duplicate(id);
      }
      if (kind != TokenKind::Normal) add_named(id);
    }
    // A text may not be both an ordinary and a special token.
    for (const auto& [text, id] : vocabulary().added) {
      const int32_t other = parts_.bpe.tokens.find(text);
      if (other >= 0 && other != id) fail_duplicate(id);
    }
  }

  void load_spm() {
    const auto scores = checkpoint_.float_array("tokenizer.ggml.scores");
    if (scores.size() != texts_.size()) {
      fail_load("%s: tokenizer.ggml.scores has %zu entries, but there are %zu tokens.", path(), scores.size(),
                texts_.size());
    }
    Bpe& bpe = parts_.bpe;
    bpe.symbols = Bpe::Symbols::Chars;
    bpe.by_score = true;
    if (!unknown_) {
      for (size_t id = 0; id < texts_.size() && !unknown_; ++id) {
        if (vocabulary().kinds[id] == TokenKind::Unknown) unknown_ = static_cast<int32_t>(id);
      }
    }
    bpe.unknown = unknown_.value_or(-1);
    for (int byte = 0; byte < 256 && !unknown_; ++byte) {
      if (bpe.byte_ids[byte] < 0) {
        fail_load("%s: the vocabulary has neither the byte token <0x%02X> nor an unknown token.", path(),
                  byte);
      }
    }
    bpe.score_ranks.reserve(scores.size());
    for (size_t id = 0; id < scores.size(); ++id) {
      if (!std::isfinite(scores[id])) fail_load("%s: the score of token %zu is not finite.", path(), id);
      // The higher the score, the lower the number; + 0.0f turns -0 into 0.
      const auto bits = std::bit_cast<uint32_t>(scores[id] + 0.0f);
      bpe.score_ranks.push_back(bits >> 31 ? bits : ~bits & 0x7fffffff);
    }
    bpe.prepare(texts_);
    parts_.strips_leading_space = add_space_prefix_;
    if (add_space_prefix_) parts_.normalizer.add(Normalizer::Prepend{std::string(kMarker)});
    parts_.normalizer.add(Normalizer::Replace{" ", nullptr, std::string(kMarker)});
    adds_bos_by_default_ = true;
  }

  void set_bos() {
    parts_.bos = id_of("bos_token_id");
    if (!parts_.bos && spm_ && texts_.size() > 1 && vocabulary().kinds[1] == TokenKind::Control)
      parts_.bos = 1;
    const std::optional<bool> wanted = boolean("add_bos_token");
    if (wanted == true && !parts_.bos) {
      fail_load("%s: tokenizer.ggml.add_bos_token is true, but tokenizer.ggml.bos_token_id is missing.",
                path());
    }
    parts_.adds_bos = wanted.value_or(adds_bos_by_default_) && parts_.bos;
    if (boolean("add_eos_token") == true) {
      log_warning("%s: tokenizer.ggml.add_eos_token is ignored: a prompt is to be continued.", path());
    }
  }

  void set_end_ids() {
    for (const char* name : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
      if (const auto id = id_of(name)) parts_.end_ids.push_back(*id);
    }
    if (parts_.end_ids.empty() && spm_ && texts_.size() > 2 && vocabulary().kinds[2] == TokenKind::Control) {
      parts_.end_ids.push_back(2);
    }
    for (size_t id = 0; id < texts_.size(); ++id) {
      if (vocabulary().kinds[id] == TokenKind::Control && ends_generation(texts_[id])) {
        parts_.end_ids.push_back(static_cast<int32_t>(id));
      }
    }
  }

  const Checkpoint& checkpoint_;
  const Json& config_;
  bool spm_ = false;
  bool add_space_prefix_ = false;  // SentencePiece: a fragment of text begins with U+2581
  bool adds_bos_by_default_ = false;
  std::vector<std::string_view> texts_;
  std::optional<int32_t> unknown_;
  TokenizerParts parts_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_gguf_tokenizer(const Checkpoint& checkpoint) {
  return GgufLoader(checkpoint).load();
}

}  // namespace vllm

// Tokenizers from tokenizer.json (the format of the `tokenizers` library) and tokenizer_config.json of a
// directory.
#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "text/bpe_tokenizer.h"
#include "text/json_scanner.h"
#include "text/pipeline_json.h"
#include "text/unicode.h"

namespace vllm {
namespace {

struct Entry {
  int64_t id;
  std::string_view text;
};

struct AddedEntry {
  AddedToken token;
  bool normalized = false;
};

/// Members of one object by key, as unparsed text.
using Members = std::map<std::string, std::string_view, std::less<>>;

Members scan_members(std::string_view text, const std::string& what) {
  Members members;
  JsonScanner scanner(text, what);
  scanner.object([&](std::string_view key) {
    if (!members.emplace(key, scanner.value()).second) {
      fail_load("%s holds the key %s twice in one object.", what.c_str(), quote(key).c_str());
    }
  });
  scanner.end();
  return members;
}

class JsonLoader {
 public:
  explicit JsonLoader(const std::string& directory)
      : path_(directory + "/tokenizer.json"), config_path_(directory + "/tokenizer_config.json") {}

  std::unique_ptr<Tokenizer> load() {
    const auto file = MappedFile::open(path_);
    const Members top = scan_members({reinterpret_cast<const char*>(file->data()), file->size()}, path_);
    const Members model = scan_members(member(top, "model"), path_ + " model");
    check_model(model);
    read_vocab(member(model, "vocab"));
    if (top.contains("added_tokens")) read_added(top.at("added_tokens"));

    pipeline_.source = path_;
    pipeline_.read_normalizer(parsed(top, "normalizer"), parts_.normalizer);
    pipeline_.read_pre_tokenizer(parsed(top, "pre_tokenizer"), parts_.pre_tokenizer);
    pipeline_.read_decoder(parsed(top, "decoder"));
    pipeline_.read_post_processor(parsed(top, "post_processor"));
    bpe().symbols = pipeline_.byte_level ? Bpe::Symbols::Bytes : Bpe::Symbols::Chars;
    parts_.strips_leading_space = pipeline_.strips_leading_space;

    place_tokens();
    set_byte_ids(model);
    read_merges(member(model, "merges"));
    bpe().prepare(model_texts_);
    place_added();
    set_ends();
    return std::make_unique<BpeTokenizer>(std::move(parts_));
  }

 private:
  Bpe& bpe() { return parts_.bpe; }
  Vocabulary& vocabulary() { return parts_.vocabulary; }

  std::string_view member(const Members& members, const char* key) const {
    const auto found = members.find(key);
    if (found == members.end()) fail_load("%s has no \"%s\".", path_.c_str(), key);
    return found->second;
  }
  Json parsed(const Members& members, const char* key) const {
    const auto found = members.find(key);
    if (found == members.end()) return nullptr;
    return parse_json(found->second, (path_ + " " + key).c_str(), Status::ModelLoad, 64);
  }
  bool flag(const Members& model, const char* key) const {
    const Json value = parsed(model, key);
    if (value.is_null()) return false;
    if (!value.is_boolean()) fail_load("%s: model.%s must be true or false.", path_.c_str(), key);
    return value.get<bool>();
  }

  void check_model(const Members& model) {
    const Json type = parsed(model, "type");
    if (!(type.is_null() && model.contains("merges")) && type != "BPE") {
      fail_load("%s: the model type %s is not supported; \"BPE\" is needed.", path_.c_str(),
                dump_json(type).c_str());
    }
    for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
      const Json value = parsed(model, key);
      if (!value.is_null() && value != "" && value != 0.0) {
        fail_load("%s: model.%s is %s; only null or empty is supported.", path_.c_str(), key,
                  dump_json(value).c_str());
      }
    }
    bpe().ignore_merges = flag(model, "ignore_merges");
    bpe().fuse_unknown = flag(model, "fuse_unk");
  }

  void read_vocab(std::string_view text) {
    JsonScanner scanner(text, path_ + " model.vocab");
    entries_.reserve(text.size() / 16);
    scanner.object([&](std::string_view key) {
      const std::string_view stored = vocabulary().store.add(key);
      entries_.push_back({scanner.integer(), stored});
    });
    scanner.end();
    if (entries_.empty()) fail_load("%s: model.vocab is empty.", path_.c_str());
  }

  void read_added(std::string_view text) {
    JsonScanner scanner(text, path_ + " added_tokens");
    scanner.array([&] {
      AddedEntry entry;
      bool has_id = false, has_content = false;
      const auto boolean = [&] {
        const std::string_view value = scanner.value();
        if (value != "true" && value != "false") scanner.fail("true or false before it");
        return value == "true";
      };
      int64_t id = -1;
      scanner.object([&](std::string_view key) {
        if (key == "id") {
          id = scanner.integer(), has_id = true;
        } else if (key == "content") {
          entry.token.content = scanner.string(), has_content = true;
        } else if (key == "special") {
          entry.token.special = boolean();
        } else if (key == "single_word") {
          entry.token.single_word = boolean();
        } else if (key == "lstrip") {
          entry.token.lstrip = boolean();
        } else if (key == "rstrip") {
          entry.token.rstrip = boolean();
        } else if (key == "normalized") {
          entry.normalized = boolean();
        } else {
          scanner.value();
        }
      });
      if (!has_id || !has_content) scanner.fail("an added token with \"id\" and \"content\"");
      if (id < 0 || id > INT32_MAX) {
        fail_load("%s: the added token %s has the id %lld.", path_.c_str(),
                  quote(entry.token.content).c_str(), static_cast<long long>(id));
      }
      entry.token.id = static_cast<int32_t>(id);
      added_.push_back(std::move(entry));
    });
    scanner.end();
  }

  void check_id(int64_t id, std::string_view text) const {
    // Published files leave gaps, but an id far outside would only cost memory.
    const auto limit = static_cast<int64_t>(2 * (entries_.size() + added_.size()) + 65536);
    if (id < 0 || id >= limit) {
      fail_load("%s: the id %lld of token %s is out of range; the file has %zu tokens.", path_.c_str(),
                static_cast<long long>(id), quote(text).c_str(), entries_.size() + added_.size());
    }
  }

  void place_tokens() {
    int64_t size = 0;
    for (const Entry& entry : entries_) {
      check_id(entry.id, entry.text);
      size = std::max(size, entry.id + 1);
    }
    for (const AddedEntry& entry : added_) {
      check_id(entry.token.id, entry.token.content);
      size = std::max<int64_t>(size, entry.token.id + 1);
    }
    vocabulary().bytes.resize(size);
    vocabulary().kinds.resize(size, TokenKind::Missing);
    texts_.resize(size);
    bpe().tokens.reserve(entries_.size());
    model_texts_.reserve(entries_.size());
    std::string raw;
    for (const Entry& entry : entries_) {
      const auto id = static_cast<int32_t>(entry.id);
      if (vocabulary().kinds[id] != TokenKind::Missing) {
        fail_load("%s: the tokens %s and %s share the id %d.", path_.c_str(), quote(texts_[id]).c_str(),
                  quote(entry.text).c_str(), id);
      }
      vocabulary().kinds[id] = TokenKind::Normal;
      texts_[id] = entry.text;
      if (entry.text.empty()) continue;
      std::string_view form = entry.text;  // what merging sees
      bool produced = true;
      if (bpe().symbols == Bpe::Symbols::Bytes) {
        produced = from_printable_bytes(entry.text, raw);
        if (produced && raw != entry.text) form = vocabulary().store.add(raw);
        vocabulary().bytes[id] = form;
      } else {
        vocabulary().bytes[id] = decoded(id, entry.text);
      }
      const bool fresh =
          produced ? bpe().tokens.insert(form, id) : vocabulary().added.emplace(form, id).second;
      if (!fresh)
        fail_load("%s: the token %s stands twice in the vocabulary.", path_.c_str(), quote(form).c_str());
      if (produced) model_texts_.push_back(form);
    }
  }

  /// What the decoder makes of a token of a vocabulary that is not byte-level.
  std::string_view decoded(int32_t id, std::string_view text) {
    if (pipeline_.byte_fallback_decoder) {
      if (const int byte = byte_of_token(text); byte >= 0) {
        vocabulary().kinds[id] = TokenKind::Byte;
        const char c = static_cast<char>(byte);
        return vocabulary().store.add({&c, 1});
      }
    }
    std::string out;
    for (const auto& [pattern, content] : pipeline_.replacements) {
      if (text.find(pattern) == std::string_view::npos) continue;
      Normalizer replace;
      replace.add(Normalizer::Replace{pattern, nullptr, content});
      text = vocabulary().store.add(out = replace.apply(text));
    }
    return text;
  }

  void set_byte_ids(const Members& model) {
    const Json unknown = parsed(model, "unk_token");
    if (!unknown.is_null()) {
      if (!unknown.is_string()) fail_load("%s: model.unk_token must be a string.", path_.c_str());
      bpe().unknown = id_of(unknown.get<std::string>(), "model.unk_token");
    }
    if (bpe().symbols == Bpe::Symbols::Bytes) {
      bool any = false;
      for (int byte = 0; byte < 256; ++byte) {
        const char c = static_cast<char>(byte);
        bpe().byte_ids[byte] = bpe().tokens.find({&c, 1});
        any |= bpe().byte_ids[byte] >= 0;
      }
      if (!any) fail_load("%s: the byte-level vocabulary has no token for a single byte.", path_.c_str());
    } else if (flag(model, "byte_fallback")) {
      for (int byte = 0; byte < 256; ++byte)
        bpe().byte_ids[byte] = bpe().tokens.find(format("<0x%02X>", byte));
    }
  }

  /// Id of a token that another part of the file names.
  int32_t id_of(const std::string& text, const char* where) const {
    for (const AddedEntry& entry : added_) {
      if (entry.token.content == text) return entry.token.id;
    }
    std::string raw;
    int32_t id = parts_.bpe.tokens.find(text);
    if (parts_.bpe.symbols == Bpe::Symbols::Bytes) {
      id = from_printable_bytes(text, raw) ? parts_.bpe.tokens.find(raw) : -1;
    }
    if (id < 0) fail_load("%s: %s names %s, which is no token.", path_.c_str(), where, quote(text).c_str());
    return id;
  }

  void read_merges(std::string_view text) {
    JsonScanner scanner(text, path_ + " model.merges");
    bpe().merges.reserve(entries_.size());
    const bool bytes = bpe().symbols == Bpe::Symbols::Bytes;
    std::string left, right, raw;
    uint32_t rank = 0;
    scanner.array([&] {
      if (scanner.peek() == '[') {
        int count = 0;
        scanner.array([&] {
          (count == 0 ? left : right) = scanner.string();
          if (++count > 2) scanner.fail("a pair of tokens before it");
        });
        if (count != 2) scanner.fail("a pair of tokens before it");
      } else {
        const std::string_view both = scanner.string();
        const size_t space = both.find(' ');
        if (space == std::string_view::npos || both.find(' ', space + 1) != std::string_view::npos) {
          scanner.fail("two tokens with one space between before it");
        }
        left = both.substr(0, space);
        right = both.substr(space + 1);
      }
      const auto id = [&](std::string_view token) {
        if (!bytes) return bpe().tokens.find(token);
        return from_printable_bytes(token, raw) ? bpe().tokens.find(raw) : -1;
      };
      const int32_t left_id = id(left), right_id = id(right);
      const int32_t merged = left_id < 0 || right_id < 0 ? -1 : id(left + right);
      if (merged < 0) {
        fail_load("%s: merge %u of %s and %s names or makes a token that is not in the vocabulary.",
                  path_.c_str(), rank, quote(left).c_str(), quote(right).c_str());
      }
      bpe().merges.insert(left_id, right_id, {rank++, merged});
    });
    scanner.end();
  }

  void place_added() {
    for (AddedEntry& entry : added_) {
      AddedToken& token = entry.token;
      if (token.content.empty()) continue;
      if (token.content.size() > AddedTokenFinder::kMaxLength) {
        fail_load("%s: the added token %d has %zu bytes; at most %zu are allowed.", path_.c_str(), token.id,
                  token.content.size(), AddedTokenFinder::kMaxLength);
      }
      const bool known = vocabulary().kinds[token.id] != TokenKind::Missing;
      if (known && texts_[token.id] != token.content) {
        fail_load("%s: the added token %s has the id %d, which is that of %s.", path_.c_str(),
                  quote(token.content).c_str(), token.id, quote(texts_[token.id]).c_str());
      }
      const std::string_view stored = vocabulary().store.add(token.content);
      const auto [place, fresh] = vocabulary().added.emplace(stored, token.id);
      std::string raw;
      const bool produced = bpe().symbols == Bpe::Symbols::Chars || from_printable_bytes(stored, raw);
      const int32_t other =
          produced ? bpe().tokens.find(bpe().symbols == Bpe::Symbols::Chars ? stored : std::string_view(raw))
                   : -1;
      if (place->second != token.id || (other >= 0 && other != token.id)) {
        fail_load("%s: the token %s has the ids %d and %d.", path_.c_str(), quote(stored).c_str(), token.id,
                  place->second != token.id ? place->second : other);
      }
      if (!fresh && known && vocabulary().kinds[token.id] != TokenKind::Normal) {
        fail_load("%s: the added token %s stands twice in added_tokens.", path_.c_str(),
                  quote(stored).c_str());
      }
      texts_[token.id] = stored;
      vocabulary().kinds[token.id] = token.special ? TokenKind::Control : TokenKind::UserDefined;
      vocabulary().bytes[token.id] =
          bpe().symbols == Bpe::Symbols::Bytes || token.special ? stored : decoded_added(token.id, stored);
      if (entry.normalized && !parts_.normalizer.empty()) {
        token.content = parts_.normalizer.apply(token.content);
        parts_.added_normalized.add(token);
      } else {
        parts_.added.add(token);
      }
    }
  }

  std::string_view decoded_added(int32_t id, std::string_view text) {
    const TokenKind kind = vocabulary().kinds[id];
    const std::string_view bytes = decoded(id, text);
    vocabulary().kinds[id] = kind;
    return bytes;
  }

  void set_ends() {
    std::optional<bool> adds_bos;
    std::optional<std::string> bos, eos;
    if (std::filesystem::exists(config_path_)) {
      const auto file = MappedFile::open(config_path_);
      const Members config =
          scan_members({reinterpret_cast<const char*>(file->data()), file->size()}, config_path_);
      bos = token_text(config, "bos_token");
      eos = token_text(config, "eos_token");
      const auto found = config.find("add_bos_token");
      if (found != config.end() && found->second != "null") {
        if (found->second != "true" && found->second != "false") {
          fail_load("%s: add_bos_token must be true or false.", config_path_.c_str());
        }
        adds_bos = found->second == "true";
      }
    }
    if (pipeline_.bos) {
      parts_.bos = static_cast<int32_t>(*pipeline_.bos);
      if (*pipeline_.bos >= static_cast<int64_t>(vocabulary().size())) {
        fail_load("%s: post_processor names the id %lld, but the largest is %zu.", path_.c_str(),
                  static_cast<long long>(*pipeline_.bos), vocabulary().size() - 1);
      }
    } else if (bos) {
      parts_.bos = id_of(*bos, "bos_token of tokenizer_config.json");
    }
    parts_.adds_bos = adds_bos.value_or(pipeline_.bos.has_value()) && parts_.bos;
    if (eos) parts_.end_ids.push_back(id_of(*eos, "eos_token of tokenizer_config.json"));
    if (!parts_.end_ids.empty()) return;
    for (const AddedEntry& entry : added_) {
      if (entry.token.special && ends_generation(texts_[entry.token.id]))
        parts_.end_ids.push_back(entry.token.id);
    }
  }

  /// A token of tokenizer_config.json: a string, or an object with "content".
  std::optional<std::string> token_text(const Members& config, const char* key) const {
    const auto found = config.find(key);
    if (found == config.end()) return std::nullopt;
    Json value = parse_json(found->second, (config_path_ + " " + key).c_str(), Status::ModelLoad, 8);
    if (value.is_object() && value.contains("content")) value = Json(value["content"]);
    if (value.is_null() || value == "") return std::nullopt;
    if (!value.is_string()) fail_load("%s: %s must be a string.", config_path_.c_str(), key);
    return value.get<std::string>();
  }

  std::string path_, config_path_;
  PipelineReader pipeline_;
  std::vector<Entry> entries_;
  std::vector<AddedEntry> added_;
  std::vector<std::string_view> texts_;        // by id, as the file has them
  std::vector<std::string_view> model_texts_;  // of all tokens that merging may meet
  TokenizerParts parts_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer_json(const std::string& directory) {
  return JsonLoader(directory).load();
}

}  // namespace vllm

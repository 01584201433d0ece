// From what a request asks for to its constraint.
#pragma once
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "constrain/constraint.h"
#include "text/tokenizer.h"

namespace vllm {

class LocalMasks;
class Matcher;
class TokenTrie;

/// What stands between a tag's begin and end.
struct TagContent {
  enum class Kind : uint8_t {
    Json,        // a JSON value that fits the schema in `text`; an empty text or "true": any JSON value
    Parameters,  // the properties of the schema in `text`, each before_name NAME after_name VALUE after_value
    Regex,       // `text`
    Gbnf,        // `text`
    Free,        // any text without the tag's end
  };
  Kind kind = Kind::Json;
  std::string text;
  /// What of the schema cannot be enforced allows any JSON in its place, with a warning, instead of an error.
  bool loose = true;

  /// Of Parameters. A value of type string is any text without after_value, any other one is JSON. Behind the
  /// properties come names of the model's own, with text as values, where the schema allows others.
  std::string before_name, after_name, after_value;
  /// Of Parameters: the properties in any order, none of them needed, all with text as values.
  bool free_values = false;
};

/// begin, content, end. Where a text names a control token of the vocabulary, that token is meant.
struct StructuralTag {
  std::string begin;
  /// When set: after `begin` a decimal number and this text (the call counter of some dialects).
  std::optional<std::string> after_number;
  TagContent content;
  std::string end;
};

/// Several tags: section_begin tag (separator tag)* section_end.
struct StructuralTags {
  enum class Mode : uint8_t {
    Lazy,  // free text; a trigger in it is the beginning of tags and must go on as such; the text may end any
           // time
    Required,  // tags from the first byte on
  };
  Mode mode = Mode::Lazy;
  std::vector<std::string> triggers;  // Lazy: beginnings of section_begin, or of each tag's begin
  std::vector<StructuralTag> tags;
  bool several = true;      // more than one tag
  bool text_after = false;  // free text, and in Lazy mode further tags, after the last one
  std::string section_begin, separator, section_end;
};

/// The tags of a request's {"structures": [{"begin", "schema", "end"}], "triggers": [...]}: lazy, text and
/// further tags may follow, schemas are enforced or refused. Throws Error(InvalidArgument) naming the member
/// at fault.
StructuralTags parse_structural_tag_request(std::string_view text);

struct ConstraintSpec {
  enum class Kind : uint8_t { JsonSchema, JsonObject, Regex, Choice, Gbnf, StructuralTags };
  Kind kind = Kind::JsonObject;
  std::string text;                  // JsonSchema, Regex, Gbnf
  std::vector<std::string> choices;  // Choice
  bool compact = false;              // JsonSchema, JsonObject: no white space between the tokens of JSON
  StructuralTags tags;               // StructuralTags
  /// Of the other kinds: the output may be these tags instead, from its first byte to its end.
  std::optional<StructuralTags> or_tags;
};

/// Thread-safe. Compiled grammars and their masks are kept, the least recently used ones leave first.
class ConstraintCompiler {
 public:
  static constexpr size_t kCacheBytes = 64 << 20;

  /// `end_ids`: the tokens that end an output. `model_vocab`: ids that the model can put out; a tokenizer may
  /// have more. The tokenizer is not used after construction.
  ConstraintCompiler(const Tokenizer& tokenizer, std::vector<int32_t> end_ids,
                     size_t cache_bytes = kCacheBytes, int32_t model_vocab = INT32_MAX);
  ~ConstraintCompiler();

  /// Throws Error(InvalidArgument) with line:column, JSON pointer or reason. `warnings` gets what was
  /// loosened or ignored, once for a grammar: not when it comes out of the cache.
  std::unique_ptr<Constraint> make(const ConstraintSpec& spec, std::vector<std::string>* warnings = nullptr);

  size_t cached_grammars() const;

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<Matcher> matcher;
  };
  std::shared_ptr<const TokenTrie> trie_;
  std::shared_ptr<LocalMasks> shared_;
  size_t cache_bytes_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> index_;
};

}  // namespace vllm

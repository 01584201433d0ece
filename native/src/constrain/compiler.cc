#include "constrain/compiler.h"

#include "base/error.h"
#include "constrain/front_ends.h"
#include "constrain/grammar_constraint.h"
#include "constrain/matcher.h"
#include "constrain/token_trie.h"

namespace vllm {
namespace {

void put(std::string& key, std::string_view text) {
  key += std::to_string(text.size());
  key += ':';
  key += text;
}

void put_tags(std::string& key, const StructuralTags& tags) {
  key += static_cast<char>('a' + static_cast<int>(tags.mode) * 4 + tags.several * 2 + tags.text_after);
  for (const std::string& trigger : tags.triggers) put(key, trigger);
  key += '/';
  for (const std::string* text : {&tags.section_begin, &tags.separator, &tags.section_end}) put(key, *text);
  for (const StructuralTag& tag : tags.tags) {
    const TagContent& c = tag.content;
    key += static_cast<char>('a' + static_cast<int>(c.kind) * 4 + c.loose * 2 + tag.after_number.has_value());
    key += c.free_values ? '*' : '.';
    for (const std::string* text :
         {&tag.begin, &tag.end, &c.text, &c.before_name, &c.after_name, &c.after_value}) {
      put(key, *text);
    }
    put(key, tag.after_number.value_or(""));
  }
}

/// Equal for equal constraints only.
std::string key_of(const ConstraintSpec& spec) {
  std::string key(1, static_cast<char>('a' + static_cast<int>(spec.kind) * 2 + spec.compact));
  if (spec.kind == ConstraintSpec::Kind::Choice) {
    for (const std::string& choice : spec.choices) put(key, choice);
  } else if (spec.kind == ConstraintSpec::Kind::StructuralTags) {
    put_tags(key, spec.tags);
  } else {
    put(key, spec.text);
  }
  if (spec.or_tags) {
    key += '|';
    put_tags(key, *spec.or_tags);
  }
  return key;
}

std::shared_ptr<const Grammar> compile(const ConstraintSpec& spec, const TokenTrie& trie,
                                       std::vector<std::string>& warnings) {
  using Kind = ConstraintSpec::Kind;
  Rules rules;
  int root = 0;
  const auto single = [&](const char* name, Expression body) {
    rules.push_back({name, std::move(body)});
    root = static_cast<int>(rules.size()) - 1;
  };
  switch (spec.kind) {
    case Kind::JsonSchema:
      root = parse_json_schema(spec.text, {.compact = spec.compact}, rules, warnings);
      break;
    case Kind::JsonObject:
      root = add_json_object(spec.compact, rules);
      break;
    case Kind::Regex:
      single("regex", parse_regex(spec.text));
      break;
    case Kind::Choice:
      single("choice", parse_choice(spec.choices));
      break;
    case Kind::Gbnf:
      root = parse_gbnf(spec.text, trie, rules);
      break;
    case Kind::StructuralTags: {
      Expression body = parse_structural_tags(spec.tags, trie, rules, warnings);
      single("tags", std::move(body));
      break;
    }
  }
  if (spec.or_tags) {
    Expression tags = parse_structural_tags(*spec.or_tags, trie, rules, warnings);
    single("answer", any_of(reference(root), std::move(tags)));
  }
  return Grammar::compile(rules, root);
}

}  // namespace

ConstraintCompiler::ConstraintCompiler(const Tokenizer& tokenizer, std::vector<int32_t> end_ids,
                                       size_t cache_bytes, int32_t model_vocab)
    : trie_(std::make_shared<TokenTrie>(tokenizer, std::move(end_ids), model_vocab)),
      shared_(std::make_shared<LocalMasks>()),
      cache_bytes_(cache_bytes) {
  // The slowest mask of JSON is that inside a string.
  Rules rules;
  const int object = add_json_object(false, rules);
  Matcher(Grammar::compile(rules, object), trie_, shared_).prepare("{\"");
}

ConstraintCompiler::~ConstraintCompiler() = default;

std::unique_ptr<Constraint> ConstraintCompiler::make(const ConstraintSpec& spec,
                                                     std::vector<std::string>* warnings) {
  const std::string key = key_of(spec);
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = index_.find(key); known != index_.end()) {
      entries_.splice(entries_.begin(), entries_, known->second);
      return std::make_unique<GrammarConstraint>(entries_.front().matcher);
    }
  }
  // Without the lock: a slow grammar holds nobody up. Two requests may compile the same one; the later one
  // stays.
  std::vector<std::string> unsaid;
  std::vector<std::string>& said = warnings != nullptr ? *warnings : unsaid;
  Entry entry{key, std::make_shared<Matcher>(compile(spec, *trie_, said), trie_, shared_)};
  entry.matcher->prepare("");  // here, so that no engine step waits for it
  if (entry.matcher->exhausted()) fail_argument("The grammar is too ambiguous: too much can come first.");
  auto constraint = std::make_unique<GrammarConstraint>(entry.matcher);
  const std::lock_guard lock(mutex_);
  if (const auto known = index_.find(key); known != index_.end()) {
    entries_.erase(known->second);
    index_.erase(known);
  }
  entries_.push_front(std::move(entry));
  index_.emplace(key, entries_.begin());
  size_t total = 0;
  for (auto at = entries_.begin(); at != entries_.end();) {
    total += at->matcher->bytes() + at->key.size() * 2;
    if (total > cache_bytes_ && at != entries_.begin()) {
      index_.erase(at->key);
      at = entries_.erase(at);
    } else {
      ++at;
    }
  }
  return constraint;
}

size_t ConstraintCompiler::cached_grammars() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace vllm

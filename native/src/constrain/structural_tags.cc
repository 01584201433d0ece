// Tool calls as a grammar: literal begin, constrained content, literal end, with free text around.
#include <algorithm>

#include "base/error.h"
#include "constrain/front_ends.h"
#include "constrain/json_schema.h"
#include "constrain/json_text.h"

namespace vllm {
namespace {

/// The text's bytes, with the control tokens that it names as tokens.
Expression marked(std::string_view text, const TokenTrie& trie) {
  std::vector<Expression> parts;
  std::string plain;
  const auto flush = [&] {
    if (!plain.empty()) parts.push_back(literal(plain));
    plain.clear();
  };
  for (size_t at = 0; at < text.size();) {
    const TokenTrie::Control* longest = nullptr;
    for (const TokenTrie::Control& control : trie.controls()) {
      if (text.substr(at, control.text.size()) == control.text &&
          (longest == nullptr || control.text.size() > longest->text.size())) {
        longest = &control;
      }
    }
    if (longest == nullptr) {
      plain += text[at++];
      continue;
    }
    flush();
    Expression token;
    token.kind = Expression::Kind::Tokens;
    token.ids = {longest->id};
    parts.push_back(std::move(token));
    at += longest->text.size();
  }
  flush();
  return sequence_of(std::move(parts));
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return text;
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

/// Text in which none of `markers` occurs.
Expression free_text(std::vector<std::string> markers) {
  std::erase(markers, "");
  Expression e;
  e.kind = Expression::Kind::FreeText;
  e.texts = std::move(markers);
  return e;
}

/// Free text of a whole answer: control tokens that are no part of a marker may occur in it too.
Expression answer_text(const std::vector<std::string>& markers, const TokenTrie& trie) {
  Expression e = free_text(markers);
  for (const TokenTrie::Control& control : trie.controls()) {
    const bool is_marker = std::any_of(markers.begin(), markers.end(), [&](const std::string& marker) {
      return marker.find(control.text) != std::string::npos || control.text.find(marker) != std::string::npos;
    });
    if (!is_marker) e.ids.push_back(control.id);
  }
  std::sort(e.ids.begin(), e.ids.end());
  return e;
}

/// A value that is text: it ends where `marker` begins.
Expression text_before(std::string_view marker) { return free_text({std::string(trimmed(marker))}); }

Expression content_of(const StructuralTag& tag, const TokenTrie& trie, Rules& rules,
                      std::vector<std::string>& warnings) {
  const TagContent& content = tag.content;
  switch (content.kind) {
    case TagContent::Kind::Json:
      if (content.text.empty()) return reference(add_json_value(false, rules));
      return reference(parse_json_schema(content.text, {.loose = content.loose}, rules, warnings));
    case TagContent::Kind::Parameters:
      return SchemaParser(content.text.empty() ? "{}" : content.text, {.loose = content.loose}, rules,
                          warnings)
          .parse_parameters(content);
    case TagContent::Kind::Regex:
      return parse_regex(content.text);
    case TagContent::Kind::Gbnf:
      return reference(parse_gbnf(content.text, trie, rules));
    case TagContent::Kind::Free:
      if (trimmed(tag.end).empty()) fail_argument("A tag with free content needs an end text.");
      return free_text({std::string(trimmed(tag.end))});
  }
  return {};
}

}  // namespace

Expression SchemaParser::parse_parameters(const TagContent& tag) {
  if (trimmed(tag.after_value).empty()) fail_argument("Parameters of a tag need a text after each value.");
  try {
    return parameters(document_.root(), "#", tag);
  } catch (const Error& error) {
    if (!style_.loose || over_limit_) throw;
    warnings_.push_back(error.message() + " Any parameters are allowed.");
    return star(other_parameter({}, text_before(tag.after_value), tag));
  }
}

Expression SchemaParser::parameters(const Json& schema, const std::string& at, const TagContent& tag) {
  // Branches multiply, and may name themselves.
  constexpr int kBranches = 256;
  if (++branches_ > kBranches)
    fail_schema(at, format("the parameters have more than the %d branches that are allowed", kBranches));
  const Json flat = document_.flatten(schema, at);
  if (!flat.is_object()) return star(other_parameter({}, text_before(tag.after_value), tag));
  for (const char* keyword : {"anyOf", "oneOf"}) {
    const auto found = flat.find(keyword);
    if (found == flat.end()) continue;
    const std::string place = at + "/" + keyword;
    if (!found->is_array() || found->empty())
      fail_schema(place, format("'%s' is no list of schemas", keyword));
    Json base = flat;
    base.erase(keyword);
    std::vector<Expression> ways;
    for (size_t i = 0; i < found->size(); ++i) {
      const std::string branch_at = place + "/" + std::to_string(i);
      const Json merged = document_.merge(base, document_.flatten((*found)[i], branch_at), branch_at);
      if (merged != false) ways.push_back(parameters(merged, branch_at, tag));
    }
    if (ways.empty()) fail_schema(place, "none of the schemas fits any value");
    return reference(new_rule(place, alternatives(std::move(ways))));
  }

  const auto additional = flat.find("additionalProperties");
  bool open = additional == flat.end() ? !flat.contains("properties") : *additional != false;
  const auto loosened = [&](const char* keyword, const char* what) {
    const auto found = flat.find(keyword);
    if (found == flat.end() || (found->is_object() && found->empty())) return false;
    warn(at + "/" + keyword, format("'%s' is not enforced in this dialect%s", keyword, what));
    return true;
  };
  for (const char* keyword : {"not", "propertyNames", "dependentRequired", "unevaluatedProperties",
                              "minProperties", "maxProperties"})
    loosened(keyword, "");
  for (const char* keyword :
       {"if", "patternProperties", "dependentSchemas", "dependencies", "$dynamicRef", "$recursiveRef"})
    open = loosened(keyword, ", so any further parameters are allowed") || open;
  const std::vector<Property> properties = properties_of(flat, at);
  parameters_ += properties.size();
  if (parameters_ > GrammarLimits::kChoices)
    fail_schema(at, format("the branches have more than %zu parameters", GrammarLimits::kChoices));
  std::vector<std::string> names;
  for (const Property& property : properties) names.push_back(property.name);
  if (tag.free_values) {
    if (open) return star(other_parameter({}, text_before(tag.after_value), tag));
    if (names.empty()) return {};
    std::vector<Expression> choices;
    for (const std::string& name : names) choices.push_back(literal(name));
    return star(sequence(literal(tag.before_name), alternatives(std::move(choices)), literal(tag.after_name),
                         text_before(tag.after_value), literal(tag.after_value)));
  }
  std::vector<Expression> parts;
  for (const Property& property : properties) {
    if (*property.schema == false) continue;
    Expression part = sequence(literal(tag.before_name + property.name + tag.after_name),
                               parameter_value(*property.schema, property.at, tag), literal(tag.after_value));
    parts.push_back(property.required ? std::move(part) : optional(std::move(part)));
  }
  if (open) {
    Expression value = additional == flat.end() || *additional == false
                           ? text_before(tag.after_value)
                           : parameter_value(*additional, at + "/additionalProperties", tag);
    parts.push_back(star(other_parameter(names, std::move(value), tag)));
  }
  return sequence_of(std::move(parts));
}

Expression SchemaParser::other_parameter(const std::vector<std::string>& taken, Expression value,
                                         const TagContent& tag) {
  static const CharSet kNameChars = CharSet{{' ', '~'}, {0xa0, 0x10ffff}}.without(
      {{'"', '"'}, {'\'', '\''}, {'<', '<'}, {'>', '>'}, {'\\', '\\'}});
  Expression name;
  name.kind = Expression::Kind::OtherKey;
  name.chars = kNameChars;
  for (const std::string& text : taken) {
    bool spelt = !text.empty() && text.front() != ' ' && json_string_body(text) == text;
    for (size_t at = 0; spelt && at < text.size();) {
      const std::string unit = json_string_unit(text, at);
      spelt = kNameChars.contains(decode_character(unit));
      at += unit.size();
    }
    if (spelt) name.texts.push_back(text);
  }
  return sequence(literal(tag.before_name), reference(new_rule("other parameter", std::move(name))),
                  literal(tag.after_name), std::move(value), literal(tag.after_value));
}

Expression SchemaParser::parameter_value(const Json& schema, const std::string& at, const TagContent& tag) {
  try {
    if (!is_text(schema, at)) return visit(schema, at);
    return parameter_text(document_.flatten(schema, at), at, tag);
  } catch (const Error& error) {
    if (!style_.loose || over_limit_) throw;
    warnings_.push_back(error.message() + " Any text is allowed there.");
    return text_before(tag.after_value);
  }
}

Expression SchemaParser::parameter_text(const Json& flat, const std::string& at, const TagContent& tag) {
  const auto bare = [](const Json& value) {
    return literal(value.is_string() ? value.get<std::string>() : dump_json(value));
  };
  std::vector<Expression> choices;
  if (flat.is_object() && flat.contains("enum") && flat["enum"].is_array()) {
    for (const Json& choice : flat["enum"]) choices.push_back(bare(choice));
  } else if (flat.is_object() && flat.contains("const")) {
    choices.push_back(bare(flat["const"]));
  }
  if (!choices.empty()) return alternatives(std::move(choices));
  if (flat.is_object() && restricts(flat, {"type", "nullable", "anyOf", "oneOf"}))
    warn(at, "what restricts a text is not enforced in this dialect");
  return text_before(tag.after_value);
}

/// Values of the schema are written as bare text: it allows strings.
bool SchemaParser::is_text(const Json& schema, const std::string& at) const {
  const Json flat = document_.flatten(schema, at);
  if (flat == true) return true;
  if (!flat.is_object()) return false;
  if (flat.contains("type")) {
    const Json& type = flat["type"];
    return type == "string" ||
           (type.is_array() && std::find(type.begin(), type.end(), "string") != type.end());
  }
  for (const char* keyword : {"anyOf", "oneOf"}) {
    if (!flat.contains(keyword) || !flat[keyword].is_array()) continue;
    return std::any_of(flat[keyword].begin(), flat[keyword].end(),
                       [&](const Json& branch) { return !branch.contains(keyword) && is_text(branch, at); });
  }
  if (flat.contains("enum") && flat["enum"].is_array()) {
    return std::any_of(flat["enum"].begin(), flat["enum"].end(), [](const Json& v) { return v.is_string(); });
  }
  if (flat.contains("const")) return flat["const"].is_string();
  const std::vector<std::string> types = types_of(flat, at);
  return std::find(types.begin(), types.end(), "string") != types.end();
}

StructuralTags parse_structural_tag_request(std::string_view text) {
  const Json request = parse_json(text, "the structural tag", Status::InvalidArgument);
  const auto string_of = [](const Json& object, size_t at, const char* key) {
    if (!object.is_object() || !object.contains(key) || !object[key].is_string()) {
      fail_argument("The structural tag needs a string '%s' in structures[%zu].", key, at);
    }
    return object[key].get<std::string>();
  };
  if (request.is_object() && request.contains("format")) {
    fail_argument("The structural tag has a 'format', needed are the lists 'structures' and 'triggers'.");
  }
  for (const char* list : {"structures", "triggers"}) {
    if (!request.is_object() || !request.contains(list) || !request[list].is_array()) {
      fail_argument("The structural tag needs a list '%s'.", list);
    }
  }
  StructuralTags tags;
  tags.text_after = true;
  tags.several = false;  // another one needs its trigger again
  for (const Json& structure : request["structures"]) {
    StructuralTag tag;
    tag.begin = string_of(structure, tags.tags.size(), "begin");
    tag.end = string_of(structure, tags.tags.size(), "end");
    tag.content.loose = false;
    if (structure.contains("schema")) tag.content.text = dump_json(structure["schema"]);
    tags.tags.push_back(std::move(tag));
  }
  for (const Json& trigger : request["triggers"]) {
    if (!trigger.is_string()) fail_argument("The structural tag's 'triggers' are no list of strings.");
    tags.triggers.push_back(trigger.get<std::string>());
  }
  return tags;
}

Expression parse_structural_tags(const StructuralTags& tags, const TokenTrie& trie, Rules& rules,
                                 std::vector<std::string>& warnings) {
  const bool lazy = tags.mode == StructuralTags::Mode::Lazy;
  if (tags.tags.empty()) fail_argument("Structural tags need at least one tag.");
  if (tags.tags.size() > 1000)
    fail_argument("There are %zu structural tags, allowed are 1000.", tags.tags.size());
  if (lazy && tags.triggers.empty()) fail_argument("Structural tags that wait for a trigger need one.");
  if (tags.triggers.size() > 100)
    fail_argument("There are %zu triggers, allowed are 100.", tags.triggers.size());
  for (const std::string& trigger : tags.triggers) {
    if (trigger.empty() || trigger.size() > 1000) {
      fail_argument("A trigger has %zu bytes, allowed are 1 to 1000.", trigger.size());
    }
    const bool begins = std::any_of(tags.tags.begin(), tags.tags.end(), [&](const StructuralTag& tag) {
      return (tags.section_begin + tag.begin).starts_with(trigger);
    });
    if (lazy && !begins)
      fail_argument("The trigger %s is not the beginning of any tag.", quote(trigger).c_str());
  }
  std::vector<Expression> ways;
  for (const StructuralTag& tag : tags.tags) {
    if (tag.begin.empty() && lazy && tags.section_begin.empty())
      fail_argument("A structural tag has no begin text.");
    std::vector<Expression> parts;
    parts.push_back(marked(tag.begin, trie));
    if (tag.after_number) {
      parts.push_back(repeat(chars({{'0', '9'}}), 1, 9));
      parts.push_back(marked(*tag.after_number, trie));
    }
    parts.push_back(content_of(tag, trie, rules, warnings));
    parts.push_back(marked(tag.end, trie));
    ways.push_back(sequence_of(std::move(parts)));
  }
  rules.push_back({"tag", alternatives(std::move(ways))});
  const Expression tag = reference(static_cast<int>(rules.size()) - 1);
  Expression calls = sequence(marked(tags.section_begin, trie), tag);
  if (tags.several) {
    calls = sequence(std::move(calls), star(sequence(marked(tags.separator, trie), tag)));
  }
  calls = sequence(std::move(calls), marked(tags.section_end, trie));
  if (!lazy) {
    return tags.text_after ? sequence(std::move(calls), answer_text({}, trie)) : calls;
  }
  // The text before holds no trigger, so the first one in the answer is where the tags begin.
  if (!tags.text_after) return sequence(answer_text(tags.triggers, trie), optional(std::move(calls)));
  return sequence(answer_text(tags.triggers, trie),
                  star(sequence(std::move(calls), answer_text(tags.triggers, trie))));
}

}  // namespace vllm

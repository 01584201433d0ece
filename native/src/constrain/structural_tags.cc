// Tool calls as a grammar: literal begin, constrained content, literal end, with free text around.
#include <algorithm>

#include "base/error.h"
#include "constrain/front_ends.h"
#include "constrain/json_schema.h"

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
          .parse_parameters(content.before_name, content.after_name, content.after_value);
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

Expression SchemaParser::parse_parameters(const std::string& before_name, const std::string& after_name,
                                          const std::string& after_value) {
  if (trimmed(after_value).empty()) fail_argument("Parameters of a tag need a text after each value.");
  const Json schema = document_.flatten(document_.root(), "#");
  std::vector<Expression> parts;
  if (!schema.is_object()) return {};
  for (const Property& property : properties_of(schema, "#")) {
    if (*property.schema == false) continue;
    Expression value;
    if (is_text(*property.schema, property.at)) {
      std::vector<Expression> choices;
      const Json flat = document_.flatten(*property.schema, property.at);
      if (flat.is_object() && flat.contains("enum") && flat["enum"].is_array()) {
        for (const Json& choice : flat["enum"]) {
          choices.push_back(literal(choice.is_string() ? choice.get<std::string>() : dump_json(choice)));
        }
      } else if (flat.is_object() && flat.contains("const")) {
        choices.push_back(
            literal(flat["const"].is_string() ? flat["const"].get<std::string>() : dump_json(flat["const"])));
      }
      if (choices.empty()) {
        if (flat.is_object() && restricts(flat, {"type", "nullable", "anyOf", "oneOf"})) {
          warn(property.at, "what restricts a text is not enforced in this dialect");
        }
        value = free_text({std::string(trimmed(after_value))});
      } else {
        value = alternatives(std::move(choices));
      }
    } else {
      value = visit(*property.schema, property.at);
    }
    Expression part =
        sequence(literal(before_name + property.name + after_name), std::move(value), literal(after_value));
    parts.push_back(property.required ? std::move(part) : optional(std::move(part)));
  }
  return sequence_of(std::move(parts));
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

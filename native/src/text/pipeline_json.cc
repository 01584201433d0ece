#include "text/pipeline_json.h"

#include <map>

#include "base/log.h"

namespace vllm {

void PipelineReader::fail(const std::string& message) const {
  fail_load("%s: %s", source.c_str(), message.c_str());
}

std::string PipelineReader::type_of(const Json& value, const char* part) const {
  if (!value.is_object() || !value.contains("type") || !value["type"].is_string()) {
    fail(format("%s must be an object with a \"type\".", part));
  }
  return value["type"].get<std::string>();
}

const Json& PipelineReader::member(const Json& value, const char* key) const {
  if (!value.is_object() || !value.contains(key)) {
    fail(format("\"%s\" is missing in %.200s.", key, dump_json(value).c_str()));
  }
  return value[key];
}

std::string PipelineReader::text(const Json& value, const char* key) const {
  const Json& found = member(value, key);
  if (!found.is_string()) fail(format("\"%s\" must be a string in %.200s.", key, dump_json(value).c_str()));
  return found.get<std::string>();
}

bool PipelineReader::flag(const Json& value, const char* key, bool fallback) const {
  if (!value.contains(key) || value[key].is_null()) return fallback;
  if (!value[key].is_boolean())
    fail(format("\"%s\" must be true or false in %.200s.", key, dump_json(value).c_str()));
  return value[key].get<bool>();
}

const Json& PipelineReader::list(const Json& value, const char* key) const {
  const Json& found = member(value, key);
  if (!found.is_array()) fail(format("\"%s\" must be a list in %.200s.", key, dump_json(value).c_str()));
  return found;
}

void PipelineReader::read_normalizer(const Json& value, Normalizer& normalizer) {
  if (value.is_null()) return;
  const std::string type = type_of(value, "normalizer");
  static const std::map<std::string, NormalForm> kForms = {{"NFC", NormalForm::NFC},
                                                           {"NFD", NormalForm::NFD},
                                                           {"NFKC", NormalForm::NFKC},
                                                           {"NFKD", NormalForm::NFKD}};
  if (type == "Sequence") {
    for (const Json& each : list(value, "normalizers")) read_normalizer(each, normalizer);
  } else if (const auto form = kForms.find(type); form != kForms.end()) {
    normalizer.add(form->second);
  } else if (type == "Prepend") {
    normalizer.add(Normalizer::Prepend{text(value, "prepend")});
  } else if (type == "Replace") {
    const Json& pattern = member(value, "pattern");
    Normalizer::Replace replace{"", nullptr, text(value, "content")};
    if (pattern.is_object() && pattern.contains("Regex")) {
      replace.regex = std::make_shared<const Regex>(text(pattern, "Regex"));
    } else {
      replace.pattern = text(pattern, "String");
      if (replace.pattern.empty()) fail("the pattern of a Replace normalizer is empty.");
    }
    normalizer.add(std::move(replace));
  } else if (type == "Strip") {
    normalizer.add(Normalizer::Strip{flag(value, "strip_left", true), flag(value, "strip_right", true)});
  } else {
    fail(format("the normalizer %s is not supported.", dump_json(value["type"]).c_str()));
  }
}

void PipelineReader::read_pre_tokenizer(const Json& value, PreTokenizer& pre_tokenizer) {
  if (value.is_null()) return;
  const std::string type = type_of(value, "pre_tokenizer");
  if (type == "Sequence") {
    for (const Json& each : list(value, "pretokenizers")) read_pre_tokenizer(each, pre_tokenizer);
    return;
  }
  if (byte_level) fail(format("the pre-tokenizer %s behind ByteLevel is not supported.", type.c_str()));
  if (type == "ByteLevel") {
    byte_level = true;
    if (flag(value, "add_prefix_space", true)) pre_tokenizer.add(prefix_space_stage());
    if (flag(value, "use_regex", true)) pre_tokenizer.add(scanner_stage(scan_gpt2));
  } else if (type == "Split") {
    static const std::map<std::string, SplitBehavior> kBehaviors = {
        {"Isolated", SplitBehavior::Isolated},
        {"Removed", SplitBehavior::Removed},
        {"MergedWithPrevious", SplitBehavior::MergedWithPrevious},
        {"MergedWithNext", SplitBehavior::MergedWithNext},
        {"Contiguous", SplitBehavior::Contiguous}};
    const std::string name = text(value, "behavior");
    const auto behavior = kBehaviors.find(name);
    if (behavior == kBehaviors.end())
      fail(format("the split behavior %.100s is not supported.", name.c_str()));
    const bool invert = flag(value, "invert", false);
    const Json& pattern = member(value, "pattern");
    if (pattern.is_object() && pattern.contains("Regex")) {
      pre_tokenizer.add(regex_stage(text(pattern, "Regex"), behavior->second, invert));
    } else {
      std::string literal = text(pattern, "String");
      if (literal.empty()) fail("the pattern of a Split pre-tokenizer is empty.");
      pre_tokenizer.add(literal_stage(std::move(literal), behavior->second, invert));
    }
  } else if (type == "Digits") {
    pre_tokenizer.add(digits_stage(flag(value, "individual_digits", false)));
  } else if (type == "Metaspace") {
    static const std::map<std::string, PrefixScheme> kSchemes = {
        {"never", PrefixScheme::Never}, {"first", PrefixScheme::First}, {"always", PrefixScheme::Always}};
    std::string name = value.contains("prepend_scheme") ? text(value, "prepend_scheme") : "always";
    if (!flag(value, "add_prefix_space", true)) name = "never";
    const auto scheme = kSchemes.find(name);
    if (scheme == kSchemes.end()) fail(format("the prepend_scheme %.100s is not supported.", name.c_str()));
    std::string replacement = text(value, "replacement");
    if (replacement.empty()) fail("the replacement of a Metaspace pre-tokenizer is empty.");
    pre_tokenizer.add(metaspace_stage(std::move(replacement), scheme->second, flag(value, "split", true)));
  } else {
    fail(format("the pre-tokenizer %s is not supported.", dump_json(value["type"]).c_str()));
  }
}

void PipelineReader::read_decoder(const Json& value) {
  if (value.is_null()) return;
  const std::string type = type_of(value, "decoder");
  if (type == "Sequence") {
    for (const Json& each : list(value, "decoders")) read_decoder(each);
    return;
  }
  if ((type == "ByteLevel") != byte_level && type != "Fuse") {
    fail(format("the decoder %.100s does not fit a pre-tokenizer %s ByteLevel.", type.c_str(),
                byte_level ? "with" : "without"));
  }
  if (type == "ByteLevel" || type == "Fuse") return;
  if (type == "Replace") {
    const std::string pattern = text(member(value, "pattern"), "String");
    if (pattern.empty()) fail("the pattern of a Replace decoder is empty.");
    replacements.emplace_back(pattern, text(value, "content"));
  } else if (type == "ByteFallback") {
    byte_fallback_decoder = true;
  } else if (type == "Metaspace") {
    replacements.emplace_back(text(value, "replacement"), " ");
    if (replacements.back().first.empty()) fail("the replacement of a Metaspace decoder is empty.");
    const std::string scheme = value.contains("prepend_scheme") ? text(value, "prepend_scheme") : "always";
    strips_leading_space = scheme != "never" && flag(value, "add_prefix_space", true);
  } else if (type == "Strip") {
    const auto count = [&](const char* key) {
      const Json& found = member(value, key);
      if (!found.is_number_unsigned()) fail(format("\"%s\" of the Strip decoder must be a number.", key));
      return found.get<uint64_t>();
    };
    if (text(value, "content") != " " || count("start") > 1 || count("stop") > 0) {
      fail("the Strip decoder must take at most one leading space; another is not supported.");
    }
    strips_leading_space = count("start") == 1;
  } else {
    fail(format("the decoder %s is not supported.", dump_json(value["type"]).c_str()));
  }
}

void PipelineReader::read_post_processor(const Json& value) {
  if (value.is_null()) return;
  const std::string type = type_of(value, "post_processor");
  if (type == "Sequence") {
    for (const Json& each : list(value, "processors")) read_post_processor(each);
  } else if (type == "TemplateProcessing") {
    read_template(value);
  } else if (type != "ByteLevel") {
    fail(format("the post-processor %s is not supported.", dump_json(value["type"]).c_str()));
  }
}

void PipelineReader::read_template(const Json& value) {
  bool behind = false;
  for (const Json& item : list(value, "single")) {
    if (item.is_object() && item.contains("Sequence")) {
      behind = true;
      continue;
    }
    const std::string name = text(member(item, "SpecialToken"), "id");
    if (behind) {
      log_warning("%s: the token %.100s behind a text is left out: a prompt is to be continued.",
                  source.c_str(), name.c_str());
      continue;
    }
    const Json& ids = list(member(member(value, "special_tokens"), name.c_str()), "ids");
    if (bos || ids.size() != 1 || !ids[0].is_number_unsigned() || ids[0].get<uint64_t>() > INT32_MAX) {
      fail("the post-processor must put at most one token before a text.");
    }
    bos = ids[0].get<int64_t>();
  }
}

}  // namespace vllm

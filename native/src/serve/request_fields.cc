#include "serve/request_fields.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>

#include "serve/json_fields.h"

namespace vllm {
namespace {

int32_t int32_field(const char* name, const Json& value) {
  return static_cast<int32_t>(std::clamp<int64_t>(integer_field(name, value), INT32_MIN, INT32_MAX));
}

std::vector<std::pair<int32_t, float>> logit_bias_field(const Json& value) {
  if (!value.is_object()) fail_argument("logit_bias is %s, needed is an object", brief(value).c_str());
  std::vector<std::pair<int32_t, float>> out;
  for (const auto& [key, bias] : value.items()) {
    int32_t id = -1;
    const auto end = key.data() + key.size();
    if (const auto parsed = std::from_chars(key.data(), end, id);
        parsed.ec != std::errc() || parsed.ptr != end || id < 0)
      fail_argument("logit_bias has the key %s, needed is a token id", quote(key).c_str());
    out.emplace_back(id, static_cast<float>(number_field(("logit_bias of token " + key).c_str(), bias)));
  }
  return out;
}

using Setter = std::function<void(const Json&, SamplingParams&)>;

/// Request fields that go straight into SamplingParams.
const std::map<std::string, Setter, std::less<>>& sampling_fields() {
  static const std::map<std::string, Setter, std::less<>> fields = {
      {"max_tokens", [](const Json& v, SamplingParams& p) { p.max_tokens = integer_field("max_tokens", v); }},
      {"min_tokens", [](const Json& v, SamplingParams& p) { p.min_tokens = integer_field("min_tokens", v); }},
      {"temperature",
       [](const Json& v, SamplingParams& p) {
         p.temperature = static_cast<float>(number_field("temperature", v));
       }},
      {"top_p",
       [](const Json& v, SamplingParams& p) { p.top_p = static_cast<float>(number_field("top_p", v)); }},
      {"top_k", [](const Json& v, SamplingParams& p) { p.top_k = int32_field("top_k", v); }},
      {"min_p",
       [](const Json& v, SamplingParams& p) { p.min_p = static_cast<float>(number_field("min_p", v)); }},
      {"seed",
       [](const Json& v, SamplingParams& p) {
         const int64_t seed = integer_field("seed", v);
         p.seed = seed == -1 ? std::nullopt : std::optional<int64_t>(seed);
       }},
      {"presence_penalty",
       [](const Json& v, SamplingParams& p) {
         p.presence_penalty = static_cast<float>(number_field("presence_penalty", v));
       }},
      {"frequency_penalty",
       [](const Json& v, SamplingParams& p) {
         p.frequency_penalty = static_cast<float>(number_field("frequency_penalty", v));
       }},
      {"repetition_penalty",
       [](const Json& v, SamplingParams& p) {
         p.repetition_penalty = static_cast<float>(number_field("repetition_penalty", v));
       }},
      {"ignore_eos", [](const Json& v, SamplingParams& p) { p.ignore_eos = boolean_field("ignore_eos", v); }},
      {"stop", [](const Json& v, SamplingParams& p) { p.stop = strings_field("stop", v); }},
      {"stop_token_ids",
       [](const Json& v, SamplingParams& p) { p.stop_token_ids = token_ids_field("stop_token_ids", v); }},
      {"allowed_token_ids",
       [](const Json& v, SamplingParams& p) {
         p.allowed_token_ids = token_ids_field("allowed_token_ids", v);
       }},
      {"include_stop_str_in_output",
       [](const Json& v, SamplingParams& p) {
         p.include_stop = boolean_field("include_stop_str_in_output", v);
       }},
      {"skip_special_tokens",
       [](const Json& v, SamplingParams& p) { p.skip_special = boolean_field("skip_special_tokens", v); }},
      {"logit_bias", [](const Json& v, SamplingParams& p) { p.logit_bias = logit_bias_field(v); }},
  };
  return fields;
}

/// A word is kept out both as the start of a text and after a space.
void add_bad_word(const std::string& word, const Tokenizer& tokenizer, SamplingParams& params) {
  if (word.empty()) fail_argument("bad_words holds an empty string, needed are words");
  for (const std::string& form : {word, " " + word}) {
    std::vector<int32_t> ids = tokenizer.encode(form, false, false);
    if (!ids.empty()) params.bad_words.push_back(std::move(ids));
  }
}

void set_constraint(ConstraintSpec spec, std::optional<ConstraintSpec>& out) {
  if (out) fail_argument("the request has two structured constraints, needed is at most one");
  out = std::move(spec);
}

ConstraintSpec text_constraint(ConstraintSpec::Kind kind, std::string text) {
  ConstraintSpec spec;
  spec.kind = kind;
  spec.text = std::move(text);
  return spec;
}

/// A schema is an object or boolean, or its text.
std::string schema_text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : dump_json(value);
}

/// Tags of a request, given as an object or its text in the field `name`.
ConstraintSpec structural_tag(const char* name, const Json& value) {
  ConstraintSpec spec;
  spec.kind = ConstraintSpec::Kind::StructuralTags;
  try {
    spec.tags = parse_structural_tag_request(schema_text(value));
  } catch (const Error& error) {
    fail_argument("%s: %s", name, error.message().c_str());
  }
  return spec;
}

void read_structured_outputs(const Json& value, std::optional<ConstraintSpec>& spec) {
  if (!value.is_object())
    fail_argument("structured_outputs is %s, needed is an object", brief(value).c_str());
  for (const auto& [key, item] : value.items()) {
    if (item.is_null()) continue;
    const std::string name = key == "json" ? "json_schema" : key;
    if (name == "structured_outputs" || name == "response_format" || !read_constraint_field(name, item, spec))
      fail_argument(
          "structured_outputs has the key %s, known are json, json_object, regex, choice, grammar and "
          "structural_tag",
          quote(key).c_str());
  }
}

void read_response_format(const Json& value, std::optional<ConstraintSpec>& spec) {
  if (!value.is_object() || !value.contains("type"))
    fail_argument("response_format is %s, needed is an object with a type", brief(value).c_str());
  const std::string& type = string_field("response_format.type", value["type"]);
  if (type == "text") return;
  if (type == "json_object")
    return set_constraint(text_constraint(ConstraintSpec::Kind::JsonObject, ""), spec);
  if (type == "structural_tag") return set_constraint(structural_tag("response_format", value), spec);
  if (type != "json_schema")
    fail_argument("response_format.type is %s, needed is text, json_object, json_schema or structural_tag",
                  quote(type).c_str());
  const auto member = value.find("json_schema");
  if (member == value.end() || !member->is_object())
    fail_argument("response_format of type json_schema has no json_schema object");
  const auto schema = member->find("schema");
  if (schema == member->end() || schema->is_null())
    return set_constraint(text_constraint(ConstraintSpec::Kind::JsonObject, ""), spec);
  set_constraint(text_constraint(ConstraintSpec::Kind::JsonSchema, schema_text(*schema)), spec);
}

Json token_json(const Tokenizer& tokenizer, int32_t id, float logprob) {
  const std::string_view bytes = tokenizer.bytes(id);
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  Json out;
  out["id"] = id;
  out["token"] = std::string(bytes);  // dump_json replaces what is no UTF-8
  out["bytes"] = std::move(list);
  out["logprob"] = logprob;
  return out;
}

}  // namespace

bool read_sampling_field(const std::string& key, const Json& value, const Tokenizer& tokenizer,
                         GenerationRequest& request) {
  if (const auto field = sampling_fields().find(key); field != sampling_fields().end()) {
    field->second(value, request.sampling);
  } else if (key == "bad_words") {
    for (const std::string& word : strings_field("bad_words", value))
      add_bad_word(word, tokenizer, request.sampling);
  } else if (key == "priority") {
    request.priority = int32_field("priority", value);
  } else {
    return false;
  }
  return true;
}

bool read_constraint_field(const std::string& key, const Json& value, std::optional<ConstraintSpec>& spec) {
  using Kind = ConstraintSpec::Kind;
  if (key == "grammar") {
    set_constraint(text_constraint(Kind::Gbnf, string_field("grammar", value)), spec);
  } else if (key == "json_schema") {
    set_constraint(text_constraint(Kind::JsonSchema, schema_text(value)), spec);
  } else if (key == "regex") {
    set_constraint(text_constraint(Kind::Regex, string_field("regex", value)), spec);
  } else if (key == "choice") {
    ConstraintSpec choice;
    choice.kind = Kind::Choice;
    choice.choices = strings_field("choice", value);
    set_constraint(std::move(choice), spec);
  } else if (key == "json_object") {
    if (boolean_field("json_object", value)) set_constraint(text_constraint(Kind::JsonObject, ""), spec);
  } else if (key == "structural_tag") {
    set_constraint(structural_tag("structural_tag", value), spec);
  } else if (key == "structured_outputs") {
    read_structured_outputs(value, spec);
  } else if (key == "response_format") {
    read_response_format(value, spec);
  } else {
    return false;
  }
  return true;
}

Json logprobs_json(const Delta& delta, const Tokenizer& tokenizer) {
  if (delta.logprobs.empty()) return nullptr;
  Json content = Json::array();
  for (const SampledToken& token : delta.logprobs) {
    Json entry = token_json(tokenizer, token.id, token.logprob);
    Json& top = entry["top_logprobs"] = Json::array();
    for (const TokenLogprob& other : token.top) top.push_back(token_json(tokenizer, other.id, other.logprob));
    content.push_back(std::move(entry));
  }
  return Json{{"content", std::move(content)}};
}

Json stop_reason_json(const Delta& delta) {
  if (!delta.stop_string.empty()) return delta.stop_string;
  if (delta.stop_token >= 0) return delta.stop_token;
  return nullptr;
}

Json usage_json(const Delta& delta) {
  return {{"prompt_tokens", delta.prompt_tokens},
          {"completion_tokens", delta.completion_tokens},
          {"total_tokens", delta.prompt_tokens + delta.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", delta.cached_tokens}}}};
}

Json timings_json(const Delta& delta) {
  return {{"queue_ms", delta.timings.queue_ms},
          {"prompt_ms", delta.timings.prompt_ms},
          {"generation_ms", delta.timings.generation_ms}};
}

const char* finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::Stop:
      return "stop";
    case FinishReason::Length:
      return "length";
    case FinishReason::Abort:
      return "abort";
    case FinishReason::Error:
      return "error";
    case FinishReason::None:
      break;
  }
  return nullptr;
}

}  // namespace vllm

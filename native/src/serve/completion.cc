#include "serve/completion.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>
#include <optional>

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
      fail_argument("logit_bias has the key '%s', needed is a token id", key.c_str());
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
      {"logprobs",
       [](const Json& v, SamplingParams& p) {
         const int64_t count = integer_field("logprobs", v);
         if (count < 0 || count > 100) fail_argument("logprobs is %s, needed is 0 to 100", brief(v).c_str());
         p.logprobs = static_cast<int32_t>(count);
       }},
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

constexpr std::string_view kConstraints[] = {"grammar", "json_schema", "regex", "choice", "json_object"};

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

}  // namespace

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

GenerationRequest parse_completion_request(std::string_view text, const Tokenizer& tokenizer) {
  const Json request = parse_json(text, "request", Status::InvalidArgument);
  if (!request.is_object()) fail_argument("the request is %s, needed is an object", brief(request).c_str());
  if (const auto messages = request.find("messages"); messages != request.end() && !messages->is_null())
    fail_argument("messages: chat requests are not in this build, needed is a rendered prompt");
  GenerationRequest out;
  bool has_prompt = false;
  for (const auto& [key, value] : request.items()) {
    if (value.is_null()) continue;
    if (const auto field = sampling_fields().find(key); field != sampling_fields().end()) {
      field->second(value, out.sampling);
    } else if (key == "prompt") {
      has_prompt = true;
      out.prompt = value.is_string() ? tokenizer.encode(value.get_ref<const std::string&>(), true, true)
                                     : token_ids_field("prompt", value);
    } else if (key == "bad_words") {
      for (const std::string& word : strings_field("bad_words", value))
        add_bad_word(word, tokenizer, out.sampling);
    } else if (key == "priority") {
      out.priority = int32_field("priority", value);
    } else if (std::find(std::begin(kConstraints), std::end(kConstraints), key) != std::end(kConstraints)) {
      fail_argument("%s: constrained output is not in this build", key.c_str());
    } else {
      fail_argument("the request has the field '%s', which is not known", key.c_str());
    }
  }
  if (!has_prompt) fail_argument("the request has no prompt");
  return out;
}

std::string completion_chunk(const Delta& delta, const Tokenizer& tokenizer) {
  if (delta.error)
    return dump_json(
        Json{{"error",
              {{"status", static_cast<int>(delta.error->status())}, {"message", delta.error->message()}}}});
  Json choice;
  choice["index"] = 0;
  choice["text"] = delta.text;
  choice["token_ids"] = delta.token_ids;
  choice["logprobs"] = logprobs_json(delta, tokenizer);
  const char* finish = finish_reason_name(delta.finish);
  choice["finish_reason"] = finish != nullptr ? Json(finish) : Json(nullptr);
  choice["stop_reason"] = stop_reason_json(delta);
  Json chunk;
  chunk["object"] = "text_completion";
  chunk["choices"] = Json::array({std::move(choice)});
  chunk["usage"] = {{"prompt_tokens", delta.prompt_tokens},
                    {"completion_tokens", delta.completion_tokens},
                    {"total_tokens", delta.prompt_tokens + delta.completion_tokens},
                    {"prompt_tokens_details", {{"cached_tokens", delta.cached_tokens}}}};
  chunk["timings"] = {{"queue_ms", delta.timings.queue_ms},
                      {"prompt_ms", delta.timings.prompt_ms},
                      {"generation_ms", delta.timings.generation_ms}};
  return dump_json(chunk);
}

}  // namespace vllm

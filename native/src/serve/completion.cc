#include "serve/completion.h"

#include "serve/json_fields.h"
#include "serve/request_fields.h"

namespace vllm {

GenerationRequest parse_completion_request(const Json& request, Engine& engine) {
  GenerationRequest out;
  std::optional<ConstraintSpec> constraint;
  bool has_prompt = false;
  for (const auto& [key, value] : request.items()) {
    if (value.is_null()) continue;
    if (key == "prompt") {
      has_prompt = true;
      out.prompt = value.is_string() ? engine.encode_prompt(value.get_ref<const std::string&>())
                                     : token_ids_field("prompt", value);
    } else if (key == "logprobs") {
      const int64_t count = integer_field("logprobs", value);
      if (count < 0 || count > 100) fail_argument("logprobs is %s, needed is 0 to 100", brief(value).c_str());
      out.sampling.logprobs = static_cast<int32_t>(count);
    } else if (!read_sampling_field(key, value, engine.tokenizer(), out) &&
               !read_constraint_field(key, value, constraint)) {
      fail_argument("the request has the field %s, which is not known", quote(key).c_str());
    }
  }
  if (!has_prompt) fail_argument("the request has neither prompt nor messages");
  if (constraint) out.constraint = engine.constraints().make(*constraint);
  return out;
}

Json completion_chunk(const Delta& delta, const Tokenizer& tokenizer) {
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
  chunk["usage"] = usage_json(delta);
  chunk["timings"] = timings_json(delta);
  return chunk;
}

}  // namespace vllm

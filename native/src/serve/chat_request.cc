#include "serve/chat_request.h"

#include <algorithm>
#include <set>

#include "base/log.h"
#include "serve/json_fields.h"

namespace vllm {
namespace {

ToolChoice read_tool_choice(const Json& value) {
  if (value.is_string()) {
    const std::string& word = value.get_ref<const std::string&>();
    if (word == "none") return {ToolChoice::Kind::None, {}};
    if (word == "auto") return {ToolChoice::Kind::Auto, {}};
    if (word == "required") return {ToolChoice::Kind::Required, {}};
  } else if (value.is_object()) {
    // The older form has the name beside the type.
    const auto function = value.find("function");
    const Json& named = function != value.end() && function->is_object() ? *function : value;
    const auto name = named.find("name");
    if (name != named.end() && name->is_string() && !name->get_ref<const std::string&>().empty())
      return {ToolChoice::Kind::Named, name->get<std::string>()};
  }
  fail_argument(
      "tool_choice is %s, needed is none, auto, required or {\"type\": \"function\", \"function\": "
      "{\"name\"}}",
      brief(value).c_str());
}

/// The names of the tools, checked; a list without tools counts as none.
std::set<std::string> check_tools(const Json& tools) {
  if (!tools.is_array()) fail_argument("tools is %s, needed is an array", brief(tools).c_str());
  std::set<std::string> names;
  for (size_t i = 0; i < tools.size(); ++i) {
    const Json& tool = tools[i];
    const std::string place = format("tools[%zu]", i);
    if (!tool.is_object()) fail_argument("%s is %s, needed is an object", place.c_str(), brief(tool).c_str());
    if (tool.contains("type") && tool["type"] != "function")
      fail_argument("%s.type is %s, needed is function", place.c_str(), brief(tool["type"]).c_str());
    const auto function = tool.find("function");
    if (function == tool.end() || !function->is_object()) fail_argument("%s has no function", place.c_str());
    const auto name = function->find("name");
    if (name == function->end() || !name->is_string() || name->get_ref<const std::string&>().empty())
      fail_argument("%s.function has no name", place.c_str());
    if (function->contains("parameters") && !(*function)["parameters"].is_object() &&
        !(*function)["parameters"].is_null())
      fail_argument("%s.function.parameters is %s, needed is an object", place.c_str(),
                    brief((*function)["parameters"]).c_str());
    names.insert(name->get<std::string>());
  }
  return names;
}

/// Variables for the template, less those that the request itself decides about.
void read_template_kwargs(const Json& value, PromptInput& prompt) {
  if (!value.is_object())
    fail_argument("chat_template_kwargs is %s, needed is an object", brief(value).c_str());
  for (const auto& [name, item] : value.items()) {
    if (name == "messages" || name == "tools" || name == "chat_template" || name == "tokenize")
      fail_argument("chat_template_kwargs must not hold %s", name.c_str());
    if (name == "add_generation_prompt" || name == "continue_final_message" || name == "documents") continue;
    prompt.variables[name] = item;
  }
}

void read_stream_options(const Json& value, bool stream, ChatRequest& out) {
  if (!value.is_object()) fail_argument("stream_options is %s, needed is an object", brief(value).c_str());
  if (!stream && !value.empty()) fail_argument("stream_options is given and stream is not true");
  for (const auto& [name, item] : value.items()) {
    if (name == "include_usage") out.include_usage = !item.is_null() && boolean_field("include_usage", item);
    if (name == "continuous_usage_stats")
      out.continuous_usage = !item.is_null() && boolean_field("continuous_usage_stats", item);
  }
}

/// Fields that ask for something this engine does not do.
void refuse_unserved(const Json& request) {
  const auto is = [&](const char* name) {
    const auto it = request.find(name);
    return it == request.end() || it->is_null() ? nullptr : &*it;
  };
  if (const Json* n = is("n"); n != nullptr && integer_field("n", *n) != 1)
    fail_argument("n is %s, needed is 1", brief(*n).c_str());
  if (const Json* n = is("best_of"); n != nullptr && integer_field("best_of", *n) != 1)
    fail_argument("best_of is %s, needed is 1", brief(*n).c_str());
  if (const Json* b = is("use_beam_search"); b != nullptr && boolean_field("use_beam_search", *b))
    fail_argument("use_beam_search is not served");
  if (const Json* e = is("echo"); e != nullptr && boolean_field("echo", *e))
    fail_argument("echo is not served");
  if (is("chat_template") != nullptr) fail_argument("chat_template: templates in a request are not taken");
  if (is("prompt_logprobs") != nullptr) fail_argument("prompt_logprobs is not served");
}

/// Known and without effect here.
constexpr const char* kInert[] = {"model",
                                  "stream",
                                  "user",
                                  "request_id",
                                  "store",
                                  "metadata",
                                  "service_tier",
                                  "n",
                                  "best_of",
                                  "use_beam_search",
                                  "length_penalty",
                                  "stream_interval",
                                  "cache_salt",
                                  "spaces_between_special_tokens",
                                  "add_special_tokens",
                                  "echo",
                                  "chat_template",
                                  "prompt_logprobs",
                                  "max_completion_tokens",
                                  "logprobs",
                                  "top_logprobs"};

}  // namespace

ChatRequest parse_chat_request(const Json& request, bool strict, const Tokenizer& tokenizer) {
  ChatRequest out;
  const auto get = [&](const char* name) -> const Json* {
    const auto it = request.find(name);
    return it == request.end() || it->is_null() ? nullptr : &*it;
  };
  refuse_unserved(request);
  const bool stream = get("stream") != nullptr && boolean_field("stream", *get("stream"));
  std::set<std::string> names;
  const Json* choice = nullptr;
  for (const auto& [key, value] : request.items()) {
    if (value.is_null()) continue;
    if (read_sampling_field(key, value, tokenizer, out.generation) ||
        read_constraint_field(key, value, out.constraint))
      continue;
    if (key == "messages") {
      out.prompt.messages = value;
    } else if (key == "tools") {
      names = check_tools(value);
      if (!names.empty()) out.tools = value;
    } else if (key == "tool_choice") {
      choice = &value;
    } else if (key == "parallel_tool_calls") {
      out.parallel_tool_calls = boolean_field("parallel_tool_calls", value);
    } else if (key == "chat_template_kwargs") {
      read_template_kwargs(value, out.prompt);
    } else if (key == "documents") {
      if (!value.is_array()) fail_argument("documents is %s, needed is an array", brief(value).c_str());
      if (!value.empty()) out.prompt.documents = value;
    } else if (key == "add_generation_prompt") {
      out.prompt.add_generation_prompt = boolean_field("add_generation_prompt", value);
    } else if (key == "continue_final_message") {
      out.prompt.continue_final_message = boolean_field("continue_final_message", value);
    } else if (key == "reasoning_effort") {
      out.prompt.variables["reasoning_effort"] = string_field("reasoning_effort", value);
    } else if (key == "thinking_budget") {
      out.thinking_budget = integer_field("thinking_budget", value);
      if (out.thinking_budget < 0)
        fail_argument("thinking_budget is %s, needed is an integer of at least 0", brief(value).c_str());
    } else if (key == "include_reasoning") {
      out.include_reasoning = boolean_field("include_reasoning", value);
    } else if (key == "stream_options") {
      read_stream_options(value, stream, out);
    } else if (strict && std::none_of(std::begin(kInert), std::end(kInert),
                                      [&](const char* inert) { return key == inert; })) {
      fail_argument("the request has the field %s, which is not known", quote(key).c_str());
    }
  }
  if (out.prompt.messages.is_null()) fail_argument("the request has no messages");
  if (const Json* limit = get("max_completion_tokens"))
    out.generation.sampling.max_tokens = integer_field("max_completion_tokens", *limit);
  if (const Json* name = get("model")) out.model = string_field("model", *name);
  if (const Json* wanted = get("logprobs"); wanted != nullptr && boolean_field("logprobs", *wanted)) {
    const Json* top = get("top_logprobs");
    const int64_t count = top != nullptr ? integer_field("top_logprobs", *top) : 0;
    if (count < 0 || count > 100)
      fail_argument("top_logprobs is %s, needed is 0 to 100", brief(*top).c_str());
    out.generation.sampling.logprobs = static_cast<int32_t>(count);
  } else if (const Json* top = get("top_logprobs");
             top != nullptr && integer_field("top_logprobs", *top) != 0) {
    fail_argument("top_logprobs is given and logprobs is not true");
  }
  if (out.prompt.continue_final_message && out.prompt.add_generation_prompt) {
    if (get("add_generation_prompt") != nullptr)
      fail_argument("continue_final_message and add_generation_prompt are both true");
    out.prompt.add_generation_prompt = false;
  }
  if (const auto effort = out.prompt.variables.find("reasoning_effort");
      effort != out.prompt.variables.end() && !out.prompt.variables.contains("enable_thinking"))
    out.prompt.variables["enable_thinking"] = *effort != "none";

  if (choice != nullptr) out.tool_choice = read_tool_choice(*choice);
  const bool forced =
      out.tool_choice.kind == ToolChoice::Kind::Required || out.tool_choice.kind == ToolChoice::Kind::Named;
  if (forced && out.tools.is_null())
    fail_argument("tool_choice asks for a call and the request has no tools");
  if (out.tool_choice.kind == ToolChoice::Kind::Named && names.count(out.tool_choice.name) == 0)
    fail_argument("tool_choice names %s, which is not among the tools", quote(out.tool_choice.name).c_str());
  if (forced && out.constraint)
    fail_argument("tool_choice asks for a call and the answer has a structured constraint");
  if (out.calls_possible()) out.prompt.tools = out.tools;
  return out;
}

}  // namespace vllm

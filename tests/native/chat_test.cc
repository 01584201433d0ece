// Chat through the ABI on a tiny model with templates made for the purpose: prompts, thoughts, calls,
// constraints.
#include "serve/chat.h"

#include "base/json.h"
#include "chat_model.h"
#include "engine/thinking.h"

using chat_model::ask;
using chat_model::has;
using chat_model::kPlain;
using chat_model::Model;
using chat_model::request;
using chat_model::weather_tools;
using vllm::Json;

namespace {

/// Shows what it got by raising it.
const char* const kTell =
    "{{ raise_exception((messages | tojson) ~ '|' ~ (tools | tojson) ~ '|' ~ (enable_thinking is defined) ~ "
    "'|' ~ (enable_thinking | default('unset'))) }}";

}  // namespace

TEST_CASE("RPC-08 a stream joins to the unary answer: content, counts and finish reason") {
  Model model(kPlain);
  for (double temperature : {0.0, 1.0}) {
    Json r = request(40, temperature);
    const Json whole = model.chat(r);
    CHECK(whole["object"] == "chat.completion");
    r["stream_options"] = {{"include_usage", true}};
    r["stream"] = true;
    const std::vector<Json> chunks = model.stream(r);
    REQUIRE(chunks.size() >= 3);
    CHECK(chunks.front()["choices"][0]["delta"] == Json({{"role", "assistant"}, {"content", ""}}));
    CHECK(chunks.back()["choices"].empty());
    CHECK(chunks.back()["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]);
    std::string content;
    for (const Json& chunk : chunks) {
      CHECK(chunk["object"] == "chat.completion.chunk");
      CHECK(chunk["id"] == chunks.front()["id"]);
      if (!chunk["choices"].empty()) content += chunk["choices"][0]["delta"].value("content", "");
    }
    CHECK(content == whole["choices"][0]["message"]["content"].get<std::string>());
    CHECK(chunks[chunks.size() - 2]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]);
  }
  CHECK(model.free_blocks() == 64);
}

TEST_CASE("TPL-03 TPL-05 TPL-07 what the template gets") {
  Model model(kTell);
  Json r = request(4);
  CHECK(has(model.refused(r), R"([{"role": "user", "content": "Hi"}]|null|False|unset)"));
  r["chat_template_kwargs"] = {{"enable_thinking", false}};
  CHECK(has(model.refused(r), "|True|False"));
  r.erase("chat_template_kwargs");
  r["chat_template_kwargs"] = {{"reasoning_effort", "none"}};
  CHECK(has(model.refused(r), "|True|False"));
  r.erase("chat_template_kwargs");
  r["reasoning_effort"] = "none";
  CHECK(has(model.refused(r), "|True|False"));
  r["reasoning_effort"] = "high";
  CHECK(has(model.refused(r), "|True|True"));

  const auto assistant = [&](const Json& arguments) {
    Json call = {{"id", "c1"}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", arguments}}}};
    return Json{{"role", "assistant"},
                {"content", nullptr},
                {"tool_calls", Json::array({call})},
                {"reasoning_content", "t"}};
  };
  const auto told = [&](const Json& message) {
    Json q = request(4);
    q["messages"].push_back(message);
    return model.refused(q);
  };
  CHECK(has(told(assistant("{\"b\": 1, \"a\": \"\\u00e9\"}")), R"("arguments": {"b": 1, "a": "é"})"));
  CHECK(has(told(assistant("")), R"("arguments": {})"));
  CHECK(has(told(assistant(nullptr)), R"("arguments": {})"));
  CHECK(has(told(assistant("not json")), R"("arguments": "not json")"));
  CHECK(has(told(assistant("{}")), R"("reasoning": "t", "reasoning_content": "t")"));
  CHECK(has(told({{"role", "tool"}, {"tool_call_id", "c1"}, {"name", "f"}, {"content", "12"}}),
            R"("tool_call_id": "c1", "name": "f")"));
  CHECK(has(
      told({{"role", "user"},
            {"content", Json::parse(R"([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])")}}),
      R"("content": "a\nb")"));
  CHECK(has(told({{"role", "developer"}, {"content", "rules"}}),
            R"([{"role": "system", "content": "rules"}, {"role": "user")"));
}

TEST_CASE("TOOL-09 TOOL-11 choices and tools that cannot be served are refused by name") {
  Model model(kPlain);
  const auto with = [](const char* key, const Json& value) {
    Json r = request(4);
    r[key] = value;
    return r;
  };
  CHECK(has(model.refused(with("messages", Json::array())), "messages is empty"));
  CHECK(has(model.refused(with("messages", "hi")), "messages"));
  CHECK(has(model.refused(with("messages", Json::parse(R"([{"content": "x"}])"))), "role"));
  CHECK(has(model.refused(
                with("messages", Json::parse(R"([{"role": "user", "content": [{"type": "image_url"}]}])"))),
            "image_url"));
  CHECK(has(model.refused(with("tools", "x")), "tools"));
  CHECK(has(model.refused(with("tools", Json::parse(R"([{"type": "function", "function": {}}])"))), "name"));
  CHECK(has(model.refused(with("tool_choice", "required")), "no tools"));
  CHECK(has(model.refused(with("tool_choice", "maybe")), "maybe"));
  CHECK(has(model.refused(with("thinking_budget", -1)), "thinking_budget"));
  CHECK(has(model.refused(with("chat_template_kwargs", Json::array())), "chat_template_kwargs"));
  CHECK(has(model.refused(with("chat_template_kwargs", {{"messages", 1}})), "messages"));
  CHECK(has(model.refused(with("stream_options", {{"include_usage", true}})), "stream"));
  CHECK(has(model.refused(with("n", 2)), "n is 2"));
  CHECK(has(model.refused(with("echo", true)), "echo"));
  CHECK(has(model.refused(with("response_format", {{"type", "json_schema"}})), "json_schema"));
  CHECK(has(model.refused(with("response_format", "json_object")), "response_format"));
  CHECK(has(model.refused(with("response_format", {{"type", "xml"}})), "xml"));
  Json named = with("tools", weather_tools());
  named["tool_choice"] = Json::parse(R"({"type": "function", "function": {"name": "fly"}})");
  CHECK(has(model.refused(named), "fly"));
  Json both = with("response_format", {{"type", "json_object"}});
  both["structured_outputs"] = {{"regex", "a"}};
  CHECK(has(model.refused(both), "two structured constraints"));
  CHECK(model.chat(with("tools", Json::array()))["choices"][0]["finish_reason"].is_string());
  CHECK(model.free_blocks() == 64);
}

TEST_CASE("GRAM-03 GRAM-09 constraints hold over seeds, in both forms of request") {
  Model model(kPlain);
  const Json schema =
      Json::parse(R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 6},
    "age": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["name", "age"]})");
  for (int seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    Json r = request(200, 1.0, seed);
    r["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"name", "p"}, {"schema", schema}}}};
    const Json choice = model.chat(r)["choices"][0];
    REQUIRE(choice["finish_reason"] == "stop");
    const Json value =
        vllm::parse_json(choice["message"]["content"].get<std::string>(), "answer", vllm::Status::Unknown);
    CHECK(value.size() == 2);
    CHECK(value["name"].is_string());
    CHECK(value["age"].get<int>() <= 99);
    r = request(20, 1.0, seed);
    r["structured_outputs"] = {{"choice", {"red", "green", "blue"}}};
    const std::string color = model.chat(r)["choices"][0]["message"]["content"].get<std::string>();
    CHECK((color == "red" || color == "green" || color == "blue"));

    vllm_sampling_params p = vllm_sampling_params_default();
    p.max_tokens = 30;
    p.seed = static_cast<uint64_t>(seed);
    p.has_seed = 1;
    p.structured_regex = "[0-9]{4}-[0-9]{2}";
    vllm_completion out;
    REQUIRE(vllm_complete(model.engine, "A month:", &p, &out) == VLLM_OK);
    CHECK(std::string(out.text).size() == 7);
    CHECK(out.text[4] == '-');
    vllm_completion_free(&out);
    p.structured_regex = nullptr;
    p.structured_grammar = "root ::= \"yes\" | \"no\"";
    REQUIRE(vllm_complete(model.engine, "Well?", &p, &out) == VLLM_OK);
    CHECK((std::string(out.text) == "yes" || std::string(out.text) == "no"));
    vllm_completion_free(&out);
  }
  Json bad = request(10);
  bad["response_format"] = {{"type", "json_schema"},
                            {"json_schema", {{"schema", {{"not", Json::object()}}}}}};
  CHECK(has(model.refused(bad), "/not"));
  bad = request(10);
  bad["structured_outputs"] = {{"grammar", "root ::= missing"}};
  CHECK(has(model.refused(bad), "missing"));
}

TEST_CASE("TOOL-04 TOOL-06 TOOL-09 a required or named call arrives as a call, streamed and whole") {
  for (const char* dialect : {"hermes", "qwen3_coder", "pythonic", "mistral", "glm45"}) {
    CAPTURE(dialect);
    Model model(kPlain, dialect);
    int complete = 0;
    for (int seed = 0; seed < 4; ++seed) {
      CAPTURE(seed);
      for (const bool named : {false, true}) {
        CAPTURE(named);
        Json r = request(400, 1.0, seed);
        r["tools"] = weather_tools();
        r["parallel_tool_calls"] = false;
        r["tool_choice"] = named ? Json::parse(R"({"type": "function", "function": {"name": "get_weather"}})")
                                 : Json("required");
        const Json choice = model.chat(r)["choices"][0];
        if (choice["finish_reason"] == "length") continue;  // noise can be long
        REQUIRE_MESSAGE(choice["message"].contains("tool_calls"),
                        choice.dump(-1, ' ', false, Json::error_handler_t::replace));
        const Json& calls = choice["message"]["tool_calls"];
        ++complete;
        CHECK(calls.size() == 1);
        CHECK(choice["message"]["content"].is_null());
        CHECK(choice["finish_reason"] == (named ? "stop" : "tool_calls"));
        const Json& function = calls[0]["function"];
        if (named) CHECK(function["name"] == "get_weather");
        const Json arguments =
            vllm::parse_json(function["arguments"].get<std::string>(), "arguments", vllm::Status::Unknown);
        CHECK(arguments.is_object());
        if (function["name"] == "get_weather") {
          CHECK(arguments["city"].is_string());
          CHECK(arguments["days"].get<int>() >= 1);
        }
        std::string joined, name;
        for (const Json& chunk : model.stream(r)) {
          const Json& delta = chunk["choices"][0]["delta"];
          CHECK_FALSE((delta.contains("content") && delta.contains("tool_calls")));
          if (!delta.contains("tool_calls")) continue;
          name += delta["tool_calls"][0]["function"].value("name", "");
          joined += delta["tool_calls"][0]["function"].value("arguments", "");
        }
        CHECK(name == function["name"].get<std::string>());
        CHECK(joined == function["arguments"].get<std::string>());
      }
    }
    CHECK(complete >= 3);
    Json none = request(30, 1.0);
    none["tools"] = weather_tools();
    none["tool_choice"] = "none";
    CHECK_FALSE(model.chat(none)["choices"][0]["message"].contains("tool_calls"));
  }
}

TEST_CASE(
    "REAS-01 REAS-05 a thought that the prompt opens is split off, and the constraint waits for its end") {
  Model model(std::string(kPlain) + "<think>", nullptr, "deepseek_r1");
  Json r = request(400, 1.0, 3);
  r["thinking_budget"] = 8;
  r["response_format"] = {
      {"type", "json_schema"},
      {"json_schema",
       {{"schema",
         Json::parse(
             R"({"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["a"]})")}}}};
  const Json choice = model.chat(r)["choices"][0];
  CHECK(choice["message"].contains("reasoning"));
  const Json value =
      vllm::parse_json(choice["message"]["content"].get<std::string>(), "answer", vllm::Status::Unknown);
  CHECK(value["a"].get<int>() <= 9);
  CHECK_FALSE(has(choice["message"]["content"].get<std::string>(), "think"));

  std::string reasoning, content;
  for (const Json& chunk : model.stream(r)) {
    reasoning += chunk["choices"][0]["delta"].value("reasoning", "");
    content += chunk["choices"][0]["delta"].value("content", "");
  }
  CHECK(reasoning == choice["message"]["reasoning"].get<std::string>());
  CHECK(content == choice["message"]["content"].get<std::string>());

  r["thinking_budget"] = 0;
  const Json at_once = model.chat(r)["choices"][0]["message"];
  CHECK_FALSE(at_once.contains("reasoning"));
  CHECK(
      vllm::parse_json(at_once["content"].get<std::string>(), "answer", vllm::Status::Unknown).contains("a"));
}

TEST_CASE("REAS-05 a model may open the thought itself in front of a constrained answer") {
  const std::string chat_template = std::string(kPlain) + "{# <think> #}";
  Model off(chat_template), on(chat_template, nullptr, nullptr, true);
  char* out = nullptr;
  REQUIRE(vllm_ext_query(off.engine, R"({"query": "tokenize", "text": "<think>", "add_special": false})",
                         &out) == VLLM_OK);
  const Json start = vllm::parse_json(out, "answer", vllm::Status::Unknown)["tokens"];
  vllm_string_free(out);
  REQUIRE(start.size() > 1);  // a marker of several tokens
  const std::string first = std::to_string(start[0].get<int>());
  Json r = request(60);
  r["structured_outputs"] = {{"choice", {"yes, of course", "yes, I think"}}};
  r["thinking_budget"] = 3;
  for (Model* model : {&off, &on}) {
    r["logit_bias"] = {{first, -100}};
    const Json plain = model->chat(r)["choices"][0]["message"];
    CHECK_FALSE(plain.contains("reasoning"));
    r["logit_bias"] = {{first, 100}};
    const Json answer = model->chat(r), message = answer["choices"][0]["message"];
    CHECK(message["reasoning"] == "<<<");
    CHECK(message["content"].get<std::string>().starts_with("yes, "));
    CHECK(answer["choices"][0]["finish_reason"] == "stop");
  }
}

TEST_CASE("GRAM-09 an answer with a constraint cannot end inside its thought") {
  Model model(std::string(kPlain) + "<think>", nullptr, "deepseek_r1");
  Json r = request(60, 1.0);
  r["logit_bias"] = {{"1", 100}};  // the end token of this model
  CHECK(model.chat(r)["usage"]["completion_tokens"] == 1);
  r["structured_outputs"] = {{"choice", {"yes", "no"}}};
  r["thinking_budget"] = 5;
  const Json choice = model.chat(r)["choices"][0];
  const std::string content = choice["message"]["content"].get<std::string>();
  CHECK((content == "yes" || content == "no"));
}

/// A request whose answer is one of two words behind a thought of a few tokens.
Json thoughtful(int budget) {
  Json r = request(80, 1.0, 3);
  r["structured_outputs"] = {{"choice", {"yes", "no"}}};
  r["thinking_budget"] = budget;
  return r;
}

TEST_CASE("REAS-05 a budget closes a thought as it was opened, and the constraint begins there") {
  const struct {
    const char* dialect;
    const char* prompt;
  } rows[] = {
      {"mistral", "[THINK]"},
      {"mistral", "<think>\n"},
      {"granite", "Here is my thought process:"},
      {"granite", "Here's my thought process:"},
      {"muse_glimmer", "<|start|>assistant to=self<|message|>"},
      {"deepseek_r1", "<think>\n"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.dialect);
    CAPTURE(row.prompt);
    Model model(std::string(kPlain) + row.prompt, nullptr, row.dialect);
    const chat_model::Answer answer = chat_model::both_ways(model, thoughtful(6));
    CHECK((answer.content == "yes" || answer.content == "no"));
    CHECK(answer.finish == "stop");
    CHECK_FALSE(answer.reasoning.empty());
    CHECK_FALSE(has(answer.reasoning, "ere is my resp"));
    const chat_model::Answer at_once = chat_model::both_ways(model, thoughtful(0));
    CHECK((at_once.content == "yes" || at_once.content == "no"));
    CHECK(at_once.reasoning.empty());
  }
}

TEST_CASE("REAS-03 a prompt may open a message to the model itself") {
  const auto parts = [](const char* prompt, const std::string& text) {
    std::string first;
    for (size_t step = 1; step <= text.size(); ++step) {
      const auto parser =
          vllm::make_reasoning_parser(vllm::find_reasoning_dialect("muse_glimmer"), {prompt}, nullptr);
      std::string reasoning, content;
      const auto take = [&](const vllm::ReasoningDelta& delta) {
        reasoning += delta.reasoning;
        content += delta.content;
      };
      for (size_t at = 0; at < text.size(); at += step)
        take(parser->feed(std::string_view(text).substr(at, step)));
      take(parser->finish(false));
      if (step == 1) first = reasoning + "|" + content;
      CHECK(reasoning + "|" + content == first);
    }
    return first;
  };
  const char* const open = "<|start|>user<|message|>Hi<|eom|><|start|>assistant to=self<|message|>";
  const char* const plain = "<|start|>user<|message|>Hi<|eom|><|start|>assistant";
  CHECK(parts(open, "to be<|eom|><|start|>assistant to=user<|message|>yes<|eot|>") == "to be|yes");
  CHECK(parts(open, "to=self<|message|>a<|eom|>yes") == "a|yes");
  CHECK(parts(open, "a<|start|>yes") == "a|yes");
  CHECK(parts(open, "a") == "a|");
  CHECK(parts(plain, " to=self<|message|>a<|eom|>yes") == "a|yes");
  CHECK(parts(plain, "a<|eom|>") == "|a");
  CHECK(vllm::make_reasoning_parser(vllm::find_reasoning_dialect("muse_glimmer"), {plain}, nullptr)
            ->undecided());
}

TEST_CASE("REAS-05 a dialect with its thoughts in the content holds constraints back as well") {
  Model model(std::string(kPlain) + "<think>\n", nullptr, "minimax_m2_append_think");
  const chat_model::Answer answer = chat_model::both_ways(model, thoughtful(6));
  CHECK(answer.content.starts_with("<think>"));
  CHECK((answer.content.ends_with("</think>yes") || answer.content.ends_with("</think>no")));
  CHECK(answer.content.size() > std::string("<think></think>yes").size());
  CHECK(answer.finish == "stop");
  CHECK(answer.reasoning.empty());
}

/// One tool of the test below.
Json tools_with(const Json& parameters, bool strict = true) {
  Json function = {{"name", "f"}, {"strict", strict}};
  if (!parameters.is_null()) function["parameters"] = parameters;
  return Json::array({{{"type", "function"}, {"function", function}}});
}

TEST_CASE("GRAM-09 TOOL-04 dialects of tags pass arguments that a schema leaves open") {
  for (const char* dialect : {"qwen3_coder", "seed_oss", "glm45", "glm47", "minimax_m2"}) {
    CAPTURE(dialect);
    Model model(kPlain, dialect);
    Json r = request(150, 1.0);
    r["tool_choice"] = "required";
    r["parallel_tool_calls"] = false;
    // Names are the model's own, values one of two.
    r["tools"] = tools_with({{"type", "object"}, {"additionalProperties", {{"enum", {"left", "right"}}}}});
    r["logit_bias"] = model.favour(">", 60);
    r["logit_bias"].update(model.favour("<", 50));
    r["logit_bias"].update(model.favour("\"", 50));
    r["logit_bias"].update(model.favour("/", -20));  // rather another argument than the end
    bool any = false;
    for (int seed = 0; seed < 12 && !any; ++seed) {
      r["seed"] = seed;
      const chat_model::Answer answer = chat_model::both_ways(model, r);
      REQUIRE(answer.calls.size() == 1);
      // A call that is cut lacks its brace only.
      const Json arguments =
          chat_model::parsed(answer.calls[0].second + (answer.finish == "length" ? "}" : ""));
      for (const auto& [key, value] : arguments.items()) {
        any = true;
        CHECK_FALSE(key.empty());
        CHECK((value == "left" || value == "right"));
      }
    }
    CHECK(any);
    // Without a slash neither an empty call nor a value can end: the answer is cut inside an argument.
    r["logit_bias"] = model.favour("/", -100);
    r["max_tokens"] = 80;
    for (const Json& tools :
         {tools_with(nullptr), tools_with({{"type", "object"}, {"additionalProperties", true}}),
          tools_with(Json::parse(R"({"properties": {"city": {"type": "integer"}}, "required": ["city"]})"),
                     false)}) {
      r["tools"] = tools;
      const chat_model::Answer answer = chat_model::both_ways(model, r);
      CHECK(answer.finish == "length");
      REQUIRE(answer.calls.size() == 1);
      CHECK(answer.calls[0] == std::pair<std::string, std::string>("f", "{"));
    }
  }
}

TEST_CASE("TOOL-05 a call that is cut does not look complete, however it arrives") {
  const struct {
    const char* dialect;
    std::string text, arguments;
  } rows[] = {
      {"qwen3_coder", "<tool_call>\n<function=f>\n", "{"},
      {"qwen3_coder", "<tool_call>\n<function=f>\n<parameter=a>\nRo", "{"},
      {"qwen3_coder", "<tool_call>\n<function=f>\n<parameter=a>\nRome\n</parameter>\n", "{\"a\": \"Rome\""},
      {"qwen3_coder", "<tool_call>\n<function=f>\n<parameter=a>\nRome\n</parameter>\n</function>",
       "{\"a\": \"Rome\"}"},
      {"seed_oss", "<seed:tool_call><function=f><parameter=a>Ro", "{"},
      {"minimax_m2", "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">Ro", "{"},
      {"glm45", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>b", "{\"a\": \"1\""},
      {"glm45", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>Ro", "{"},
      {"glm45", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
       "{\"a\": \"1\"}"},
      {"deepseek_v32",
       "<｜DSML｜function_calls><｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"arguments\">{\"a\": 1}"
       "</｜DSML｜parameter>",
       "{\"a\": 1"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.dialect);
    CAPTURE(row.text);
    for (const size_t step : {row.text.size(), size_t{1}, size_t{7}}) {
      const auto parser = vllm::make_tool_parser(vllm::find_tool_dialect(row.dialect), nullptr);
      std::string arguments;
      const auto take = [&](const vllm::ToolDelta& delta) {
        for (const auto& call : delta.calls) arguments += call.arguments;
      };
      for (size_t at = 0; at < row.text.size(); at += step)
        take(parser->feed(std::string_view(row.text).substr(at, step)));
      take(parser->finish(true));
      CHECK(arguments == row.arguments);
    }
    const auto stopped = vllm::make_tool_parser(vllm::find_tool_dialect(row.dialect), nullptr);
    stopped->feed(row.text);
    const vllm::ToolDelta rest = stopped->finish();
    CHECK((rest.calls.empty() || rest.calls.back().arguments.ends_with("}")));
  }
}

TEST_CASE("TPL-04 GRAM-09 a cause gives one warning") {
  const std::string loading = chat_model::logged([] { Model model("{{ raise_exception('no, never') }}"); });
  CHECK(chat_model::count_of(loading, "no, never") == 1);
  CHECK(has(loading, "a plain conversation, tools, a tool's answer"));
  Model model(kPlain, "qwen3_coder");
  Json r = request(4);
  r["tools"] = weather_tools();
  const auto ask_once = [&] { model.chat(r); };
  const std::string what = "what restricts a text is not enforced";
  CHECK(chat_model::count_of(chat_model::logged(ask_once), what) == 1);
  CHECK(chat_model::count_of(chat_model::logged(ask_once), what) == 0);
  r["tool_choice"] = "required";
  CHECK(chat_model::count_of(chat_model::logged(ask_once), what) == 1);
}

TEST_CASE("a model without tool parser shows tools and leaves calls in the text") {
  Model model(kPlain, "none");
  Json r = request(10, 1.0);
  r["tools"] = weather_tools();
  CHECK_FALSE(model.chat(r)["choices"][0]["message"].contains("tool_calls"));
  r["tool_choice"] = "required";
  CHECK(has(model.refused(r), "tool_parser is none"));
}

TEST_CASE("jump-forward gives the same bytes, greedily and with a seed") {
  Model off(kPlain), on(kPlain, nullptr, nullptr, true);
  const Json schema = Json::parse(
      R"({"type": "object", "properties": {"a_rather_long_name": {"enum": ["first value", "second"]},
    "b": {"type": "boolean"}}, "required": ["a_rather_long_name", "b"]})");
  for (int seed = 0; seed < 6; ++seed) {
    Json r = request(200, seed == 0 ? 0.0 : 1.0, seed);
    r["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"schema", schema}}}};
    const Json a = off.chat(r), b = on.chat(r);
    CHECK(a["choices"][0]["message"] == b["choices"][0]["message"]);
    CHECK(a["usage"]["completion_tokens"] == b["usage"]["completion_tokens"]);
  }
  const Json without = off.query({{"query", "metrics"}}), with = on.query({{"query", "metrics"}});
  CHECK(without["forced_tokens"] == 0);
  CHECK(with["forced_tokens"].get<int>() > 0);
  CHECK(with["forced_tokens"].get<int>() < with["generated_tokens"].get<int>());
}

TEST_CASE("TPL-02 TPL-04 templates that cannot be read or that raise") {
  Model broken("{% for m in messages %}");
  CHECK(has(broken.refused(request(4)), "cannot be read"));
  vllm_sampling_params p = vllm_sampling_params_default();
  vllm_completion out;
  CHECK(vllm_complete(broken.engine, "still works", &p, &out) == VLLM_OK);
  vllm_completion_free(&out);
  Model raising("{{ raise_exception('only one turn, please') }}");
  CHECK(has(raising.refused(request(4)), "only one turn, please"));
}

TEST_CASE("unknown parser names are reported by the first chat call") {
  Model tool(kPlain, "telepathy");
  CHECK(has(tool.refused(request(4)), "telepathy"));
  Model reasoning(kPlain, nullptr, "dreams");
  CHECK(has(reasoning.refused(request(4)), "dreams"));
}

TEST_CASE("TOOL-01 text around calls is the same however it arrives") {
  const std::string call = R"(<tool_call>{"name": "now", "arguments": {}}</tool_call>)";
  for (const auto& [text, wanted] :
       {std::pair<std::string, std::string>{"I look.\n" + call + "\n", "I look."},
        {"I look. \n" + call + "\n and\n" + call, "I look."},
        {" I look. \n", " I look. \n"}}) {
    for (size_t step = 1; step <= text.size(); ++step) {
      vllm::ChatOutput output(
          nullptr, vllm::make_tool_parser(vllm::find_tool_dialect("hermes"), weather_tools()), true, false);
      std::string content;
      for (size_t at = 0; at < text.size(); at += step) {
        vllm::Delta delta;
        delta.text = text.substr(at, step);
        if (at + step >= text.size()) delta.finish = vllm::FinishReason::Stop;
        content += output.add(delta).content;
      }
      CHECK(content == wanted);
    }
  }
}

TEST_CASE("the thought's tokens are counted, its marks found across tokens") {
  vllm::Thinking open({{"<think>"}, {"</think>"}, true, 0, false, 3});
  CHECK(open.thinking());
  for (int i = 0; i < 3; ++i) {
    CHECK_FALSE(open.budget_used());
    open.add("word ");
  }
  CHECK(open.budget_used());
  for (const char* piece : {"</", "thi", "nk"}) {
    open.add(piece);
    CHECK(open.thinking());
  }
  open.add(">\n");
  CHECK_FALSE(open.thinking());
  vllm::Thinking repeated({{"<think>"}, {"</think>"}, true, 0, false, 1});
  repeated.add("<think>");
  CHECK_FALSE(repeated.budget_used());  // the start of a thought that is open is not part of it
  repeated.add("<think>");
  CHECK(repeated.budget_used());
  vllm::Thinking own({{"<think>"}, {"</think>"}, false, 0, false, -1});
  own.add("\n<thi");
  CHECK_FALSE(own.thinking());
  own.add("nk>");
  CHECK(own.thinking());
  vllm::Thinking pairs({{"[T]", "<think>"}, {"[/T]", "</think>"}, false, 0, false, -1});
  CHECK(pairs.end_marker() == "[/T]");
  pairs.add("<thi");
  pairs.add("nk>a");
  CHECK(pairs.thinking());
  CHECK(pairs.end_marker() == "</think>");
  pairs.add("b[/");
  pairs.add("T]");
  CHECK_FALSE(pairs.thinking());
  vllm::Thinking none({{"<think>"}, {"</think>"}, false, 0, false, -1});
  none.add("<b>");
  none.add("<think>");
  CHECK_FALSE(none.thinking());
}

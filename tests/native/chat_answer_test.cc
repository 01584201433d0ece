// What a chat answer may be: under constraints with and without tools, with calls that are cut, in both forms
// of request.
#include <chrono>

#include "chat_model.h"
#include "serve/chat.h"

using chat_model::Answer;
using chat_model::ask;
using chat_model::both_ways;
using chat_model::has;
using chat_model::joined;
using chat_model::kPlain;
using chat_model::Model;
using chat_model::parsed;
using chat_model::request;
using chat_model::weather_tools;
using chat_model::whole;
using vllm::Json;

namespace {

/// The template is the text itself, so that a chat and a completion have the same prompt.
const char* const kEcho = "{{ messages[0].content }}";

const char* const kDigit =
    R"({"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["a"]})";

Json tag_request(const char* schema, const char* trigger = "<") {
  return {{"structures", Json::array({{{"begin", "<n>"}, {"schema", Json::parse(schema)}, {"end", "</n>"}}})},
          {"triggers", Json::array({trigger})}};
}

}  // namespace

TEST_CASE("GRAM-09 TOOL-09 with tools and a constraint the answer is content that meets it, or valid calls") {
  for (const char* dialect : {"hermes", "llama3_json", "mistral", "qwen3_coder", "minimax_m2"}) {
    CAPTURE(dialect);
    Model model(kPlain, dialect);
    int contents = 0, with_calls = 0;
    for (const char* first : {"{", "<", "["}) {
      for (int seed = 0; seed < 6; ++seed) {
        CAPTURE(first);
        CAPTURE(seed);
        Json r = request(400, 1.0, seed);
        r["tools"] = weather_tools();
        r["parallel_tool_calls"] = false;
        r["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"schema", Json::parse(kDigit)}}}};
        r["logit_bias"] = model.favour(first, 6);
        const Answer answer = both_ways(model, r);
        if (answer.finish == "length") continue;  // noise can be long
        if (answer.calls.empty()) {
          ++contents;
          CHECK(answer.finish == "stop");
          CHECK(parsed(answer.content).size() == 1);
          CHECK(parsed(answer.content)["a"].get<int>() <= 9);
        } else {
          ++with_calls;
          CHECK(answer.finish == "tool_calls");
          CHECK(answer.content.empty());
          REQUIRE(answer.calls.size() == 1);
          const Json arguments = parsed(answer.calls[0].second);
          if (answer.calls[0].first == "get_weather") {
            CHECK(arguments["days"].get<int>() >= 1);
            CHECK(arguments["city"].is_string());
          } else {
            CHECK(answer.calls[0].first == "now");
          }
        }
      }
    }
    CHECK(contents > 0);
    CHECK(with_calls > 0);
  }
}

TEST_CASE("GRAM-09 without a grammar for its calls a dialect leaves the constraint alone") {
  Model model(kPlain, "pythonic");
  for (int seed = 0; seed < 8; ++seed) {
    Json r = request(100, 1.0, seed);
    r["tools"] = weather_tools();
    r["structured_outputs"] = {{"choice", {"yes", "no"}}};
    r["logit_bias"] = model.favour("[", 100);
    const Answer answer = both_ways(model, r);
    CHECK((answer.content == "yes" || answer.content == "no"));
    CHECK(answer.calls.empty());
  }
}

TEST_CASE("a structural tag of a request holds in both forms, with free text around it") {
  Model model(kEcho);
  for (const char* field : {"response_format", "structured_outputs", "structural_tag", "text"}) {
    CAPTURE(field);
    const std::string name = field;
    Json r = {{"max_tokens", 60}, {"temperature", 1.0}, {"logit_bias", model.favour("<", 9)}};
    Json tag = tag_request(kDigit);
    if (name == "response_format") {
      tag["type"] = "structural_tag";
      r["response_format"] = tag;
    } else if (name == "structured_outputs") {
      r["structured_outputs"] = {{"structural_tag", tag}};
    } else {
      r["structural_tag"] = name == "text" ? Json(tag.dump()) : tag;
    }
    int tags = 0;
    for (int seed = 0; seed < 4; ++seed) {
      CAPTURE(seed);
      r["seed"] = seed;
      Json chat = r, completion = r;
      chat["messages"] = ask("Hi");
      completion["prompt"] = "Hi";
      const Answer answer = both_ways(model, chat);
      CHECK(joined(model.submit(completion)) == answer);
      const std::string& text = answer.content;
      for (size_t at = 0; (at = text.find('<', at)) != std::string::npos;) {
        const size_t end = text.find("</n>", at);
        if (end == std::string::npos) {
          CHECK(answer.finish == "length");
          break;
        }
        REQUIRE(text.compare(at, 3, "<n>") == 0);
        CHECK(parsed(text.substr(at + 3, end - at - 3))["a"].get<int>() <= 9);
        at = end + 4;
        ++tags;
      }
    }
    CHECK(tags > 0);
  }
}

TEST_CASE("GRAM-03 a structural tag that cannot be used is refused with the field's name") {
  Model model(kEcho);
  const auto refused = [&](const Json& format) {
    Json r = {{"max_tokens", 4}, {"response_format", format}};
    Json chat = r, completion = r;
    chat["messages"] = ask("Hi");
    completion["prompt"] = "Hi";
    const std::string text = model.submit_refused(chat);
    CHECK(model.submit_refused(completion) == text);
    CHECK(model.refused(chat).find(text.substr(text.find(": ") + 2)) != std::string::npos);
    return text;
  };
  Json format = {{"type", "structural_tag"}};
  CHECK(has(refused(format), "response_format: The structural tag needs a list 'structures'"));
  format["format"] = {{"type", "any_text"}};
  CHECK(has(refused(format), "response_format: The structural tag has a 'format'"));
  format = tag_request(kDigit);
  format["type"] = "structural_tag";
  format["structures"][0].erase("end");
  CHECK(has(refused(format), "response_format: The structural tag needs a string 'end' in structures[0]"));
  format = tag_request(kDigit, "<x");
  format["type"] = "structural_tag";
  CHECK(has(refused(format), "'<x' is not the beginning of any tag"));
  format = tag_request(R"({"not": {}})");
  format["type"] = "structural_tag";
  CHECK(has(refused(format), "not"));
  Json r = {{"messages", ask("Hi")}, {"structured_outputs", {{"structural_tag", "{"}}}};
  CHECK(has(model.submit_refused(r), "structural_tag: "));
  r = {{"messages", ask("Hi")}, {"structural_tag", tag_request(kDigit)}, {"regex", "a"}};
  CHECK(has(model.submit_refused(r), "two structured constraints"));
  CHECK(model.free_blocks() == 64);
}

TEST_CASE("TOOL-06 RPC-08 a call that the token limit cuts: 'length', and the same streamed") {
  // Of JSON-bodied calls nothing is sent before they are complete; what is cut is content.
  for (const char* dialect : {"hermes", "mistral", "llama3_json", "kimi_k2", "qwen3_coder", "glm47"}) {
    CAPTURE(dialect);
    const std::string name = dialect;
    const bool json_bodied = name != "qwen3_coder" && name != "glm47";
    Model model(kPlain, dialect);
    Json r = request(300, 1.0, 2);
    r["tools"] = Json::array({weather_tools()[0]});
    r["tool_choice"] = "required";
    r["parallel_tool_calls"] = true;
    r["logit_bias"] = model.favour("}", 8);
    r["logit_bias"].update(model.favour("\"", 8));
    int cut_calls = 0, cut_contents = 0;
    for (int limit = 1; limit <= 110; limit += limit < 60 ? 7 : 3) {
      CAPTURE(limit);
      r["max_tokens"] = limit;
      const Answer answer = both_ways(model, r);
      if (answer.tokens < limit || answer.finish != "length") continue;
      CHECK(answer.finish == "length");
      if (json_bodied)
        for (const auto& call : answer.calls) CHECK(parsed(call.second).is_object());
      cut_calls += !answer.calls.empty();
      cut_contents += !answer.content.empty();
    }
    CHECK(cut_calls + cut_contents > 3);
    if (json_bodied) CHECK(cut_contents > 0);
  }
}

TEST_CASE("RPC-11 every field has the same effect in a chat and a completion") {
  Model model(kEcho);
  const Json base = {{"max_tokens", 24}, {"temperature", 1.0}, {"seed", 7}};
  const auto asked = [&](const Json& fields, bool chat) {
    Json r = base;
    r.update(fields);
    if (chat) {
      r["messages"] = ask("Hi there");
    } else {
      r["prompt"] = "Hi there";
    }
    return joined(model.submit(r));
  };
  const Answer plain = asked(Json::object(), false);
  CHECK(asked(Json::object(), true) == plain);
  size_t middle = plain.content.size() / 2;
  while ((static_cast<unsigned char>(plain.content.at(middle)) & 0xC0) == 0x80) ++middle;
  const std::string end = plain.content.substr(middle);
  const Json fields[] = {
      {{"seed", 8}},
      {{"temperature", 0}},
      {{"min_p", 1}},
      {{"top_k", 1}},
      {{"top_p", 0.01}},
      {{"repetition_penalty", 5}},
      {{"presence_penalty", 2}},
      {{"frequency_penalty", 2}},
      {{"logit_bias", model.favour("!", 100)}},
      {{"logit_bias", {{"1", 100}}}, {"ignore_eos", true}},
      {{"logit_bias", {{"1", 100}}}, {"min_tokens", 5}},
      {{"stop", end}},
      {{"stop", end}, {"include_stop_str_in_output", true}},
      {{"max_tokens", 3}},
      {{"allowed_token_ids", {10, 11, 12}}},
      {{"grammar", "root ::= \"yes\" | \"no\""}},
      {{"json_schema", Json::parse(kDigit)}},
      {{"json_object", true}},
      {{"regex", "[0-9]{3}"}},
      {{"choice", {"red", "green"}}},
      {{"response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", Json::parse(kDigit)}}}}}},
      {{"structured_outputs", {{"regex", "[a-c]+x"}}}},
  };
  for (const Json& each : fields) {
    CAPTURE(vllm::dump_json(each));
    const Answer answer = asked(each, false);
    CHECK(asked(each, true) == answer);
    CHECK_FALSE(answer == plain);
  }
  // Log-probabilities, asked for in the two ways of OpenAI.
  const auto logprobs = [&](Json r) {
    r.update(base);
    Json content = Json::array();
    for (const Json& chunk : model.submit(r))
      if (chunk["choices"][0]["logprobs"].is_object())
        for (const Json& entry : chunk["choices"][0]["logprobs"]["content"]) content.push_back(entry);
    return content;
  };
  const Json chat = logprobs({{"messages", ask("Hi there")}, {"logprobs", true}, {"top_logprobs", 3}});
  CHECK(chat.size() == 24);
  CHECK(chat[0]["top_logprobs"].size() == 3);
  CHECK(logprobs({{"prompt", "Hi there"}, {"logprobs", 3}}) == chat);
}

TEST_CASE("TOOL-09 REAS-05 after a thought comes content under the constraint, or a call") {
  Model model(std::string(kPlain) + "<think>", "hermes", "deepseek_r1");
  int contents = 0, with_calls = 0;
  for (const char* first : {"{", "<"}) {
    for (int seed = 0; seed < 4; ++seed) {
      CAPTURE(seed);
      Json r = request(300, 1.0, seed);
      r["thinking_budget"] = 6;
      r["tools"] = Json::array({weather_tools()[1]});
      r["parallel_tool_calls"] = false;
      r["json_schema"] = Json::parse(kDigit);
      r["logit_bias"] = model.favour(first, 7);
      const Answer answer = both_ways(model, r);
      CHECK_FALSE(answer.reasoning.empty());
      if (answer.calls.empty()) {
        ++contents;
        CHECK(parsed(answer.content)["a"].get<int>() <= 9);
      } else {
        ++with_calls;
        CHECK(answer.content.empty());
        CHECK(answer.calls[0].first == "now");
        CHECK(parsed(answer.calls[0].second) == Json::object());
      }
    }
  }
  CHECK(contents > 0);
  CHECK(with_calls > 0);
}

TEST_CASE("TOOL-09 with tool_choice none what looks like a call is content") {
  Model model(kPlain, "hermes");
  const std::string call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  Json r = request(200);
  r["tools"] = weather_tools();
  r["choice"] = {call};
  CHECK(both_ways(model, r).calls.size() == 1);
  r["tool_choice"] = "none";
  const Answer answer = both_ways(model, r);
  CHECK(answer.calls.empty());
  CHECK(answer.content == call);
  CHECK(answer.finish == "stop");
  r["tool_choice"] = "required";
  CHECK(has(model.refused(r), "tool_choice asks for a call and the answer has a structured constraint"));
}

TEST_CASE("STOP-01 a stop string inside the body of a call leaves what came before as content") {
  Model model(kPlain, "hermes");
  Json r = request(200);
  r["tools"] = weather_tools();
  r["tool_choice"] = {{"type", "function"}, {"function", {{"name", "now"}}}};
  r["stop"] = "argu";
  Answer answer = both_ways(model, r);
  CHECK(answer.calls.empty());
  CHECK(answer.content == "<tool_call>\n{\"name\": \"now\", \"");
  CHECK(answer.finish == "stop");
  r["include_stop_str_in_output"] = true;
  answer = both_ways(model, r);
  CHECK(answer.content == "<tool_call>\n{\"name\": \"now\", \"argu");
  r["stop"] = {"nothing of it"};
  CHECK(both_ways(model, r).calls.size() == 1);
}

TEST_CASE("GRAM-09 a complete text under a constraint ends, whatever min_tokens and ignore_eos say") {
  Model model(kEcho);
  for (const Json& more : {Json{{"min_tokens", 20}}, Json{{"ignore_eos", true}}}) {
    Json r = request(40);
    r.update(more);
    r["choice"] = {"yes", "no"};
    const Answer answer = both_ways(model, r);
    CHECK((answer.content == "yes" || answer.content == "no"));
    CHECK(answer.finish == "stop");
  }
}

TEST_CASE(
    "GRAM-04 schemas nested 100 deep work, in tools and in a response format; 60,000 deep are refused") {
  Model model(kEcho, "hermes");
  const auto nested = [](int depth) {
    std::string text;
    for (int i = 0; i < depth; ++i) text += R"({"type": "object", "required": ["a"], "properties": {"a": )";
    text += R"({"type": "boolean"})";
    for (int i = 0; i < depth; ++i) text += "}}";
    return text;
  };
  const auto with_tool = [&](int depth) {
    return R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 500, "tool_choice": "required",
      "parallel_tool_calls": false, "tools": [{"type": "function", "function": {"name": "f", "parameters": )" +
           nested(depth) + "}}]}";
  };
  const auto with_format = [&](int depth) {
    return R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 500, "response_format":
      {"type": "json_schema", "json_schema": {"schema": )" +
           nested(depth) + "}}}";
  };
  const auto levels = [](Json value) {
    int count = 0;
    for (; value.is_object(); ++count) value = Json(value.at("a"));
    CHECK(value.is_boolean());
    return count;
  };
  for (const int depth : {40, 100}) {
    CAPTURE(depth);
    Json r = parsed(with_format(depth));
    r["logit_bias"] = model.favour("\"", 50);
    r["logit_bias"].update(model.favour("{", 50));
    r["logit_bias"].update(model.favour("}", 50));
    r["logit_bias"].update(model.favour(":", 50));
    const Answer answer = whole(model, r);
    CHECK(answer.finish == (depth == 40 ? "stop" : "length"));  // more than the context holds
    if (depth == 40) CHECK(levels(parsed(answer.content)) == depth);
    r["tools"] = parsed(with_tool(depth))["tools"];
    CHECK(whole(model, r).tokens > 200);
  }
  for (const std::string& text : {with_tool(60000), with_format(60000)}) {
    const auto started = std::chrono::steady_clock::now();
    char* out = nullptr;
    CHECK(vllm_chat(model.engine, text.c_str(), &out) == VLLM_ERR_INVALID_ARGUMENT);
    CHECK(has(vllm_last_error(), "nest"));
    CHECK(std::chrono::steady_clock::now() - started < std::chrono::seconds(1));
  }
  CHECK(model.free_blocks() == 64);
}

TEST_CASE("TPL-06 one begin token, printed by the template or not") {
  const char* config = R"({"bos_token": "<|im_start|>", "add_bos_token": true})";
  Model prints("{{ bos_token }}{{ messages[0].content }}", nullptr, nullptr, false, config);
  Model plain(kEcho, nullptr, nullptr, false, config);
  const Json r = request(8);
  const Json whole_answer = prints.chat(r);
  CHECK(plain.chat(r)["usage"] == whole_answer["usage"]);
  CHECK(whole(plain, r) == whole(prints, r));
  for (const char* prompt : {"Hi", "<|im_start|>Hi"}) {
    const std::vector<Json> chunks =
        plain.submit({{"prompt", prompt}, {"max_tokens", 8}, {"temperature", 0}});
    CHECK(joined(chunks) == whole(prints, r));
    CHECK(chunks.back()["usage"]["prompt_tokens"] == whole_answer["usage"]["prompt_tokens"]);
  }
  Model none(kEcho);
  CHECK(none.chat(r)["usage"]["prompt_tokens"].get<int>() + 1 ==
        whole_answer["usage"]["prompt_tokens"].get<int>());
}

TEST_CASE("TPL-02 a model without a template gets lines of role and content") {
  Model model("");
  Json r = request(12);
  r["messages"] =
      Json::parse(R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])");
  const Answer answer = both_ways(model, r);
  Json prompt = {
      {"prompt", "system: Be brief.\nuser: Hi\nassistant:"}, {"max_tokens", 12}, {"temperature", 0}};
  const std::vector<Json> chunks = model.submit(prompt);
  CHECK(joined(chunks) == answer);
  CHECK(chunks.back()["usage"]["prompt_tokens"] == model.chat(r)["usage"]["prompt_tokens"]);
  // Tools are described in front.
  r["tools"] = Json::parse(R"([{"type": "function", "function": {"name": "now"}}])");
  const int described = model.chat(r)["usage"]["prompt_tokens"].get<int>();
  CHECK(described > chunks.back()["usage"]["prompt_tokens"].get<int>() + 60);
}

TEST_CASE("TPL-02 a template that raises for tools serves plain conversations") {
  Model model("{% if tools %}{{ raise_exception('no tools, please') }}{% endif %}{{ messages[0].content }}");
  CHECK(model.chat(request(2))["choices"][0]["finish_reason"] == "length");
  Json r = request(2);
  r["tools"] = weather_tools();
  CHECK(has(model.refused(r), "no tools, please"));
}

TEST_CASE("TOOL-09 TOOL-11 the older form of a named choice, and tools that say next to nothing") {
  Model model(kPlain);
  Json r = request(60, 1.0);
  r["tools"] = Json::parse(R"([{"type": "function", "function": {"name": "ping"}},
    {"function": {"name": "pong", "parameters": {"properties": {"x": {}}}}}])");
  r["logit_bias"] = model.favour("}", 100);
  for (const char* name : {"ping", "pong"}) {
    r["tool_choice"] = {{"type", "function"}, {"name", name}};
    const Answer answer = both_ways(model, r);
    REQUIRE(answer.calls.size() == 1);
    CHECK(answer.calls[0].first == name);
    CHECK(parsed(answer.calls[0].second).is_object());
    CHECK(answer.finish == "stop");
  }
}

TEST_CASE("the query for parsers names what the settings take, and what is in use") {
  Model model(kPlain, "qwen3_xml", "deepseek_r1");
  const Json answer = model.query({{"query", "parsers"}});
  CHECK(answer["tool_parser"] == "qwen3_coder");
  CHECK(answer["reasoning_parser"] == "deepseek_r1");
  const auto names = [&](const char* list) {
    std::vector<std::string> out;
    for (const Json& entry : answer[list]) {
      out.push_back(entry["name"].get<std::string>());
      for (const Json& alias : entry["aliases"]) out.push_back(alias.get<std::string>());
    }
    std::sort(out.begin(), out.end());
    CHECK(std::unique(out.begin(), out.end()) == out.end());
    return out;
  };
  std::vector<std::string> tools = names("tool_parsers"), known = vllm::tool_dialect_names();
  known.insert(known.end(), {"auto", "none"});
  std::sort(known.begin(), known.end());
  CHECK(tools == known);
  for (const char* name : {"hermes", "qwen3_xml", "llama4_json"})
    CHECK(std::binary_search(tools.begin(), tools.end(), name));
  CHECK(names("reasoning_parsers").size() == vllm::reasoning_dialect_names().size() + 1);
  char* out = nullptr;
  CHECK(vllm_ext_query(model.engine, R"({"query": "parser"})", &out) == VLLM_ERR_INVALID_ARGUMENT);
  CHECK(has(vllm_last_error(), "parsers"));
}

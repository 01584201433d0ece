// Names, detection, ids and the descriptions of tags.
#include <doctest/doctest.h>

#include <algorithm>
#include <regex>
#include <set>

#include "base/json.h"
#include "serve/tools/tool_dialects.h"

using namespace vllm;

namespace {

std::string detected(std::string_view source) {
  return std::string(tool_dialect_name(detect_tool_dialect(source)));
}

std::vector<ToolCallDelta> calls_of(ToolParser& parser, std::string_view text) {
  std::vector<ToolCallDelta> calls = parser.feed(text).calls;
  for (ToolCallDelta& call : parser.finish().calls) {
    if (!calls.empty() && calls.back().index == call.index) {
      calls.back().arguments += call.arguments;
    } else {
      calls.push_back(call);
    }
  }
  return calls;
}

}  // namespace

TEST_CASE("all names are known and an unknown one is refused with the list") {
  const std::vector<std::string> names = tool_dialect_names();
  for (const char* name :
       {"hermes",         "qwen3",          "longcat",      "qwen3_coder",     "qwen3_xml",    "mimo",
        "step3p5",        "seed_oss",       "glm45",        "glm47",           "poolside_v1",  "hy_v3",
        "llama3_json",    "llama4_json",    "pythonic",     "llama4_pythonic", "olmo3",        "lfm2",
        "mistral",        "deepseek_v3",    "deepseek_v31", "deepseek_v32",    "deepseek_v4",  "kimi_k2",
        "minimax_m2",     "step3",          "gemma4",       "functiongemma",   "granite",      "granite4",
        "granite-20b-fc", "phi4_mini_json", "internlm",     "jamba",           "hunyuan_a13b", "xlam",
        "ernie45",        "gigachat3",      "apertus",      "minicpm5",        "muse_glimmer", "inkling"}) {
    CHECK_NOTHROW(find_tool_dialect(name));
    CHECK(std::find(names.begin(), names.end(), name) != names.end());
  }
  CHECK(std::set<std::string>(names.begin(), names.end()).size() == names.size());
  CHECK(&find_tool_dialect("step3p5") == &find_tool_dialect("qwen3_coder"));
  try {
    find_tool_dialect("nope");
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.status() == Status::InvalidArgument);
    CHECK(error.message().find("'nope'") != std::string::npos);
    for (const std::string& name : names) CHECK(error.message().find(name) != std::string::npos);
  }
}

TEST_CASE("the template tells the dialect") {
  CHECK(detected("") == "hermes");
  CHECK(detected("x <tool_call> y") == "hermes");
  CHECK(detected("<tool_call>\n<function=...>") == "qwen3_coder");
  CHECK(detected("<tool_call>{{ name }}\n<arg_key>") == "glm47");
  CHECK(detected("<tool_calls>\n<tool_call>{{ n }}<tool_sep>\n<arg_key>") == "hy_v3");
  CHECK(detected("<｜tool▁calls▁begin｜>x```json") == "deepseek_v3");
  CHECK(detected("<｜tool▁calls▁begin｜>x") == "deepseek_v31");
  CHECK(detected("<｜DSML｜function_calls>") == "deepseek_v32");
  CHECK(detected("<｜DSML｜tool_calls>") == "deepseek_v4");
  CHECK(detected("[TOOL_CALLS]") == "mistral");
  CHECK(detected("<|tool|>{{ tools }}<|/tool|>") == "phi4_mini_json");
  CHECK(detected("<|tool_call|>") == "granite");
  CHECK(detected("{{ '{\"name\": \"' }}{{ '\"parameters\": ' }}") == "llama3_json");
  CHECK(detected("<|python_tag|>") == "llama3_json");
  CHECK(detected("<|tool_call>call:") == "gemma4");
  CHECK(detected("<minimax:tool_call>") == "minimax_m2");
  CHECK(detected("<|tool_calls_section_begin|>") == "kimi_k2");
  CHECK(detected("<tool_calls>") == "jamba");
}

TEST_CASE("TOOL-04 ids are unique and look as the dialect's do") {
  const auto ids = [](const char* name, std::string_view text) {
    std::vector<std::string> result;
    const auto parser = make_tool_parser(find_tool_dialect(name), nullptr);
    for (const ToolCallDelta& call : calls_of(*parser, text)) result.push_back(call.id);
    return result;
  };
  const std::string call = "<tool_call>{\"name\": \"f\"}</tool_call>";
  const auto chat = ids("hermes", call + call);
  REQUIRE(chat.size() == 2);
  CHECK(std::regex_match(chat[0], std::regex("chatcmpl-tool-[0-9a-f]{32}")));
  CHECK(chat[0] != chat[1]);
  const auto mistral = ids("mistral", "[TOOL_CALLS]f{}");
  REQUIRE(mistral.size() == 1);
  CHECK(std::regex_match(mistral[0], std::regex("[A-Za-z0-9]{9}")));
  const std::string kimi = "<|tool_call_begin|>functions.f:4<|tool_call_argument_begin|>{}<|tool_call_end|>";
  const auto numbered =
      ids("kimi_k2", "<|tool_calls_section_begin|>" + kimi + kimi + "<|tool_calls_section_end|>");
  REQUIRE(numbered.size() == 2);
  CHECK(numbered[0] == "functions.f:4");
  CHECK(numbered[0] != numbered[1]);
}

TEST_CASE("TOOL-09 what a tag format describes is what the parser reads") {
  const Json tools = Json::parse(R"([{"function":{"name":"f-1.x","parameters":{"properties":
      {"a":{"type":"integer"},"s":{"type":"string"}}}}}])");
  int described = 0;
  for (const std::string& name : tool_dialect_names()) {
    for (const ToolTagOptions options :
         {ToolTagOptions{}, ToolTagOptions{true, false}, ToolTagOptions{false, true}}) {
      const auto format = tool_tag_format(find_tool_dialect(name), "f-1.x", options);
      if (!format) continue;
      CAPTURE(name);
      ++described;
      std::string arguments;
      if (format->arguments == ArgumentStyle::Json) {
        arguments = "{\"a\": 1, \"s\": \"x\\ny\"}";
      } else {
        for (const auto& [key, value] : {std::pair("a", "1"), std::pair("s", "x\ny")}) {
          arguments +=
              format->argument_begin + key + format->argument_after_key + value + format->argument_end;
        }
      }
      std::string text = format->section_begin;
      for (int i = 0; i < 3; ++i) {
        if (i) text += format->separator;
        text += format->begin;
        if (format->numbered) text += std::to_string(i) + format->begin_after_number;
        text += arguments + format->end;
      }
      text += format->section_end;
      CHECK(text.starts_with(format->trigger));
      CAPTURE(text);
      const auto parser = make_tool_parser(find_tool_dialect(name), tools);
      const ToolDelta delta = parser->feed(text);
      const ToolDelta rest = parser->finish();
      CHECK(delta.content + rest.content == "");
      std::vector<ToolCallDelta> calls = delta.calls;
      calls.insert(calls.end(), rest.calls.begin(), rest.calls.end());
      std::vector<std::string> joined;
      for (const ToolCallDelta& call : calls) {
        if (static_cast<size_t>(call.index) == joined.size()) joined.emplace_back();
        joined.at(static_cast<size_t>(call.index)) += call.name + call.arguments;
      }
      CHECK(joined == std::vector<std::string>(3, "f-1.x{\"a\": 1, \"s\": \"x\\ny\"}"));
    }
  }
  CHECK(described >= 30);
  CHECK_FALSE(tool_tag_format(find_tool_dialect("pythonic"), "f"));
}

TEST_CASE("TOOL-09 calls of dialects without tags come as bare JSON") {
  const auto list = make_call_list_parser(nullptr);
  const auto calls = calls_of(*list, "[{\"name\": \"a\", \"parameters\": {\"x\": 1}}, {\"name\": \"b\"}]\n");
  REQUIRE(calls.size() == 2);
  CHECK(calls[0].name == "a");
  CHECK(calls[0].arguments == "{\"x\": 1}");
  CHECK(calls[1].arguments == "{}");
  const auto cut = make_call_list_parser(nullptr);
  cut->feed("[{\"name\": \"a\", \"para");
  CHECK(cut->finish().content == "[{\"name\": \"a\", \"para");
  const auto named = make_named_call_parser("f");
  const auto one = calls_of(*named, " {\"x\": [1, 2]}");
  REQUIRE(one.size() == 1);
  CHECK(one[0].name == "f");
  CHECK(one[0].arguments == "{\"x\": [1, 2]}");
}

TEST_CASE("TOOL-05 text that is no call does not wait for the end") {
  const auto parser = make_tool_parser(find_tool_dialect("llama3_json"), nullptr);
  CHECK(parser->feed("See {\"foo\": [1, ").content == "See {\"foo\": [1, ");
  CHECK(parser->feed("{\"name\"").content == "{\"name\"");
  const auto hermes = make_tool_parser(find_tool_dialect("hermes"), nullptr);
  CHECK(hermes->feed("a < b <tool").content == "a < b ");
  CHECK(hermes->feed("box>").content == "<toolbox>");
  CHECK(hermes->feed("caf\xc3").content == "caf");
  CHECK(hermes->feed("\xa9").content == "\xc3\xa9");
}

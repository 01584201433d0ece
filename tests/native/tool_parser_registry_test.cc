// Names, detection, ids and the descriptions of tags.
#include <doctest/doctest.h>

#include <algorithm>
#include <regex>
#include <set>

#include "base/json.h"
#include "serve/tools/tool_dialects.h"
#include "tokenizer_files.h"

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

TEST_CASE("a family's template tells its dialect though it holds markers of others") {
  for (const char* name : {"qwen3", "smollm2"}) {
    const Json real =
        parse_json(read_file(FIXTURES "/jinja/" + std::string(name) + ".json"), name, Status::Runtime);
    CHECK(detected(real["template"].get<std::string>()) == "hermes");
  }

  // As the families write them, in words of our own.
  const std::pair<const char*, const char*> families[] = {
      {"glm47", R"([gMASK]<sop>{% if tools %}<|system|>
Signatures are in <tools></tools>:
{% for tool in tools %}{{ tool | tojson }}{% endfor %}
To call one, print its name and arguments within a tag:
<tool_call>{function-name}
<arg_key>{key}</arg_key>
<arg_value>{value}</arg_value>
</tool_call>{% endif %}
{% for m in messages %}{% if m.role == 'tool' %}<|observation|>
<tool_response>{{ m.content }}</tool_response>{% else %}<|assistant|><think></think>
{% for tc in m.tool_calls %}<tool_call>{{ tc.name }}{% endfor %}{% endif %}{% endfor %})"},
      {"phi4_mini_json", R"({% for m in messages %}{% if m.role == 'system' and m.tools %}
{{ '<|' + m.role + '|>' + m.content + '<|tool|>' + m.tools + '<|/tool|>' + '<|end|>' }}
{% elif m.tool_calls %}{{ '<|assistant|><|tool_call|>' + m.tool_calls | tojson + '<|/tool_call|>' }}
{% endif %}{% endfor %})"},
      {"seed_oss", R"({%- if tools %}{{ bos_token + "system\nTools you may call, in this form:\n" }}
<seed:tool_call>
<function=name_of_function>
<parameter=first>value</parameter>
</function>
</seed:tool_call>
{% endif %}{% for m in messages %}{{ '<seed:think>' + m.reasoning_content + '</seed:think>' }}
{% for tc in m.tool_calls %}<seed:tool_call><function={{ tc.function.name }}>{% endfor %}{% endfor %})"},
      {"qwen3_coder", R"({%- if tools %}<|im_start|>system
You have these functions:
<tools>{% for tool in tools %}<function><name>{{ tool.name }}</name></function>{% endfor %}</tools>
Call them like this, nothing behind it:
<tool_call>
<function=some_name>
<parameter=some_parameter>
some value
</parameter>
</function>
</tool_call><|im_end|>{% endif %}
{% for m in messages %}{% if m.role == 'tool' %}<tool_response>{{ m.content }}</tool_response>
{% endif %}{% endfor %}<|im_start|>assistant
<think>)"},
      {"mistral", R"({{ bos_token }}{% for m in messages %}{% if loop.last and tools %}
{{ '[AVAILABLE_TOOLS]' + tools | tojson + '[/AVAILABLE_TOOLS]' }}{% endif %}
{% if m.role == 'user' %}{{ '[INST]' + m.content + '[/INST]' }}
{% elif m.tool_calls %}{{ '[TOOL_CALLS][' }}{{ '{"name": "' + name + '", "arguments": ' }}
{% elif m.role == 'tool' %}{{ '[TOOL_RESULTS]' + m.content + '[/TOOL_RESULTS]' }}{% endif %}{% endfor %})"},
      {"llama3_json", R"({{ bos_token }}<|start_header_id|>system<|end_header_id|>
{% if builtin_tools %}Environment: ipython{% endif %}
Answer with a function call as {"name": function name, "parameters": dictionary of names and values}.
{% for m in messages %}{% if m.tool_calls %}{{ '<|python_tag|>' + m.tool_calls[0].name + '.call(' }}
{{ '{"name": "' + name + '", ' }}{{ '"parameters": ' }}{{ m.arguments | tojson }}<|eom_id|>
{% elif m.role == 'tool' %}<|start_header_id|>ipython<|end_header_id|>{% endif %}{% endfor %})"},
      {"llama3_json", R"({{ bos_token }}<|start_header_id|>user<|end_header_id|>
{% for m in messages %}{% if m.tool_calls %}<|start_header_id|>assistant<|end_header_id|>
{{ '{"name": "' + m.tool_calls[0].function.name + '", ' }}{{ '"parameters": ' }}
{{ m.tool_calls[0].function.arguments | tojson }}{{ "}" }}<|eot_id|>{% endif %}{% endfor %})"},
      {"deepseek_v3", R"({{ bos_token }}{% for m in messages %}{% if m.tool_calls %}
{{ '<｜Assistant｜><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool.type + '<｜tool▁sep｜>' + tool.name
   + '\n' + '```json' + '\n' + tool.arguments + '\n' + '```' + '<｜tool▁call▁end｜><｜tool▁calls▁end｜>' }}
{% elif m.role == 'tool' %}<｜tool▁outputs▁begin｜>{% endif %}{% endfor %}<｜Assistant｜><think>)"},
      {"deepseek_v31", R"({{ bos_token }}{% for m in messages %}{% if m.tool_calls %}
{{ '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + name + '<｜tool▁sep｜>' + arguments + '<｜tool▁call▁end｜>' }}
{% endif %}{% endfor %}<｜Assistant｜>{{ '<think>' if thinking else '</think>' }})"},
      {"kimi_k2",
       R"({% if tools %}<|im_system|>tool_declare<|im_middle|>{{ tools | tojson }}<|im_end|>{% endif %}
{% for m in messages %}{% if m.tool_calls %}<|tool_calls_section_begin|>{% for tc in m.tool_calls %}
<|tool_call_begin|>{{ tc.id }}<|tool_call_argument_begin|>{{ tc.function.arguments }}<|tool_call_end|>
{% endfor %}<|tool_calls_section_end|>{% endif %}{% endfor %}<|im_assistant|>assistant<|im_middle|>)"},
      {"minimax_m2", R"({% set begin = '<minimax:tool_call>' %}{% set end = '</minimax:tool_call>' %}
]~b]system{% if tools %}<tools>{% for tool in tools %}<tool>{{ tool | tojson }}</tool>{% endfor %}</tools>
{{ begin }}
<invoke name="some-tool">
<parameter name="some-key">some value</parameter>
</invoke>
{{ end }}{% endif %}[e~[
]~b]ai
<think>)"},
      {"granite",
       R"(<|start_of_role|>available_tools<|end_of_role|>{{ tools | tojson(indent=4) }}<|end_of_text|>
<|start_of_role|>system<|end_of_role|>When a tool is needed, answer with <|tool_call|> and a JSON list of calls.
{% for m in messages %}<|start_of_role|>{{ m.role }}<|end_of_role|>{{ m.content }}{% endfor %})"},
      {"gemma4", R"({{ bos_token }}<|turn>system
{% for tool in tools %}<|tool>declaration:{{ tool.function.name }}{}<tool|>{% endfor %}<turn|>
{% for m in messages %}{% for tc in m.tool_calls %}{{ '<|tool_call>call:' + tc.function.name + '{' }}
{{ '}<tool_call|>' }}{% endfor %}{% endfor %}<|turn>model
<|channel>thought
<channel|>)"},
      {"hermes", R"({% if tools %}<|im_start|>system
Signatures in <tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>. Each call is JSON in a tag:
<tool_call>
{"name": <name>, "arguments": <object>}
</tool_call><|im_end|>{% endif %}{% for m in messages %}{% for tc in m.tool_calls %}
<tool_call>
{"name": "{{ tc.function.name }}", "arguments": {{ tc.function.arguments | tojson }}}
</tool_call>{% endfor %}{% endfor %}<|im_start|>assistant
)"},
  };
  for (const auto& [name, source] : families) {
    CAPTURE(source);
    CHECK(detected(source) == name);
  }
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

// Every dialect against texts that are made to take long, much memory, or the process.
#include <doctest/doctest.h>

#include <chrono>

#include "base/json.h"
#include "serve/tools/tool_dialects.h"

using namespace vllm;

namespace {

struct Summary {
  std::string content, calls;
  bool operator==(const Summary&) const = default;
};

Summary parse(const ToolDialect& dialect, std::string_view text, size_t piece, const Json& tools = nullptr) {
  const auto parser = make_tool_parser(dialect, tools);
  Summary summary;
  int last = -1;
  const auto add = [&](const ToolDelta& delta) {
    summary.content += delta.content;
    for (const ToolCallDelta& call : delta.calls) {
      if (call.index != last) summary.calls += "\n" + call.name + " ";
      last = call.index;
      summary.calls += call.arguments;
    }
  };
  for (size_t at = 0; at < text.size(); at += piece) add(parser->feed(text.substr(at, piece)));
  add(parser->finish());
  return summary;
}

// Sanitizers make every byte many times dearer.
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kHostileBytes = 20000;
#else
constexpr size_t kHostileBytes = 300000;
#endif

std::string repeat(std::string_view unit, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += unit;
  return text;
}

}  // namespace

TEST_CASE("much of one thing takes linear time in every dialect") {
  for (const std::string& name : tool_dialect_names()) {
    const ToolDialect& dialect = find_tool_dialect(name);
    if (tool_dialect_name(dialect) != name) continue;
    std::string trigger = "x";
    if (!tool_dialect_triggers(dialect).empty()) trigger = tool_dialect_triggers(dialect)[0];
    std::vector<std::string> units = {"{",
                                      "[",
                                      "<",
                                      "\"",
                                      "'",
                                      " ",
                                      "\n",
                                      "(",
                                      "{\"name\":",
                                      "<tool_call>",
                                      "</",
                                      "< ",
                                      "<|\"|>",
                                      "<function=",
                                      "<invoke name=\"",
                                      "<parameter=",
                                      "<arg_key>",
                                      "call:",
                                      "add(",
                                      trigger,
                                      trigger + "{",
                                      trigger + "{\"name\": \"",
                                      trigger + "<",
                                      trigger + " "};
    for (const std::string& unit : units) {
      CAPTURE(name);
      CAPTURE(unit);
      for (const std::string& text : {repeat(unit, kHostileBytes), trigger + repeat(unit, kHostileBytes)}) {
        const auto begin = std::chrono::steady_clock::now();
        const Summary whole = parse(dialect, text, text.size());
        CHECK(parse(dialect, text, 11) == whole);
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        CHECK(took.count() < 5);
        CHECK(whole.content.size() + whole.calls.size() <= text.size() * 2 + 100);
      }
    }
  }
}

TEST_CASE("deep nesting is text, not a crash") {
  const ToolDialect& hermes = find_tool_dialect("hermes");
  for (const size_t depth : {100u, 400u, 1000u, 100000u}) {
    const std::string deep = std::string(depth, '[') + std::string(depth, ']');
    const std::string text = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": " + deep + "}}</tool_call>";
    const Summary result = parse(hermes, text, 1000);
    CHECK((depth < 500 ? result.calls == "\nf {\"a\": " + deep + "}" : result.content == text));
    for (const char* name : {"pythonic", "llama4_pythonic"}) {
      const std::string python = "[f(a=" + deep + ")]";
      const Summary called = parse(find_tool_dialect(name), python, python.size());
      CHECK((called.calls.empty() ? called.content == python : depth <= 100));
    }
    std::string objects;
    for (size_t i = 0; i < depth; ++i) objects += "{a:";
    const std::string gemma = "<|tool_call>call:f" + objects + "1" + std::string(depth, '}') + "<tool_call|>";
    const Summary found = parse(find_tool_dialect("gemma4"), gemma, gemma.size());
    CHECK((found.calls.empty() ? found.content == gemma : depth <= 100));
    const std::string coder =
        "<function=save><parameter=meta>" + repeat("{\"a\":", depth * 5) + "</parameter></function>";
    const Json tools = Json::parse(
        R"([{"function":{"name":"save","parameters":{"properties":{"meta":{"type":"object"}}}}}])");
    CHECK_FALSE(parse(find_tool_dialect("qwen3_coder"), coder, 17, tools).calls.empty());
  }
}

TEST_CASE("schemas of a request cannot recurse without end") {
  const Json tools =
      Json::parse(R"([{"function":{"name":"f","parameters":{"$defs":{"n":{"anyOf":[{"$ref":"#/$defs/n"},
      {"$ref":"#/$defs/n"},{"type":"integer"}]}},"properties":{"a":{"$ref":"#/$defs/n"},"b":{"type":7},"c":5}}}},
      5, {"function":3}, {"function":{"name":1}}, null])");
  const std::string text =
      "<function=f><parameter=a>7</parameter><parameter=b>x</parameter><parameter=c>y</parameter>"
      "</function>";
  CHECK(parse(find_tool_dialect("qwen3_coder"), text, 3, tools).calls ==
        "\nf {\"a\": 7, \"b\": \"x\", \"c\": \"y\"}");
}

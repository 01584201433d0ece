// How the text of an answer comes apart into thoughts, content and calls, however it arrives.
#include <functional>
#include <random>

#include "chat_model.h"
#include "serve/chat.h"

using chat_model::Answer;
using chat_model::parsed;
using chat_model::weather_tools;

namespace {

/// What the parsers of an answer make of a text that arrives in pieces of `size()` bytes.
Answer taken_apart(const char* reasoning, const char* dialect, const std::string& text,
                   vllm::FinishReason finish, const std::function<size_t()>& size) {
  vllm::ChatOutput output(
      vllm::make_reasoning_parser(vllm::find_reasoning_dialect(reasoning), {"<think>\n", true}, nullptr),
      vllm::make_tool_parser(vllm::find_tool_dialect(dialect), weather_tools()), true, false);
  Answer answer;
  const auto take = [&](const vllm::Delta& delta) {
    const vllm::ChatOutput::Piece piece = output.add(delta);
    answer.reasoning += piece.reasoning;
    answer.content += piece.content;
    for (const vllm::ToolCallDelta& call : piece.calls) {
      answer.calls.resize(std::max(answer.calls.size(), static_cast<size_t>(call.index) + 1));
      answer.calls[static_cast<size_t>(call.index)].first += call.name;
      answer.calls[static_cast<size_t>(call.index)].second += call.arguments;
    }
  };
  for (size_t at = 0; at < text.size();) {
    vllm::Delta delta;
    delta.text = text.substr(at, size());
    at += delta.text.size();
    take(delta);
  }
  vllm::Delta last;
  last.finish = finish;
  take(last);
  return answer;
}

}  // namespace

TEST_CASE("RPC-09 TOOL-05 TOOL-10 thoughts, content and calls come apart alike, however they arrive") {
  const std::string call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  const std::string weather =
      "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"</tool_call> "
      "日\"}}\n</tool_call>";
  struct Case {
    std::string text;
    vllm::FinishReason finish;
    std::string reasoning, content;
    std::vector<std::string> calls;
  };
  using enum vllm::FinishReason;
  const Case cases[] = {
      // The end of the thought and a call in one piece; a marker inside the thought is a thought.
      {"I ask " + call + ".</think>" + weather, Stop, "I ask " + call + ".", "", {"get_weather"}},
      {"hm</think>\n\nI look.\n" + call + "\n" + weather + " bye",
       Stop,
       "hm",
       "I look.",
       {"now", "get_weather"}},
      {"hm</think>x < y <tool_cal", Length, "hm", "x < y <tool_cal", {}},
      {"hm</think>" + call + weather.substr(0, 40), Length, "hm", weather.substr(0, 40), {"now"}},
      {"hm</think>" + weather.substr(0, 40), Length, "hm", weather.substr(0, 40), {}},
      {"hm " + call, Length, "hm " + call, "", {}},
      {"hm", Stop, "hm", "hm", {}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.text);
    for (const size_t piece : {size_t{1}, size_t{2}, size_t{3}, size_t{7}, c.text.size()}) {
      CAPTURE(piece);
      const Answer answer = taken_apart("qwen3", "hermes", c.text, c.finish, [&] { return piece; });
      CHECK(answer.reasoning == c.reasoning);
      CHECK(answer.content == c.content);
      REQUIRE(answer.calls.size() == c.calls.size());
      for (size_t i = 0; i < c.calls.size(); ++i) {
        CHECK(answer.calls[i].first == c.calls[i]);
        CHECK(parsed(answer.calls[i].second).is_object());
      }
    }
  }
}

TEST_CASE("RPC-08 random mixtures of text, thoughts and calls come apart alike, however they arrive") {
  const char* parts[] = {" ",
                         "\n",
                         "\n\n",
                         "word",
                         " x < y ",
                         "日本",
                         "<think>",
                         "</think>",
                         "<tool_call>",
                         "</tool_call>",
                         "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
                         "<tool_call>\n<function=now>\n</function>\n</tool_call>",
                         "{\"name\": \"now\", \"parameters\": {\"a\": [1]}}",
                         "[now(a=1), now()]",
                         "[TOOL_CALLS]now{}"};
  std::mt19937 random(3);
  for (const char* dialect : {"hermes", "granite4", "qwen3_coder", "llama3_json", "pythonic", "mistral"}) {
    for (const char* reasoning : {"none", "qwen3", "think_auto", "mistral"}) {
      for (int round = 0; round < 150; ++round) {
        std::string text;
        for (unsigned i = 0, count = 1 + random() % 7; i < count; ++i)
          text += parts[random() % std::size(parts)];
        CAPTURE(dialect);
        CAPTURE(reasoning);
        CAPTURE(text);
        const auto finish = random() % 2 == 0 ? vllm::FinishReason::Stop : vllm::FinishReason::Length;
        const Answer at_once = taken_apart(reasoning, dialect, text, finish, [&] { return text.size(); });
        CHECK(taken_apart(reasoning, dialect, text, finish, [] { return size_t{1}; }) == at_once);
        CHECK(taken_apart(reasoning, dialect, text, finish, [&] { return size_t{1} + random() % 9; }) ==
              at_once);
      }
    }
  }
}

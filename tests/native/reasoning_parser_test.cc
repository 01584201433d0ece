#include "serve/reasoning/reasoning_parser.h"

#include <doctest/doctest.h>

#include <chrono>
#include <map>
#include <random>

#include "base/json.h"
#include "token_cuts.h"

using namespace vllm;

namespace {

struct Result {
  std::string reasoning, content;
  bool repeats = false;
  bool operator==(const Result&) const = default;
};

struct Setting {
  std::string_view prompt = "";
  bool natural = true;
  Json kwargs = nullptr;
  bool tools = false;
};

Result parse_pieces(std::string_view name, std::string_view text, const Setting& setting,
                    const std::vector<size_t>& pieces) {
  const auto parser =
      make_reasoning_parser(find_reasoning_dialect(name), {setting.prompt, setting.tools}, setting.kwargs);
  Result result;
  const auto add = [&](const ReasoningDelta& delta) {
    CHECK_NOTHROW(Json(delta.reasoning).dump());
    CHECK_NOTHROW(Json(delta.content).dump());
    result.reasoning += delta.reasoning;
    result.content += delta.content;
    result.repeats = result.repeats || delta.repeats_thought;
  };
  for (const size_t piece : pieces) {
    add(parser->feed(text.substr(0, piece)));
    text.remove_prefix(piece);
  }
  add(parser->finish(setting.natural));
  return result;
}

/// Every dialect's tags and the marker of a tool call are single tokens.
const TokenCuts& token_cuts() {
  static const TokenCuts cuts = [] {
    std::vector<std::string> markers = {"<tool_call>", "</tool_call>", "<|message|>", "<|start|>",
                                        "<|eom|>",     "<|eot|>",      "<response>",  "<answer>"};
    for (const std::string& name : reasoning_dialect_names()) {
      const auto parser = make_reasoning_parser(find_reasoning_dialect(name), {}, nullptr);
      // The tags of granite are plain words.
      if (parser->start_text().find(' ') != std::string_view::npos) continue;
      markers.emplace_back(parser->start_text());
      markers.emplace_back(parser->end_text());
    }
    return TokenCuts(markers);
  }();
  return cuts;
}

/// Parses whole, in every way of cutting in two, by tokens, by small pieces and at random.
Result parse(std::string_view name, std::string_view text, const Setting& setting = {}) {
  CAPTURE(std::string(name));
  CAPTURE(std::string(text));
  const Result whole = parse_pieces(name, text, setting, {text.size()});
  for (size_t cut = 1; cut < text.size(); ++cut) {
    CHECK(parse_pieces(name, text, setting, {cut, text.size() - cut}) == whole);
  }
  for (const size_t piece : {1, 2, 3, 7}) {
    std::vector<size_t> pieces(text.size() / piece, piece);
    pieces.push_back(text.size() % piece);
    CHECK(parse_pieces(name, text, setting, pieces) == whole);
  }
  CHECK(parse_pieces(name, text, setting, token_cuts()(text)) == whole);
  std::mt19937 random(5);
  for (int i = 0; i < 10; ++i) {
    std::vector<size_t> pieces;
    for (size_t left = text.size(); left > 0; left -= pieces.back()) {
      pieces.push_back(std::min<size_t>(left, 1 + random() % 9));
    }
    CHECK(parse_pieces(name, text, setting, pieces) == whole);
  }
  return whole;
}

Result thought(std::string reasoning, std::string content) {
  return {std::move(reasoning), std::move(content), false};
}
Result repeated(const std::string& text) { return {text, text, true}; }

std::ostream& operator<<(std::ostream& out, const Result& r) {
  return out << Json{{"reasoning", r.reasoning}, {"content", r.content}, {"repeats", r.repeats}}.dump();
}

// Sanitizers make every byte many times dearer.
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kHostileBytes = 50000;
#else
constexpr size_t kHostileBytes = 1000000;
#endif

constexpr std::string_view kOpenPrompt = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n";
constexpr std::string_view kClosedPrompt =
    "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
constexpr std::string_view kPlainPrompt =
    "<|im_start|>user\nwhat is <think>?<|im_end|>\n<|im_start|>assistant\n";

}  // namespace

TEST_CASE("REAS-01 a prompt that ends inside a thought starts in the thought") {
  for (const char* name :
       {"think_auto", "qwen3", "deepseek_r1", "deepseek_v3", "glm47", "minimax_m2", "step3"}) {
    CHECK(parse(name, "a</think>\n\nb", {kOpenPrompt}) == thought("a", "b"));
    CHECK(parse(name, "\na\n\nb\n</think>\n\nc\nd\n", {kOpenPrompt}) == thought("a\n\nb", "c\nd\n"));
    CHECK(parse(name, "<think>a</think>b", {kOpenPrompt}) == thought("a", "b"));
  }
  CHECK(parse("think_auto", " on</think>b", {"<|im_start|>assistant\n<think>\nI go"}) == thought(" on", "b"));
  CHECK(parse("seed_oss", "a</seed:think>b", {"<seed:bos>assistant\n<seed:think>"}) == thought("a", "b"));
  CHECK(parse("mistral", "a[/THINK]b", {"[INST]hi[/INST][THINK]"}) == thought("a", "b"));
}

TEST_CASE("REAS-01 a prompt whose thought is closed, or has none, starts in the answer or undecided") {
  for (const char* name : {"think_auto", "qwen3", "deepseek_r1", "deepseek_v3", "glm47", "minimax_m2"}) {
    CHECK(parse(name, "a", {kClosedPrompt}) == thought("", "a"));
  }
  CHECK(parse("think_auto", "a", {kPlainPrompt}) == thought("", "a"));
  CHECK(parse("think_auto", "<think>a</think>b", {kPlainPrompt}) == thought("a", "b"));
}

TEST_CASE("REAS-02 a thought that is open at the end") {
  for (const char* name : {"think_auto", "qwen3", "deepseek_r1", "glm45", "step3"}) {
    CHECK(parse(name, "hello", {kOpenPrompt, true}) == repeated("hello"));
    CHECK(parse(name, "hello\n", {kOpenPrompt, false}) == thought("hello", ""));
    CHECK(parse(name, "<think>\nhello <tool_call>", {kPlainPrompt, true}) == repeated("hello <tool_call>"));
    CHECK(parse(name, "hello", {kClosedPrompt, true}) == thought("", "hello"));
    CHECK(parse(name, "\n\n", {kOpenPrompt, true}) == thought("", ""));
    CHECK(parse(name, "", {kOpenPrompt, true}) == thought("", ""));
    CHECK(parse(name, "half </thi", {kOpenPrompt, false}) == thought("half </thi", ""));
  }
}

TEST_CASE("REAS-03 an end tag without a thought is dropped and parts nothing") {
  for (const char* name : {"think_auto", "qwen3", "deepseek_r1", "mistral", "hunyuan_a13b"}) {
    CHECK(parse(name, "a</think>b", {kClosedPrompt}) == thought("", "ab"));
  }
  CHECK(parse("think_auto", "a</think>b") == thought("", "ab"));
  CHECK(parse("deepseek_r1", "a</think>b") == thought("a", "b"));  // known to start in a thought
  CHECK(parse("qwen3", "a</think></think>b") == thought("a", "b"));
  CHECK(parse("deepseek_r1", "a</think>b</think>c") == thought("a", "b</think>c"));
}

TEST_CASE("REAS-04 what only looks like a tag is text") {
  CHECK(parse("think_auto", "<think>a < b</think>c </thinker> d") == thought("a < b", "c </thinker> d"));
  CHECK(parse("think_auto", "<thinking>a</thinking>") == thought("", "<thinking>a</thinking>"));
  CHECK(parse("think_auto", "see <think>a</think>") == thought("", "see <think>a</think>"));
  CHECK(parse("think_auto", " \n<think>\n</think>\nb") == thought("", "b"));
  CHECK(parse("think_auto", "  a <") == thought("", "  a <"));
  CHECK(parse("qwen3", "日本 </thi</think>\n語🎉") == thought("日本 </thi", "語🎉"));
}

TEST_CASE("TOOL-10 a tool marker inside a thought is reasoning") {
  const std::string call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  for (const char* name : {"qwen3", "kimi_k2", "glm45", "think_auto"}) {
    CHECK(parse(name, "x " + call + " y</think>" + call, {kOpenPrompt}) == thought("x " + call + " y", call));
  }
}

TEST_CASE("template kwargs turn thinking on and off") {
  const Json off = {{"enable_thinking", false}}, on = {{"enable_thinking", true}}, v3 = {{"thinking", true}};
  CHECK(parse("qwen3", "hello", {"", true, off}) == thought("", "hello"));
  CHECK(parse("qwen3", "a</think>b", {"", true, on}) == thought("a", "b"));
  CHECK(parse("glm45", "hello", {"", true, Json{{"thinking", false}}}) == thought("", "hello"));
  CHECK(parse("glm45", "a</think>b") == thought("a", "b"));
  CHECK(parse("deepseek_v3", "<think>a</think>b") == thought("", "<think>a</think>b"));
  CHECK(parse("deepseek_v3", "a</think>b", {"", true, v3}) == thought("a", "b"));
  CHECK(parse("holo2", "a</think>b") == thought("a", "b"));
  CHECK(parse("holo2", "a", {"", true, off}) == thought("", "a"));
  CHECK(parse("step3p5", "a\n</think>b", {"", true, off}) == thought("a", "b"));
  CHECK(parse("seed_oss", "a</seed:think>\nb") == thought("a", "b"));
  CHECK(parse("nemotron_v3", "hi", {"", true, off}) == thought("", "hi"));
  CHECK(parse("qwen3", "a</think>b", {kOpenPrompt, true, off}) == thought("a", "b"));
}

TEST_CASE("dialects with rules of their own") {
  CHECK(parse("none", "<think>a</think>b") == thought("", "<think>a</think>b"));
  CHECK(parse("minimax_m2", "a</think>\n\nb") == thought("a", "b"));
  CHECK(parse("minimax_m2_append_think", "a</think>b") == thought("", "<think>a</think>b"));
  CHECK(parse("step3", "a</think>b") == thought("a", "b"));
  CHECK(parse("olmo3", "<think>a</think>b") == thought("a", "b"));
  CHECK(parse("mistral", "x [THINK]a[/THINK] b") == thought("a", "x  b"));
  CHECK(parse("mistral", "x[/THINK] b") == thought("", "x b"));
  CHECK(parse("mistral", "[THINK]a", {"", false}) == thought("a", ""));
  CHECK(parse("mistral", "hello [THIN") == thought("", "hello [THIN"));
  CHECK(parse("granite", "Here is my thought process: a Here is my response: b") == thought(" a ", " b"));
  CHECK(parse("granite", "Here's my thought process:\na\nHere's my response:\nb") == thought("a", "b"));
  CHECK(parse("granite", "Here is my answer") == thought("", "Here is my answer"));
  CHECK(parse("ernie45", "a\n</think>\n\n<response>\nb\nc\n</response>\n") == thought("a", "b\nc"));
  CHECK(parse("ernie45", "a</think>b\n\nc") == thought("a", "b\n\nc"));
  CHECK(parse("hunyuan_a13b", "<think>\na\n</think>\n<answer>\nb\n</answer>") == thought("a", "b"));
  CHECK(parse("hunyuan_a13b", "plain") == thought("", "plain"));
  CHECK(parse("gemma4", "<|channel>thought\na\n<channel|>b") == thought("a", "b"));
  CHECK(parse("gemma4", "b", {"<|turn>model\n<|channel>thought\n<channel|>"}) == thought("", "b"));
  CHECK(parse("muse_glimmer", "to=self<|message|>a<|eom|><|start|>assistant to=user<|message|>b<|eot|>") ==
        thought("a", "b"));
  const std::string tool =
      "<|start|>assistant to=now<|message|><atem:function_calls></atem:function_calls><|eom|>";
  CHECK(parse("muse_glimmer", "to=self<|message|>a<|eom|>" + tool, {"", true, nullptr, true}) ==
        thought("a", tool));
  CHECK(parse("muse_glimmer", "plain") == thought("", "plain"));
}

namespace {

/// How a dialect is to read its own tags: serving.md, section 3.2, and the decisions of the design.
struct DialectRow {
  std::string_view name;
  bool open;  // a text without tags is a thought
  enum { Literal, Dropped } second_end = Literal;
  std::string start = "<think>", end = "</think>";
  bool anywhere = false;     // a thought may stand behind text
  bool switched_on = false;  // thinks only when the request says so
  std::string tool = "<tool_call>";
};

const DialectRow kRows[] = {
    {"think_auto", false},
    {"deepseek_r1", true},
    {.name = "deepseek_v3", .open = true, .switched_on = true},
    {"holo2", true},
    {"step3", true},
    {"olmo3", true},
    {"minimax_m2", true},
    {"ernie45", true},
    {"hunyuan_a13b", false},
    {.name = "poolside_v1", .open = true, .switched_on = true},
    {"qwen3", true, DialectRow::Dropped},
    {"mimo", true, DialectRow::Dropped},
    {"nemotron_v3", true, DialectRow::Dropped},
    {"glm45", true, DialectRow::Dropped},
    {"glm47", true, DialectRow::Dropped},
    {"step3p5", true, DialectRow::Dropped},
    {.name = "kimi_k2",
     .open = true,
     .second_end = DialectRow::Dropped,
     .tool = "<|tool_calls_section_begin|>"},
    {"seed_oss", true, DialectRow::Dropped, "<seed:think>", "</seed:think>", false, false,
     "<seed:tool_call>"},
    {"mistral", false, DialectRow::Dropped, "[THINK]", "[/THINK]", true, false, "[TOOL_CALLS]"},
    {"gemma4", false, DialectRow::Literal, "<|channel>thought", "<channel|>", true, false, "<|tool_call>"},
    {"granite", false, DialectRow::Literal, "Here is my thought process:", "Here is my response:", false,
     false, "<|tool_call|>"},
};

std::string without_last(const std::string& text, size_t bytes = 1) {
  return text.substr(0, text.size() - bytes);
}

}  // namespace

TEST_CASE("REAS-01 REAS-02 REAS-03 REAS-04 TOOL-10 every dialect reads at least twelve texts, cut anywhere") {
  std::map<std::string, int> texts;
  const auto expect = [&](std::string_view name, const std::string& text, const Result& result,
                          const Setting& setting = {}) {
    ++texts[std::string(name)];
    CHECK(parse(name, text, setting) == result);
  };

  for (const DialectRow& row : kRows) {
    const auto [s, e] = std::pair(row.start, row.end);
    Setting natural;
    if (row.switched_on) natural.kwargs = {{"thinking", true}};
    Setting cut = natural, open = natural, closed = natural;
    cut.natural = false;
    const std::string turn = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";
    const std::string open_prompt = turn + s + "\n", closed_prompt = turn + s + "\n\n" + e + "\n\n";
    open.prompt = open_prompt, closed.prompt = closed_prompt;
    const auto to = [&](const std::string& text, const Result& result, const Setting& setting) {
      expect(row.name, text, result, setting);
    };

    to("Hello, world.", row.open ? repeated("Hello, world.") : thought("", "Hello, world."), natural);
    to(s + "a b" + e + "c d", thought("a b", "c d"), natural);
    to(s + e + "c", thought("", "c"), natural);
    to(s + "\n\n" + e + "\n\nc", thought("", "c"), natural);
    to(s + "日本 — é" + e + "語🎉", thought("日本 — é", "語🎉"), natural);
    to(s + "a < b " + without_last(e) + "x" + e + "b " + without_last(s) + "y",
       thought("a < b " + without_last(e) + "x", "b " + without_last(s) + "y"), natural);
    to(s + "a" + e + "b " + without_last(s, 2), thought("a", "b " + without_last(s, 2)), natural);
    to(s + "a " + without_last(e, 2), thought("a " + without_last(e, 2), ""), cut);
    to(s + "a b", thought("a b", ""), cut);
    to(s + "a b", repeated("a b"), natural);
    to(s + "\na\n\nb\n" + e + "\n\nc\nd\n", thought("a\n\nb", "c\nd\n"), natural);
    to(s + "a" + e + "b" + e + "c",
       thought("a", row.second_end == DialectRow::Dropped ? "bc" : "b" + e + "c"), natural);
    to(s + "x " + row.tool + "{\"name\": \"now\"} y" + e + "z",
       thought("x " + row.tool + "{\"name\": \"now\"} y", "z"), natural);
    to("a" + e + "b", thought("a", "b"), open);
    to("a b", thought("", "a b"), closed);
    const std::string behind_text = "x " + s + "a" + e + "b";
    if (row.anywhere) {
      to(behind_text, thought("a", "x b"), natural);
    } else if (!row.open) {
      to(behind_text, thought("", behind_text), natural);
    } else {
      to("x " + e + "b", thought("x ", "b"), natural);
    }
  }

  const std::string self = "to=self<|message|>", user = "<|start|>assistant to=user<|message|>";
  const auto muse = [&](const std::string& text, const Result& result, const Setting& setting = {}) {
    expect("muse_glimmer", text, result, setting);
  };
  muse("Hello, world.", thought("", "Hello, world."));
  muse("to=user<|message|>Hello<|eot|>", thought("", "Hello"));
  muse(self + "a b<|eom|>" + user + "c d<|eot|>", thought("a b", "c d"));
  muse(self + "<|eom|>" + user + "c<|eot|>", thought("", "c"));
  muse(self + "日本 — é<|eom|>" + user + "語🎉<|eot|>", thought("日本 — é", "語🎉"));
  muse(self + "a <|eom| b<|eom|>" + user + "c to=self d", thought("a <|eom| b", "c to=self d"));
  muse(self + "a<|eom|>" + user + "b <|eo", thought("a", "b <|eo"));
  muse(self + "a <|eo", thought("a <|eo", ""), {.natural = false});
  muse(self + "a b", thought("a b", ""), {.natural = false});
  muse(self + "a b", repeated("a b"));
  muse(self + "\na\n\nb\n<|eom|>" + user + "\n\nc\nd\n", thought("a\n\nb", "c\nd\n"));
  muse("x<|eom|><|start|>assistant " + self + "a<|eom|>" + user + "b<|eot|>", thought("a", "xb"));
  muse(self + "x <atem:function_calls> y<|eom|>" + user + "z<|eot|>",
       thought("x <atem:function_calls> y", "z"));
  muse(" " + self + "a<|eom|>" + user + "b<|eot|>", thought("a", "b"), {"<|start|>assistant"});
  muse("a b<|eot|>", thought("", "a b"), {"<|start|>assistant to=self<|message|>t<|eom|>" + user});

  // Nothing is parted.
  for (const std::string text :
       {"", "Hello, world.", "<think>a b</think>c d", "<think></think>c", "<think>日本</think>語🎉",
        "<think>a < b </thinkx</think>c", "a</think>b", "<think>a </thi", "<think>a b",
        "\n<think>\na\n</think>\n\nb\n", "a</think>b</think>c", "<think><tool_call></think>z",
        "x <think>a</think>b"}) {
    for (const std::string_view prompt : {std::string_view(), kOpenPrompt, kClosedPrompt}) {
      expect("none", text, thought("", text), {prompt});
      expect("minimax_m2_append_think", text, thought("", "<think>" + text), {prompt});
    }
  }

  for (const std::string& name : reasoning_dialect_names()) {
    CAPTURE(name);
    CHECK(texts[name] >= 12);
  }
  CHECK(token_cuts().is_one_token("[/THINK]"));
  CHECK(token_cuts()("a</think>b") == std::vector<size_t>{1, 8, 1});
}

TEST_CASE("REAS-05 the state tells when the constraint begins") {
  const auto parser = make_reasoning_parser(find_reasoning_dialect("think_auto"), {kOpenPrompt}, nullptr);
  CHECK(parser->thinking());
  parser->feed("a</thin");
  CHECK(parser->thinking());
  parser->feed("k>");
  CHECK_FALSE(parser->thinking());
  CHECK(parser->start_text() == "<think>");
  CHECK(parser->end_text() == "</think>");

  const auto open = make_reasoning_parser(find_reasoning_dialect("think_auto"), {kPlainPrompt}, nullptr);
  CHECK(open->undecided());
  CHECK_FALSE(open->thinking());
  open->feed("\n<th");
  CHECK(open->undecided());
  open->feed("ink>");
  CHECK(open->thinking());
  const auto closed = make_reasoning_parser(find_reasoning_dialect("qwen3"), {kClosedPrompt}, nullptr);
  CHECK_FALSE(closed->thinking());
  CHECK_FALSE(closed->undecided());
}

TEST_CASE("names and detection") {
  CHECK(reasoning_dialect_name(detect_reasoning_dialect("{{ '[THINK]' }}")) == "mistral");
  CHECK(reasoning_dialect_name(detect_reasoning_dialect("x <think> y")) == "think_auto");
  CHECK(reasoning_dialect_name(detect_reasoning_dialect("nothing")) == "none");
  for (const char* name : {"think_auto",
                           "deepseek_r1",
                           "deepseek_v3",
                           "holo2",
                           "mistral",
                           "minimax_m2",
                           "minimax_m2_append_think",
                           "step3",
                           "olmo3",
                           "muse_glimmer",
                           "qwen3",
                           "mimo",
                           "none",
                           "glm45",
                           "glm47",
                           "kimi_k2",
                           "seed_oss",
                           "step3p5",
                           "gemma4",
                           "granite",
                           "ernie45",
                           "hunyuan_a13b",
                           "nemotron_v3",
                           "poolside_v1"}) {
    CHECK(reasoning_dialect_name(find_reasoning_dialect(name)) == name);
  }
  try {
    find_reasoning_dialect("qwen9");
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.status() == Status::InvalidArgument);
    CHECK(error.message().find("'qwen9'") != std::string::npos);
    CHECK(error.message().find("think_auto") != std::string::npos);
  }
}

TEST_CASE("hostile texts take linear time") {
  for (const std::string& name : reasoning_dialect_names()) {
    CAPTURE(name);
    const std::string start(make_reasoning_parser(find_reasoning_dialect(name), {}, nullptr)->start_text());
    const std::string end(make_reasoning_parser(find_reasoning_dialect(name), {}, nullptr)->end_text());
    for (const std::string& unit :
         {std::string("<"), std::string("\n"), start + "x", end, start + end, end.substr(0, 5),
          std::string("Here is my "), std::string(" to=self"), std::string("<|start|>")}) {
      if (unit.empty()) continue;
      std::string text;
      while (text.size() < kHostileBytes) text += unit;
      const auto begin = std::chrono::steady_clock::now();
      const Result whole = parse_pieces(name, text, {}, {text.size()});
      std::vector<size_t> pieces(text.size() / 5, 5);
      pieces.push_back(text.size() % 5);
      Result cut;
      const auto parser = make_reasoning_parser(find_reasoning_dialect(name), {}, nullptr);
      size_t at = 0;
      for (const size_t piece : pieces) {
        const ReasoningDelta delta = parser->feed(std::string_view(text).substr(at, piece));
        cut.reasoning += delta.reasoning, cut.content += delta.content;
        at += piece;
      }
      const ReasoningDelta delta = parser->finish(true);
      cut.reasoning += delta.reasoning, cut.content += delta.content;
      CHECK(cut.reasoning == whole.reasoning);
      CHECK(cut.content == whole.content);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      CHECK(took.count() < 10);
    }
  }
}

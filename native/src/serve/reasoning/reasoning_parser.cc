#include "serve/reasoning/reasoning_parser.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "serve/parsing/reader.h"
#include "serve/parsing/utf8_tail.h"

namespace vllm {

/// Where a text stands that carries no tag yet.
enum class Thought {
  Open,       // inside a thought
  Undecided,  // a start tag may come first
  Closed      // in the answer
};

struct ReasoningDialect {
  std::string_view name;
  std::vector<std::string_view> starts, ends;   // the first is the one that models use
  Thought by_default = Thought::Undecided;      // without a tag in the prompt
  std::vector<std::string_view> switches = {};  // template kwargs that turn thinking on or off
  bool on = true;                               // without such a kwarg
  bool identity_when_off = false;               // then nothing is looked for
  bool anywhere = false;                        // thoughts may begin behind text
  bool drop_repeated_end = false;               // end tags behind the first are markup as well
  std::vector<std::string_view> wrappers = {};  // markup around the answer, goes with line breaks next to it
  std::string_view prefix = "";                 // content in front of all text, which is content as well
  bool messages = false;                        // thoughts are messages of their own
};

namespace {

using Texts = std::vector<std::string_view>;

const std::vector<ReasoningDialect>& dialects() {
  static const Texts kStart = {"<think>"}, kEnd = {"</think>"};
  static const Texts kSwitch = {"enable_thinking"}, kBoth = {"thinking", "enable_thinking"};
  const auto switched = [](std::string_view name, Texts switches) {
    return ReasoningDialect{.name = name,
                            .starts = kStart,
                            .ends = kEnd,
                            .by_default = Thought::Open,
                            .switches = std::move(switches),
                            .drop_repeated_end = true};
  };
  const auto open = [](std::string_view name) {
    return ReasoningDialect{.name = name, .starts = kStart, .ends = kEnd, .by_default = Thought::Open};
  };
  static const std::vector<ReasoningDialect> table = {
      {.name = "none", .starts = {}, .ends = {}, .by_default = Thought::Closed},
      {.name = "think_auto", .starts = kStart, .ends = kEnd},
      open("deepseek_r1"),
      {.name = "deepseek_v3",
       .starts = kStart,
       .ends = kEnd,
       .by_default = Thought::Open,
       .switches = kBoth,
       .on = false,
       .identity_when_off = true},
      {.name = "poolside_v1",
       .starts = kStart,
       .ends = kEnd,
       .by_default = Thought::Open,
       .switches = kBoth,
       .on = false,
       .identity_when_off = true},
      {.name = "holo2",
       .starts = kStart,
       .ends = kEnd,
       .by_default = Thought::Open,
       .switches = kBoth,
       .identity_when_off = true},
      switched("qwen3", kSwitch),
      switched("mimo", kSwitch),
      switched("nemotron_v3", kSwitch),
      switched("glm45", kBoth),
      switched("glm47", kBoth),
      switched("kimi_k2", kBoth),
      {.name = "seed_oss",
       .starts = {"<seed:think>"},
       .ends = {"</seed:think>"},
       .by_default = Thought::Open,
       .switches = kSwitch,
       .drop_repeated_end = true},
      switched("step3p5", {}),
      open("minimax_m2"),
      {.name = "minimax_m2_append_think",
       .starts = kStart,
       .ends = kEnd,
       .by_default = Thought::Open,
       .prefix = "<think>"},
      open("step3"),
      open("olmo3"),
      {.name = "mistral",
       .starts = {"[THINK]", "<think>"},
       .ends = {"[/THINK]", "</think>"},
       .anywhere = true,
       .drop_repeated_end = true},
      {.name = "granite",
       .starts = {"Here is my thought process:", "Here's my thought process:"},
       .ends = {"Here is my response:", "Here's my response:"}},
      {.name = "ernie45",
       .starts = kStart,
       .ends = kEnd,
       .by_default = Thought::Open,
       .wrappers = {"<response>", "</response>"}},
      {.name = "hunyuan_a13b", .starts = kStart, .ends = kEnd, .wrappers = {"<answer>", "</answer>"}},
      {.name = "gemma4", .starts = {"<|channel>thought"}, .ends = {"<channel|>"}, .anywhere = true},
      {.name = "muse_glimmer",
       .starts = {"to=self<|message|>"},
       .ends = {"<|eom|>", "<|eot|>", "<|start|>"},
       .messages = true},
  };
  return table;
}

std::string_view strip_leading_breaks(std::string_view text) {
  const size_t at = text.find_first_not_of("\r\n");
  return text.substr(std::min(at, text.size()));
}

class ReasoningOutput {
 public:
  void reasoning(std::string_view text) {
    if (!any_reasoning_) text = strip_leading_breaks(text);
    if (text.empty()) return;
    any_reasoning_ = true;
    const size_t last = text.find_last_not_of("\r\n");
    const std::string_view body = text.substr(0, last == text.npos ? 0 : last + 1);
    if (!body.empty()) {
      add_reasoning(breaks_);
      add_reasoning(body);
      breaks_.clear();
    }
    breaks_ += text.substr(body.size());
  }

  /// A thought has ended: what stands around it is stripped.
  void end_thought() {
    breaks_.clear();
    strip_content_ = true;
  }

  void content(std::string_view text) {
    if (strip_content_) text = strip_leading_breaks(text);
    if (text.empty()) return;
    strip_content_ = false;
    any_content_ = true;
    // Line breaks in front of a wrapper's end go with it.
    const size_t last = text.find_last_not_of("\r\n");
    const std::string_view body = hold_breaks ? text.substr(0, last == text.npos ? 0 : last + 1) : text;
    if (!body.empty()) {
      content_ += content_breaks_;
      content_breaks_.clear();
      content_ += body;
    }
    content_breaks_ += text.substr(body.size());
  }
  void wrapper() {
    content_breaks_.clear();
    strip_content_ = true;
  }

  ReasoningDelta take(bool ended) {
    if (ended) content_ += content_breaks_;
    if (ended) content_breaks_.clear();
    ReasoningDelta delta;
    if (ended) {
      delta.reasoning.swap(reasoning_);
      delta.content.swap(content_);
    } else {
      delta.reasoning = take_whole_characters(reasoning_);
      delta.content = take_whole_characters(content_);
    }
    return delta;
  }

  const std::string& whole_thought() const { return whole_; }
  bool any_content() const { return any_content_; }
  bool hold_breaks = false;

 private:
  void add_reasoning(std::string_view text) {
    reasoning_ += text;
    whole_ += text;
  }

  std::string reasoning_, content_;
  std::string whole_;   // all reasoning
  std::string breaks_;  // line breaks that may be the end of the thought
  std::string content_breaks_;
  bool any_reasoning_ = false;
  bool any_content_ = false;
  bool strip_content_ = false;
};

struct ReasoningContext {
  Reader in;
  ReasoningOutput out;
  Thought state = Thought::Closed;
  bool tools_active = false;

  Sink reasoning() {
    return [this](std::string_view text) { out.reasoning(text); };
  }
  Sink content() {
    return [this](std::string_view text) { out.content(text); };
  }
};

/// White space and a start tag; without the tag the white space is text.
Task<bool> read_start(ReasoningContext& context, const ReasoningDialect& dialect, Sink otherwise) {
  Reader& in = context.in;
  Held held(in);
  co_await skip_space(in);
  const int start = co_await accept_any(in, dialect.starts);
  if (start < 0 && !held.text().empty()) otherwise(held.text());
  co_return start >= 0;
}

Task<> read_thoughts(ReasoningContext& context, const ReasoningDialect& dialect) {
  Reader& in = context.in;
  if (!dialect.prefix.empty()) context.out.content(dialect.prefix);
  if (dialect.starts.empty() || !dialect.prefix.empty()) {
    if (context.state == Thought::Open) co_await read_until(in, dialect.ends, context.content());
    context.state = Thought::Closed;
    const Texts no_tags;
    co_await read_until(in, no_tags, context.content());
    co_return;
  }
  Texts in_content = dialect.wrappers;
  const int ends_at = static_cast<int>(in_content.size());
  in_content.insert(in_content.end(), dialect.ends.begin(), dialect.ends.end());
  const int starts_at = static_cast<int>(in_content.size());
  in_content.insert(in_content.end(), dialect.starts.begin(), dialect.starts.end());
  context.out.hold_breaks = !dialect.wrappers.empty();

  if (context.state == Thought::Open) {
    // Models write the start tag although the prompt has it, or because it has not.
    co_await read_start(context, dialect, context.reasoning());
  } else {
    const bool started = co_await read_start(context, dialect, context.content());
    context.state = started ? Thought::Open : Thought::Closed;
  }
  bool any_thought = false;
  bool literal_start = false;  // a start tag has been text
  for (;;) {
    if (context.state == Thought::Open) {
      any_thought = true;
      const Match end = co_await read_until(in, dialect.ends, context.reasoning());
      if (end.which < 0) co_return;
      in.skip(end.size);
      context.out.end_thought();
      context.state = Thought::Closed;
    }
    const Match tag = co_await read_until(in, in_content, context.content());
    if (tag.which < 0) co_return;
    const std::string text(in.rest().substr(0, tag.size));
    in.skip(tag.size);
    if (tag.which < ends_at) {
      context.out.wrapper();
    } else if (tag.which < starts_at) {
      // An end tag that ends nothing is dropped and parts nothing.
      const bool lone = !any_thought && !literal_start;
      if (!lone && !dialect.drop_repeated_end) context.out.content(text);
    } else if (dialect.anywhere) {
      context.state = Thought::Open;
    } else {
      literal_start = true;
      context.out.content(text);
    }
  }
}

/// Messages `to=NAME<|message|>body<|eom|>`: those to the model itself are thoughts. Others lose their
/// framing unless a tool parser needs it.
Task<> read_messages(ReasoningContext& context, const ReasoningDialect& dialect) {
  Reader& in = context.in;
  static constexpr std::string_view kHeaderEnd[] = {"<|message|>", "<|start|>", "<|eom|>", "<|eot|>"};
  static constexpr std::string_view kBodyEnd[] = {"<|eom|>", "<|eot|>", "<|start|>"};
  static constexpr std::string_view kHeads[] = {"<|start|>", "<|message|>", "to=", " to=", "\nto="};
  // The prompt may have the header of a thought.
  const bool opened = context.state == Thought::Open;
  bool behind_thought = false;
  for (bool first = true;; first = false) {
    bool self = first && opened;
    std::string header;
    Match head;
    if (self) {
      co_await read_start(context, dialect, context.reasoning());
    } else if (first) {
      head = co_await look(in, kHeads);
    } else {
      co_await read_until(in, kHeads, context.content());
      head = co_await look(in, kHeads);
      if (head.which < 0) co_return;
    }
    if (head.which >= 0) {
      // A header that never ends is text.
      for (;;) {
        const Match end = co_await look(in, kHeaderEnd);
        if (end.which == 0 || (end.which > 0 && !header.empty())) break;
        const int byte = co_await in.peek();
        if (byte < 0 || header.size() > 256) break;
        header += static_cast<char>(byte);
        in.skip(1);
      }
      const bool complete = co_await accept(in, "<|message|>");
      if (complete) header += "<|message|>";
      self = complete && header.find("to=self<|message|>") != header.npos;
      const bool to_user =
          header.find("to=") == header.npos || header.find("to=user<|message|>") != header.npos;
      // A constrained answer has no header: what closed the thought is not part of it.
      if (!complete && behind_thought && header.starts_with("<|start|>")) header.erase(0, 9);
      if (!self && (!complete || context.tools_active || !to_user)) context.out.content(header);
      if (!complete) continue;
    }
    context.state = self ? Thought::Open : Thought::Closed;
    const Match end = co_await read_until(in, kBodyEnd, self ? context.reasoning() : context.content());
    if (end.which < 0) co_return;
    const std::string text(in.rest().substr(0, end.size));
    if (end.which < 2) in.skip(end.size);
    const bool framed = context.tools_active || (!header.empty() && header.find("to=") != header.npos &&
                                                 header.find("to=user<") == header.npos);
    behind_thought = self;
    if (self) {
      context.out.end_thought();
    } else if (end.which < 2 && framed) {
      context.out.content(text);
    }
    context.state = Thought::Closed;
  }
}

/// The place of the start tag that stands last in the prompt, 0 when there is none.
size_t last_start(std::string_view prompt, const Texts& starts) {
  size_t best = 0, best_at = prompt.npos;
  for (size_t i = 0; i < starts.size(); ++i) {
    const size_t at = prompt.rfind(starts[i]);
    if (at == prompt.npos || (best_at != prompt.npos && at <= best_at)) continue;
    best = i;
    best_at = at;
  }
  return best;
}

/// Where the prompt leaves the model, by the tags at its end.
Thought state_of_prompt(std::string_view prompt, const ReasoningDialect& dialect, Thought otherwise) {
  const auto ends_with = [&](const Texts& texts) {
    const std::string_view tail = trim(prompt.substr(prompt.size() - std::min<size_t>(prompt.size(), 256)));
    return std::any_of(texts.begin(), texts.end(),
                       [&](std::string_view text) { return tail.ends_with(text); });
  };
  if (ends_with(dialect.starts)) return Thought::Open;
  if (ends_with(dialect.ends)) return Thought::Closed;
  // A tag further up counts when it stands in the turn that is to be continued.
  static constexpr std::string_view kTurns[] = {
      "<|im_start|>",    "<|im_end|>",        "<seed:bos>",    "<seed:eos>",
      "<|system|>",      "<|user|>",          "<|assistant|>", "<assistant>",
      "<|observation|>", "<｜Assistant｜>",   "<｜User｜>",    "[/INST]",
      "[INST]",          "<|end_header_id|>", "<|eot_id|>",    "<|im_middle|>",
      "<|turn>",         "<start_of_turn>",   "]~b]",          "<|start|>",
      "<|end_of_role|>", "[/SYSTEM_PROMPT]"};
  size_t turn = prompt.npos;
  for (const std::string_view text : kTurns) {
    const size_t at = prompt.rfind(text);
    if (at != prompt.npos && (turn == prompt.npos || at > turn)) turn = at;
  }
  if (turn == prompt.npos) return otherwise;
  const std::string_view tail = prompt.substr(turn);
  const auto last = [&](const Texts& texts) {
    size_t best = 0;
    for (const std::string_view text : texts) {
      const size_t at = tail.rfind(text);
      if (at != tail.npos) best = std::max(best, at + 1);
    }
    return best;
  };
  const size_t start = last(dialect.starts), end = last(dialect.ends);
  if (start == 0 && end == 0) return otherwise;
  return start > end ? Thought::Open : Thought::Closed;
}

class DialectReasoningParser : public ReasoningParser {
 public:
  DialectReasoningParser(const ReasoningDialect& dialect, Thought state, const ReasoningStart& start)
      : dialect_(dialect),
        prompt_start_(state == Thought::Open ? last_start(start.prompt, dialect.starts) : 0) {
    context_.state = state;
    context_.tools_active = start.tools_active;
    task_ = dialect.messages ? read_messages(context_, dialect_) : read_thoughts(context_, dialect_);
  }

  ReasoningDelta feed(std::string_view bytes) override {
    context_.in.feed(bytes);
    task_.rethrow();
    return context_.out.take(false);
  }

  ReasoningDelta finish(bool stopped_naturally) override {
    context_.in.end();
    task_.rethrow();
    ReasoningDelta delta = context_.out.take(true);
    if (stopped_naturally && thinking() && !context_.out.any_content()) {
      delta.content = context_.out.whole_thought();
      delta.repeats_thought = !delta.content.empty();
    }
    return delta;
  }

  bool thinking() const override { return context_.state == Thought::Open; }
  bool undecided() const override { return context_.state == Thought::Undecided; }
  std::string_view start_text() const override { return dialect_.starts.empty() ? "" : dialect_.starts[0]; }
  std::string_view end_text() const override { return dialect_.ends.empty() ? "" : dialect_.ends[0]; }
  const Texts& start_texts() const override { return dialect_.starts; }
  const Texts& end_texts() const override { return dialect_.ends; }
  size_t prompt_start() const override { return prompt_start_; }

 private:
  static Task<> nothing() { co_return; }

  ReasoningDialect dialect_;
  size_t prompt_start_;
  ReasoningContext context_;
  Task<> task_ = nothing();
};

}  // namespace

const ReasoningDialect& find_reasoning_dialect(std::string_view name) {
  for (const ReasoningDialect& dialect : dialects()) {
    if (dialect.name == name) return dialect;
  }
  std::string list;
  for (const std::string& known : reasoning_dialect_names()) list += (list.empty() ? "" : ", ") + known;
  fail_argument("reasoning_parser is %s, which is no known parser; it must be one of %s.",
                quote(name).c_str(), list.c_str());
}

const ReasoningDialect& detect_reasoning_dialect(std::string_view source) {
  static constexpr std::pair<std::string_view, std::string_view> kRows[] = {
      {"[THINK]", "mistral"},
      {"<think>", "think_auto"},
      {"<seed:think>", "seed_oss"},
      {"<|channel>thought", "gemma4"},
      {"<atem:function_calls>", "muse_glimmer"},
      {"Here is my thought process:", "granite"},
  };
  for (const auto& [text, name] : kRows) {
    if (source.find(text) != source.npos) return find_reasoning_dialect(name);
  }
  return find_reasoning_dialect("none");
}

std::vector<std::string> reasoning_dialect_names() {
  std::vector<std::string> names;
  for (const ReasoningDialect& dialect : dialects()) names.emplace_back(dialect.name);
  std::sort(names.begin(), names.end());
  return names;
}

std::string_view reasoning_dialect_name(const ReasoningDialect& dialect) { return dialect.name; }

std::unique_ptr<ReasoningParser> make_reasoning_parser(const ReasoningDialect& dialect,
                                                       const ReasoningStart& start,
                                                       const Json& template_kwargs) {
  bool on = dialect.on;
  bool given = false;
  if (template_kwargs.is_object()) {
    for (const std::string_view name : dialect.switches) {
      const auto value = template_kwargs.find(name);
      if (value == template_kwargs.end() || !value->is_boolean()) continue;
      on = given ? on || value->get<bool>() : value->get<bool>();
      given = true;
    }
  }
  Thought state = on ? dialect.by_default : Thought::Closed;
  if (!dialect.starts.empty()) state = state_of_prompt(start.prompt, dialect, state);
  // Behind a message that has ended a thought may begin.
  if (dialect.messages && state == Thought::Closed) state = dialect.by_default;
  if (!on && dialect.identity_when_off && state != Thought::Open) {
    static const ReasoningDialect& none = find_reasoning_dialect("none");
    return std::make_unique<DialectReasoningParser>(none, Thought::Closed, start);
  }
  return std::make_unique<DialectReasoningParser>(dialect, state, start);
}

}  // namespace vllm

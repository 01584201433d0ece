// Dialects that no shared mechanism covers whole: they cut the text and leave the bodies to the JSON and tag
// readers.
#include "serve/tools/dialect.h"

namespace vllm {

/// A list of calls that is the whole text or stands behind </think>; or in a fence, [TOOL_CALLS] or
/// <tool_call>.
Task<> read_xlam(ToolContext& context) {
  Reader& in = context.in;
  static constexpr std::string_view kBegins[] = {"```json", "[TOOL_CALLS]", "<tool_call>", "</think>", "```"};
  static constexpr std::string_view kEnds[] = {"```", "[/TOOL_CALLS]", "</tool_call>"};
  const JsonCallKeys keys;
  for (bool start = true;; start = false) {
    Match begin;
    if (!start) {
      begin = co_await read_until(in, kBegins, context.content());
      if (begin.which < 0) co_return;
    }
    Held held(in);
    in.skip(begin.size);
    co_await skip_space(in);
    const int first = co_await in.peek();
    std::vector<FoundCall> calls;
    bool read = false;
    Match marker;
    if (start && first == '[') marker = co_await look(in, kBegins);
    if (first == '[' && marker.kind == Match::No) read = co_await read_json_calls(in, keys, &calls);
    if (read && !start && begin.which != 3) {
      co_await skip_space(in);
      const int end = co_await accept_any(in, kEnds);
      const int next = co_await in.peek();
      read = end >= 0 || next < 0 || begin.which == 1;
    }
    if (read && !calls.empty()) {
      for (const FoundCall& call : calls) context.out.call(call.name, call.arguments);
    } else if (first != '[') {
      context.out.text(held.text());  // a fence or tag around something else
    } else {
      context.out.rejected(held.text());
    }
  }
}

/// `function call<|role_sep|>` behind a message separator, or <|function_call|>; one call, </s> at the end.
Task<> read_gigachat3(ToolContext& context) {
  Reader& in = context.in;
  static constexpr std::string_view kBegins[] = {"<|message_sep|>", "<|function_call|>", "</s>"};
  const JsonCallKeys keys;
  for (;;) {
    const Match begin = co_await read_until(in, kBegins, context.content());
    if (begin.which < 0) co_return;
    Held held(in);
    in.skip(begin.size);
    if (begin.which == 2) continue;
    bool header = true;
    if (begin.which == 0) {
      co_await skip_space(in);
      header = co_await accept(in, "function call<|role_sep|>");
    }
    std::vector<FoundCall> calls;
    bool read = false;
    if (header) read = co_await read_json_calls(in, keys, &calls);
    if (read && !calls.empty()) {
      for (const FoundCall& call : calls) context.out.call(call.name, call.arguments);
    } else {
      context.out.rejected(held.text());
    }
  }
}

/// Calls as of hermes; the answer may stand in <response>, whose tags go with the newlines behind them.
Task<> read_ernie45(ToolContext& context) {
  Reader& in = context.in;
  static constexpr std::string_view kMarks[] = {"<tool_call>", "<response>", "</response>", "</think>"};
  static constexpr std::string_view kEnd[] = {"</tool_call>"};
  const JsonCallKeys keys;
  for (;;) {
    const Match mark = co_await read_until(in, kMarks, context.content());
    if (mark.which < 0) co_return;
    if (mark.which > 0) {
      in.skip(mark.size);
      co_await accept(in, "\n");
      continue;
    }
    Held held(in);
    in.skip(mark.size);
    std::vector<FoundCall> calls;
    bool read = co_await read_json_calls(in, keys, &calls);
    if (read) {
      co_await skip_space(in);
      const int end = co_await accept_any(in, kEnd);
      const Match again = co_await look(in, kMarks);
      const int next = co_await in.peek();
      read = end >= 0 || next < 0 || again.kind == Match::Yes;
    }
    if (read && !calls.empty()) {
      for (const FoundCall& call : calls) context.out.call(call.name, call.arguments);
    } else {
      context.out.rejected(held.text());
    }
  }
}

/// A list in <tool_calls>; one inside <think> is none.
Task<> read_hunyuan_a13b(ToolContext& context) {
  Reader& in = context.in;
  static constexpr std::string_view kMarks[] = {"<tool_calls>", "<think>"};
  static constexpr std::string_view kThinkEnd[] = {"</think>"};
  const JsonCallKeys keys;
  for (;;) {
    const Match mark = co_await read_until(in, kMarks, context.content());
    if (mark.which < 0) co_return;
    if (mark.which == 1) {
      co_await read_until(in, kThinkEnd, context.content());
      continue;
    }
    Held held(in);
    in.skip(mark.size);
    std::vector<FoundCall> calls;
    bool read = co_await read_json_calls(in, keys, &calls);
    if (read) {
      co_await skip_space(in);
      const bool end = co_await accept(in, "</tool_calls>");
      const int next = co_await in.peek();
      read = end || next < 0;
    }
    if (read && !calls.empty()) {
      for (const FoundCall& call : calls) context.out.call(call.name, call.arguments);
    } else {
      context.out.rejected(held.text());
    }
  }
}

/// Messages of channels, each <|message_model|><|content_KIND|>body<|end_message|>; text bodies are content.
Task<> read_inkling(ToolContext& context) {
  Reader& in = context.in;
  static constexpr std::string_view kInvoke = "<|content_invoke_tool_json|>";
  static constexpr std::string_view kMarks[] = {kInvoke, "<|message_model|>", "<|end_message|>",
                                                "<|content_text|>", "<|content_model_end_sampling|>"};
  JsonCallKeys keys;
  keys.arguments = {"args", "arguments", "parameters"};
  for (;;) {
    const Match mark = co_await read_until(in, kMarks, context.content());
    if (mark.which < 0) co_return;
    Held held(in);
    in.skip(mark.size);
    if (mark.which > 0) continue;
    std::vector<FoundCall> calls;
    bool read = co_await read_json_calls(in, keys, &calls);
    if (read) {
      co_await skip_space(in);
      const Match end = co_await look(in, kMarks);
      const int next = co_await in.peek();
      read = end.kind == Match::Yes || next < 0;
    }
    if (read && !calls.empty()) {
      for (const FoundCall& call : calls) context.out.call(call.name, call.arguments);
    } else {
      context.out.rejected(held.text());
    }
  }
}

namespace {

constexpr std::string_view kMessage = "<|message|>";
constexpr size_t kMaxHeader = 256;

/// `<|start|>assistant to=NAME<|message|>`; what stands in front of to= may be missing.
Match match_message_header(std::string_view text, bool ended) {
  const size_t end = text.substr(0, kMaxHeader + kMessage.size()).find(kMessage);
  Match match;
  if (end == text.npos) {
    // Without its end it is a header as long as it could become one.
    std::string_view rest = text;
    static constexpr std::string_view kStart = "<|start|>";
    if (!rest.starts_with(kStart) && !kStart.starts_with(rest.substr(0, kStart.size())) && rest[0] == '<' &&
        !kMessage.starts_with(rest)) {
      return match;
    }
    static constexpr std::string_view kTo = "to=";
    if (rest[0] != '<' && !rest.starts_with(kTo) && !kTo.starts_with(rest)) return match;
    if (rest.starts_with(kStart)) rest.remove_prefix(kStart.size());
    const bool plain = rest.find_first_of("\n{}") == rest.npos;
    if (!ended && text.size() < kMaxHeader && plain) match.kind = Match::More;
    return match;
  }
  std::string_view header = trim(text.substr(0, end));
  if (header.starts_with("<|start|>")) header.remove_prefix(9);
  header = trim(header);
  if (header.starts_with("assistant")) header.remove_prefix(9);
  header = trim(header);
  if (!header.empty() && (!header.starts_with("to=") || header.find_first_of(" <\n") != header.npos))
    return match;
  if (!header.empty()) match.name = header.substr(3);
  match.kind = Match::Yes;
  match.size = end + kMessage.size();
  match.which = 0;
  return match;
}

}  // namespace

/// Tag calls in messages that are addressed to a tool. Messages to the user are content, those to the model
/// itself are thoughts. A text without any header is read as if addressed to both.
Task<> read_muse_glimmer(ToolContext& context) {
  Reader& in = context.in;
  static const TagStyle kTags = {.begins = {"<atem:function_calls>"},
                                 .end = "</atem:function_calls>",
                                 .call = "atem:invoke",
                                 .parameter = "atem:parameter",
                                 .form = TagForm::Attribute,
                                 .values = ValueRule::JsonOrText};
  enum { kHeader, kMessageEnd, kWrapper, kCall };
  enum class To { Anyone, User, Self, Tool };
  To to = To::Anyone;
  static constexpr std::string_view kEnds[] = {"<|eom|>", "<|eot|>"};
  static constexpr std::string_view kWrappers[] = {"<atem:function_calls>", "</atem:function_calls>"};
  const std::vector<std::string_view> stops = {"<|eom|>", "<|eot|>", "<|start|>"};

  // The first header of a turn has no <|start|>, which stands in the prompt.
  Matcher any_header = match_message_header;
  {
    Held held(in);
    co_await skip_space(in);
    const int first_byte = co_await in.peek();
    Match first;
    if (first_byte == 't' || first_byte == '<') first = co_await look(in, any_header);
    if (first.kind != Match::Yes) {
      context.out.rejected(held.text());
    } else {
      in.skip(first.size);
      to = first.name.empty() || first.name == "user" ? To::User : first.name == "self" ? To::Self : To::Tool;
    }
  }
  for (;;) {
    const bool calls = to == To::Tool || to == To::Anyone;
    Matcher matcher = [calls](std::string_view text, bool ended) {
      Match match = match_message_header(text, ended);
      if (text[0] != '<') match = Match();
      if (match.kind == Match::Yes) return match;
      Match end = match_any(text, ended, kEnds);
      if (end.kind == Match::Yes) end.which = kMessageEnd;
      if (end.kind != Match::No) return end;
      if (calls) {
        Match wrapper = match_any(text, ended, kWrappers);
        if (wrapper.kind == Match::Yes) wrapper.which = kWrapper;
        if (wrapper.kind == Match::Yes) return wrapper;
        Match call = match_open_tag(text, ended, "atem:invoke", TagForm::Attribute);
        if (call.kind == Match::Yes) call.which = kCall;
        if (call.kind == Match::Yes) return call;
        if (call.kind == Match::More || wrapper.kind == Match::More) match.kind = Match::More;
      }
      return match;
    };
    Sink sink = to == To::Self || to == To::Tool ? Sink() : context.content();
    const Match next = co_await read_until(in, "<", matcher, sink);
    if (next.which < 0) co_return;
    if (next.which == kCall) {
      co_await read_tag_call(context, kTags, stops);
      continue;
    }
    in.skip(next.size);
    if (next.which == kMessageEnd) to = To::Anyone;
    if (next.which == kHeader) {
      to = next.name.empty() || next.name == "user" ? To::User : next.name == "self" ? To::Self : To::Tool;
    }
  }
}

}  // namespace vllm

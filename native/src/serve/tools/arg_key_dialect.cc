#include "serve/tools/dialect.h"

namespace vllm {
namespace {

constexpr size_t kMaxName = 512;
constexpr size_t kMaxSuffix = 64;

/// One of `tags`, <NAME> or </NAME>, that may carry a suffix: <NAME_suffix> or <NAME:suffix>.
Match match_tags(std::string_view text, bool ended, std::span<const std::string_view> tags, bool suffixes) {
  if (!suffixes) return match_any(text, ended, tags);
  Match best;
  for (size_t i = 0; i < tags.size(); ++i) {
    const std::string_view stem = tags[i].substr(0, tags[i].size() - 1);
    if (!text.starts_with(stem)) {
      if (!ended && stem.starts_with(text)) best.kind = Match::More;
      continue;
    }
    size_t at = stem.size();
    while (at < text.size() && text[at] != '>' && text[at] != '<' && !is_space(text[at])) ++at;
    // <tool_call...> is no <tool_calls...>, whatever its suffix begins with.
    const bool longer = text.size() > stem.size() && (text[stem.size()] >= 'a' && text[stem.size()] <= 'z');
    if (longer || at - stem.size() > kMaxSuffix) continue;
    if (at == text.size()) {
      if (!ended) best.kind = Match::More;
      continue;
    }
    if (text[at] != '>') continue;
    best.kind = Match::Yes;
    best.size = at + 1;
    best.which = static_cast<int>(i);
    return best;
  }
  return best;
}

Matcher tag_matcher(std::vector<std::string_view> tags, bool suffixes) {
  return [tags = std::move(tags), suffixes](std::string_view text, bool ended) {
    return match_tags(text, ended, tags, suffixes);
  };
}

std::string value_json(ToolContext& context, const ArgKeyStyle& style, const std::string& tool,
                       const std::string& key, const std::string& value) {
  const ToolSchemas& tools = context.tools;
  if (!style.literal_values) return tools.to_json(tool, key, value);
  if (tools.is_text(tool, key)) return json_quote(value);
  const std::string_view bare = trim(value);
  const Json json = try_json(bare);
  if (!json.is_discarded()) return spaced_json(json);
  std::string literal;
  return python_literal_json(bare, &literal) ? literal : json_quote(bare);
}

enum Tag { kKey, kCallEnd, kCallBegin, kNameEnd };

/// Reads a call behind its begin tag. False: what was read is no call.
Task<bool> read_arg_key_call(ToolContext& context, const ArgKeyStyle& style) {
  Reader& in = context.in;
  co_await skip_space(in);
  const int first = co_await in.peek();
  if (first == '{') {
    // A model of another dialect: the call is a JSON object.
    std::vector<FoundCall> calls;
    const JsonCallKeys keys;
    const bool read = co_await read_json_calls(in, keys, &calls);
    if (!read) co_return false;
    co_await skip_space(in);
    const bool closed = co_await accept(in, "</tool_call>");
    const int next = co_await in.peek();
    if (!closed && next >= 0) co_return false;
    for (const FoundCall& call : calls) context.out.call(call.name, call.arguments);
    co_return true;
  }
  std::vector<std::string_view> tags = {"<arg_key>", "</tool_call>", "<tool_call>"};
  if (!style.name_end.empty()) tags = {style.name_end, "</tool_call>", "<tool_call>"};
  Matcher name_end = tag_matcher(tags, style.suffixes);
  std::string name;
  for (;;) {
    const int byte = co_await in.peek();
    if (byte < 0) co_return false;
    if (byte == '<') {
      const Match end = co_await look(in, name_end);
      if (end.kind != Match::Yes || end.which == kCallBegin) co_return false;
      if (!style.name_end.empty()) {
        if (end.which != kKey) co_return false;
        in.skip(end.size);
      }
      break;
    }
    if (name.size() >= kMaxName) co_return false;
    name += static_cast<char>(byte);
    in.skip(1);
  }
  name = trim(name);
  if (name.empty() || name.find_first_of("\n{}\"") != name.npos) co_return false;
  const bool sent = context.tools.empty() || context.tools.has(name);
  if (sent) context.out.begin_call(name);

  Matcher piece = tag_matcher({"<arg_key>", "</tool_call>", "<tool_call>"}, style.suffixes);
  Matcher key_end = tag_matcher({"</arg_key>", "<arg_value>", "</tool_call>"}, style.suffixes);
  Matcher value_begin = tag_matcher({"<arg_value>", "<arg_key>", "</tool_call>"}, style.suffixes);
  Matcher value_end = tag_matcher({"</arg_value>"}, style.suffixes);
  bool unfinished = false;
  for (;;) {
    const Match next = co_await read_until(in, "<", piece, nullptr);
    unfinished = next.which < 0;
    if (next.which == kCallEnd) in.skip(next.size);
    if (next.which != kKey) break;
    in.skip(next.size);
    std::string key, value;
    Sink to_key = [&key](std::string_view text) { key += text; };
    Sink to_value = [&value](std::string_view text) { value += text; };
    const Match after_key = co_await read_until(in, "<", key_end, to_key);
    if (after_key.which < 0 || after_key.which == 2) continue;
    if (after_key.which == 0) in.skip(after_key.size);
    const Match begin = co_await read_until(in, "<", value_begin, nullptr);
    if (begin.which != 0) continue;
    in.skip(begin.size);
    const Match end = co_await read_until(in, "<", value_end, to_value);
    unfinished = end.which < 0;
    if (unfinished) break;  // the text ends within the value: it is not the one that was meant
    in.skip(end.size);
    key = trim(key);
    if (sent) context.out.argument(key, value_json(context, style, name, key, value));
  }
  if (sent) context.out.end_call(unfinished);
  co_return true;
}

}  // namespace

Task<> read_arg_key_dialect(ToolContext& context, const ArgKeyStyle& style) {
  Reader& in = context.in;
  const bool sections = !style.section_begin.empty();
  std::vector<std::string_view> outside_tags = style.begins;
  if (sections) outside_tags.push_back(style.section_begin);
  std::vector<std::string_view> inside_tags = outside_tags;
  if (sections) inside_tags.push_back(style.section_end);
  Matcher outside = tag_matcher(outside_tags, style.suffixes);
  Matcher inside = tag_matcher(inside_tags, style.suffixes);
  Matcher call_begin = tag_matcher(style.begins, style.suffixes);
  const int begins = static_cast<int>(style.begins.size());
  bool open = false;
  for (;;) {
    Matcher wanted = open ? inside : outside;
    const Match next = co_await read_until(in, "<", wanted, context.content());
    if (next.which < 0) co_return;
    if (next.which == begins + 1) {
      in.skip(next.size);
      open = false;
      continue;
    }
    Held held(in);
    in.skip(next.size);
    bool read = false;
    if (next.which == begins) {
      co_await skip_space(in);
      const Match call = co_await look(in, call_begin);
      if (call.kind == Match::Yes) {
        in.skip(call.size);
        open = co_await read_arg_key_call(context, style);
        read = open;
      }
    } else {
      read = co_await read_arg_key_call(context, style);
    }
    if (!read) context.out.rejected(held.text());
  }
}

}  // namespace vllm

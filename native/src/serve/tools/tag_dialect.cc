#include <algorithm>

#include "serve/tools/dialect.h"

namespace vllm {
namespace {

constexpr size_t kMaxTag = 1024;  // bytes of a tag with its attributes

/// White space of a tag; byte-level tokenizers may leave their own letters for blank and line feed.
size_t space_at(std::string_view text, size_t at) {
  while (at < text.size()) {
    if (is_space(text[at])) {
      ++at;
    } else if (text.substr(at).starts_with("\u0120") || text.substr(at).starts_with("\u010a")) {
      at += 2;
    } else {
      break;
    }
  }
  return at;
}

Match undecided(std::string_view text, bool ended) {
  Match match;
  match.kind = ended || text.size() > kMaxTag ? Match::No : Match::More;
  return match;
}

Match found(size_t size, int which = 0) {
  Match match;
  match.kind = Match::Yes;
  match.size = size;
  match.which = which;
  return match;
}

/// Position behind `literal` at `at` with white space around it; npos and *more when the text ends before.
size_t skip_literal(std::string_view text, size_t at, std::string_view literal, bool* more) {
  at = space_at(text, at);
  const std::string_view rest = text.substr(std::min(at, text.size()));
  *more = literal.starts_with(rest);
  if (!rest.starts_with(literal)) return text.npos;
  return at + literal.size();
}

std::string_view unquoted(std::string_view text) {
  text = trim(text);
  if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front()) {
    text = text.substr(1, text.size() - 2);
  }
  return text;
}

/// Value of an attribute: in double or single quotes or bare.
std::string attribute_value(std::string_view attributes, std::string_view key) {
  size_t at = 0;
  while ((at = attributes.find(key, at)) != attributes.npos) {
    const bool starts =
        at == 0 || is_space(attributes[at - 1]) || static_cast<unsigned char>(attributes[at - 1]) >= 0x80;
    size_t next = space_at(attributes, at + key.size());
    at += key.size();
    if (!starts || next >= attributes.size() || attributes[next] != '=') continue;
    next = space_at(attributes, next + 1);
    if (next >= attributes.size()) return "";
    const char quote = attributes[next];
    if (quote == '"' || quote == '\'') {
      const size_t end = attributes.find(quote, next + 1);
      return std::string(attributes.substr(next + 1, end == attributes.npos ? end : end - next - 1));
    }
    const size_t end = attributes.find_first_of(" \t\r\n", next);
    return std::string(attributes.substr(next, end == attributes.npos ? end : end - next));
  }
  return "";
}

}  // namespace

Match match_open_tag(std::string_view text, bool ended, std::string_view tag, TagForm form) {
  bool more = false;
  size_t at = skip_literal(text, 1, tag, &more);
  if (at == text.npos) return more ? undecided(text, ended) : Match();
  if (form == TagForm::Equals) {
    at = skip_literal(text, at, "=", &more);
    if (at == text.npos) return more ? undecided(text, ended) : Match();
    const size_t end = text.find_first_of("<>", at);
    if (end == text.npos) return undecided(text, ended);
    if (end > kMaxTag) return Match();
    if (text[end] == '<') {
      // <function=NAME</function> lacks its '>': markup, but no call.
      Match close = match_close_tag(text.substr(end), ended, tag);
      if (close.kind != Match::Yes) return close;
      return found(end + close.size);
    }
    Match match = found(end + 1);
    match.name = unquoted(text.substr(at, end - at));
    return match.name.empty() ? Match() : match;
  }
  const size_t end = text.find_first_of("<>", at);
  if (end == text.npos) return undecided(text, ended);
  if (text[end] == '<' || end > kMaxTag) return Match();
  Match match = found(end + 1);
  match.attributes = text.substr(at, end - at);
  match.name = attribute_value(match.attributes, "name");
  return match.name.empty() ? Match() : match;
}

Match match_close_tag(std::string_view text, bool ended, std::string_view tag) {
  bool more = false;
  size_t at = skip_literal(text, 1, "/", &more);
  if (at != text.npos) at = skip_literal(text, at, tag, &more);
  if (at != text.npos) at = skip_literal(text, at, ">", &more);
  if (at == text.npos) return more ? undecided(text, ended) : Match();
  return at <= kMaxTag ? found(at) : Match();
}

namespace {

enum Piece {
  kWrapperBegin,
  kWrapperEnd,
  kNoise,
  kCallOpen,
  kCallClose,
  kParameterOpen,
  kParameterClose,
  kStop
};

/// Matches the pieces of a style that are wanted.
struct PieceMatcher {
  const TagStyle* style;
  std::vector<Piece> pieces;
  std::vector<std::string_view> stops;

  Match operator()(std::string_view text, bool ended) const {
    Match pending;
    for (const Piece piece : pieces) {
      Match match = match_piece(piece, text, ended);
      if (match.kind == Match::Yes) {
        match.which = piece;
        return match;
      }
      if (match.kind == Match::More) pending = match;
    }
    return pending;
  }

 private:
  Match match_piece(Piece piece, std::string_view text, bool ended) const {
    switch (piece) {
      case kWrapperBegin:
        return match_any(text, ended, style->begins);
      case kWrapperEnd:
        return match_any(text, ended, std::span(&style->end, 1));
      case kNoise:
        return match_any(text, ended, style->noise);
      case kStop:
        return match_any(text, ended, stops);
      case kCallOpen:
        return match_open_tag(text, ended, style->call, style->form);
      case kCallClose:
        return match_close_tag(text, ended, style->call);
      case kParameterOpen:
        return match_open_tag(text, ended, style->parameter, style->form);
      case kParameterClose:
        return match_close_tag(text, ended, style->parameter);
    }
    return Match();
  }
};

std::string_view without_newlines(std::string_view value) {
  if (value.starts_with("\r\n")) {
    value.remove_prefix(2);
  } else if (value.starts_with('\n')) {
    value.remove_prefix(1);
  }
  if (value.ends_with("\r\n")) {
    value.remove_suffix(2);
  } else if (value.ends_with('\n')) {
    value.remove_suffix(1);
  }
  return value;
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    if (text.substr(at).starts_with(from)) {
      result += to;
      at += from.size();
    } else {
      result += text[at++];
    }
  }
  return result;
}

std::string literal_json(std::string_view text) {
  const Json value = try_json(text);
  if (!value.is_discarded()) return spaced_json(value);
  std::string json;
  return python_literal_json(trim(text), &json) ? json : json_quote(text);
}

struct Argument {
  std::string key, json;
};

/// The arguments of one call on their way to the output.
class CallArguments {
 public:
  CallArguments(ToolContext& context, const TagStyle& style, std::string tool)
      : context_(context), style_(style), tool_(std::move(tool)) {
    // What may have to be dropped or unwrapped is kept until the call is complete.
    if (!style_.known_only) context_.out.begin_call(tool_);
  }

  void add(const Match& tag, std::string_view value, bool cdata) {
    std::string json = value_json(tag, value, cdata);
    if (style_.unwrap && kept_.empty() && !sent_ && (tag.name == "arguments" || tag.name == "input") &&
        !context_.tools.argument(tool_, tag.name) && try_json(value).is_object()) {
      kept_.push_back({tag.name, std::move(json)});
      whole_ = spaced_json(try_json(value));
      return;
    }
    if (style_.known_only) {
      keep_known(tag.name, value, std::move(json));
      return;
    }
    send_kept();
    context_.out.argument(tag.name, json);
    sent_ = true;
  }

  /// `unfinished`: the text ends before the call does.
  void end(bool unfinished) {
    const bool cut = unfinished && context_.out.cut();
    if (style_.known_only) {
      if (cut) return;
      if (!context_.tools.empty()) {
        if (!context_.tools.has(tool_)) return;
        for (const std::string& name : context_.tools.required(tool_)) {
          if (std::none_of(kept_.begin(), kept_.end(), [&](const Argument& a) { return a.key == name; }))
            return;
        }
      }
      context_.out.begin_call(tool_);
      send_kept();
    } else if (!whole_.empty()) {
      if (cut) whole_.pop_back();
      context_.out.whole_arguments(whole_);
    }
    context_.out.end_call(unfinished);
  }

 private:
  std::string value_json(const Match& tag, std::string_view value, bool cdata) const {
    const ToolSchemas& tools = context_.tools;
    switch (style_.values) {
      case ValueRule::OneNewline:
        return tools.to_json(tool_, tag.name, without_newlines(value));
      case ValueRule::StripNonText:
        return tools.to_json(tool_, tag.name, tools.is_text(tool_, tag.name) ? value : trim(value));
      case ValueRule::StringFlag: {
        const std::string flag = attribute_value(tag.attributes, "string");
        if (flag == "true") return json_quote(value);
        if (flag == "false" && !tools.argument(tool_, tag.name)) {
          const Json json = try_json(value);
          return json.is_discarded() ? json_quote(value) : spaced_json(json);
        }
        return tools.to_json(tool_, tag.name, value);
      }
      case ValueRule::JsonOrText: {
        const Json json = try_json(value);
        return json.is_discarded() ? json_quote(value) : spaced_json(json);
      }
      case ValueRule::Literal: {
        const std::string text = replaced(replaced(value, "\u0120", " "), "\u010a", "\n");
        const std::string_view bare = cdata ? std::string_view(text) : trim(text);
        if (tools.argument(tool_, tag.name) && tools.is_text(tool_, tag.name)) return json_quote(bare);
        return literal_json(bare);
      }
    }
    return "null";
  }

  void keep(std::string_view key, std::string json) {
    if (std::any_of(kept_.begin(), kept_.end(), [&](const Argument& a) { return a.key == key; })) return;
    kept_.push_back({std::string(key), std::move(json)});
  }

  void keep_known(const std::string& key, std::string_view value, std::string json) {
    const ToolSchemas& tools = context_.tools;
    const std::vector<std::string> names = tools.argument_names(tool_);
    const auto known = [&](const std::string& name) {
      return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
    };
    if ((key == "properties" || key == "arguments") && !names.empty() && !known(key)) {
      const Json object = try_json(literal_json(trim(value)));
      if (!object.is_object()) return;
      for (const auto& item : object.items()) {
        if (!known(item.key())) continue;
        const bool quoted = item.value().is_string() || !tools.is_text(tool_, item.key());
        keep(item.key(), quoted ? spaced_json(item.value()) : json_quote(spaced_json(item.value())));
      }
      return;
    }
    if (known(key)) keep(key, std::move(json));
  }

  void send_kept() {
    for (const Argument& argument : kept_) context_.out.argument(argument.key, argument.json);
    kept_.clear();
    whole_.clear();
  }

  ToolContext& context_;
  const TagStyle& style_;
  std::string tool_;
  std::vector<Argument> kept_;
  std::string whole_;
  bool sent_ = false;
};

}  // namespace

Task<> read_tag_call(ToolContext& context, const TagStyle& style, std::vector<std::string_view> stops) {
  Reader& in = context.in;
  Matcher open_matcher = PieceMatcher{&style, {kCallOpen}, {}};
  const Match open = co_await look(in, open_matcher);
  in.skip(open.size);
  if (open.name.empty()) co_return;
  CallArguments arguments(context, style, std::string(trim(open.name)));
  Matcher body =
      PieceMatcher{&style, {kParameterOpen, kCallClose, kWrapperEnd, kCallOpen, kWrapperBegin, kStop}, stops};
  Matcher value_end = PieceMatcher{&style, {kParameterClose, kParameterOpen, kCallClose, kStop}, stops};
  bool unfinished = false;
  for (;;) {
    const Match next = co_await read_until(in, "<", body, nullptr);
    unfinished = next.which < 0;
    if (next.which == kCallClose) in.skip(next.size);
    if (next.which != kParameterOpen) break;
    in.skip(next.size);
    std::string value;
    Sink collect = [&value](std::string_view text) { value += text; };
    bool cdata = false;
    if (style.values == ValueRule::Literal) {
      co_await skip_space(in);
      cdata = co_await accept(in, "<![CDATA[");
    }
    if (cdata) {
      const std::string_view cdata_end[] = {"]]>"};
      const Match end = co_await read_until(in, cdata_end, collect);
      in.skip(end.size);
      co_await read_until(in, "<", value_end, nullptr);
    } else {
      co_await read_until(in, "<", value_end, collect);
    }
    const Match end = co_await look(in, value_end);
    unfinished = end.which < 0;
    if (unfinished) break;  // the text ends within the value: it is not the one that was meant
    if (end.which == kParameterClose) in.skip(end.size);
    arguments.add(next, value, cdata);
  }
  arguments.end(unfinished);
}

Task<> read_tag_dialect(ToolContext& context, const TagStyle& style) {
  Reader& in = context.in;
  Matcher outside = PieceMatcher{&style, {kWrapperBegin}, {}};
  if (!style.wrapper_required) outside = PieceMatcher{&style, {kWrapperBegin, kCallOpen}, {}};
  Matcher inside = PieceMatcher{&style, {kWrapperBegin, kWrapperEnd, kNoise, kCallOpen}, {}};
  Matcher front = PieceMatcher{&style, {kNoise, kCallOpen}, {}};
  bool open = false;  // inside a wrapper
  for (;;) {
    Sink sink = context.content();
    if (open && !style.noise.empty()) sink = nullptr;
    Matcher wanted = open ? inside : outside;
    const Match next = co_await read_until(in, "<", wanted, sink);
    if (next.which < 0) co_return;
    if (next.which == kCallOpen) {
      co_await read_tag_call(context, style, {});
      continue;
    }
    if (next.which == kWrapperEnd || next.which == kNoise) {
      in.skip(next.size);
      open = open && next.which != kWrapperEnd;
      continue;
    }
    // A wrapper counts only when a call stands in it.
    Held held(in);
    in.skip(next.size);
    for (;;) {
      co_await skip_space(in);
      const Match first = co_await look(in, front);
      open = first.which == kCallOpen;
      if (first.which != kNoise) break;
      in.skip(first.size);
    }
    if (!open) context.out.rejected(held.text());
  }
}

}  // namespace vllm

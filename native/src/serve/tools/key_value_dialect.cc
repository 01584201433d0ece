#include <set>

#include "serve/tools/dialect.h"

namespace vllm {
namespace {

constexpr size_t kMaxName = 256;
constexpr int kMaxDepth = 100;

/// A `{key:value,...}` text as JSON.
class KeyValues {
 public:
  KeyValues(std::string_view text, const KeyValueStyle& style, const ToolSchemas& tools,
            std::string_view tool)
      : text_(text), style_(style), tools_(tools), tool_(tool) {}

  bool whole(std::string* json) {
    if (!object(json, 0)) return false;
    space();
    return at_ == text_.size();
  }

 private:
  void space() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }
  bool take(char c) {
    space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool at_quote() {
    space();
    return text_.substr(at_).starts_with(style_.quote);
  }

  bool quoted(std::string* text) {
    const size_t from = at_ + style_.quote.size();
    const size_t end = text_.find(style_.quote, from);
    if (end == text_.npos) return false;
    *text = text_.substr(from, end - from);
    at_ = end + style_.quote.size();
    return true;
  }

  bool object(std::string* json, int depth) {
    if (depth > kMaxDepth || !take('{')) return false;
    std::set<std::string> keys;
    *json += '{';
    if (!take('}')) {
      for (;;) {
        std::string key;
        if (at_quote()) {
          if (!quoted(&key)) return false;
        } else {
          const size_t end = text_.find_first_of(":,{}[]", at_);
          if (end == text_.npos) return false;
          key = trim(text_.substr(at_, end - at_));
          if (key.size() >= 2 && key.front() == '"' && key.back() == '"') key = key.substr(1, key.size() - 2);
          at_ = end;
        }
        if (key.empty() || !take(':')) return false;
        std::string item;
        if (!value(&item, depth, depth == 0 ? key : "")) return false;
        if (keys.insert(key).second) {
          *json += (keys.size() > 1 ? ", " : "") + json_quote(key) + ": " + item;
        }
        if (take('}')) break;
        if (!take(',')) return false;
        if (take('}')) break;
      }
    }
    *json += '}';
    return true;
  }

  bool list(std::string* json, int depth) {
    if (depth > kMaxDepth || !take('[')) return false;
    *json += '[';
    if (!take(']')) {
      for (bool first = true;; first = false) {
        if (!first) *json += ", ";
        if (!value(json, depth, "")) return false;
        if (take(']')) break;
        if (!take(',')) return false;
      }
    }
    *json += ']';
    return true;
  }

  /// `key` is the name of the argument, empty for values inside others.
  bool value(std::string* json, int depth, const std::string& key) {
    space();
    if (at_quote()) {
      std::string text;
      if (!quoted(&text)) return false;
      *json += style_.json_values ? typed(text, key) : json_quote(text);
      return true;
    }
    if (at_ < text_.size() && text_[at_] == '{') return object(json, depth + 1);
    if (at_ < text_.size() && text_[at_] == '[') return list(json, depth + 1);
    const size_t end = text_.find_first_of(",{}[]", at_);
    if (end == text_.npos) return false;
    const std::string text(trim(text_.substr(at_, end - at_)));
    at_ = end;
    *json += text.empty() ? "null" : typed(text, key);
    return true;
  }

  std::string typed(const std::string& text, const std::string& key) const {
    if (!key.empty() && tools_.argument(tool_, key)) return tools_.to_json(tool_, key, text);
    const Json json = try_json(text);
    return json.is_discarded() ? json_quote(text) : spaced_json(json);
  }

  std::string_view text_;
  const KeyValueStyle& style_;
  const ToolSchemas& tools_;
  std::string_view tool_;
  size_t at_ = 0;
};

/// Reads from `{` behind the matching `}`; the caller holds the text.
Task<bool> read_braces(Reader& in, const KeyValueStyle& style) {
  const std::string_view pieces[] = {style.quote, "{", "}", "[", "]", style.end};
  const std::string_view quote[] = {style.quote};
  std::string open;
  for (;;) {
    const Match next = co_await read_until(in, pieces, nullptr);
    if (next.which < 0 || next.which == 5) co_return false;
    in.skip(next.size);
    switch (next.which) {
      case 0: {
        const Match end = co_await read_until(in, quote, nullptr);
        if (end.which < 0) co_return false;
        in.skip(end.size);
        break;
      }
      case 1:
      case 3:
        if (open.size() >= kMaxDepth) co_return false;
        open += next.which == 1 ? '{' : '[';
        break;
      default:
        if (open.empty() || open.back() != (next.which == 2 ? '{' : '[')) co_return false;
        open.pop_back();
        if (open.empty()) co_return true;
    }
  }
}

Task<bool> read_key_value_call(ToolContext& context, const KeyValueStyle& style, FoundCall* call) {
  Reader& in = context.in;
  co_await skip_space(in);
  const bool word = co_await accept(in, "call:");
  if (!word) co_return false;
  for (;;) {
    const int byte = co_await in.peek();
    if (byte == '{') break;
    const bool fits = byte > ' ' && byte != '<' && byte != '}' && byte != '(' && byte != '"';
    if (!fits || call->name.size() >= kMaxName) co_return false;
    call->name += static_cast<char>(byte);
    in.skip(1);
  }
  if (call->name.empty()) co_return false;
  const size_t from = in.offset();
  const bool closed = co_await read_braces(in, style);
  if (!closed) co_return false;
  KeyValues values(in.since(from), style, context.tools, call->name);
  if (!values.whole(&call->arguments)) co_return false;
  co_await skip_space(in);
  const bool end = co_await accept(in, style.end);
  const int next = co_await in.peek();
  co_return end || next < 0;
}

}  // namespace

Task<> read_key_value_dialect(ToolContext& context, const KeyValueStyle& style) {
  Reader& in = context.in;
  const std::string_view begins[] = {style.begin};
  for (;;) {
    const Match begin = co_await read_until(in, begins, context.content());
    if (begin.which < 0) co_return;
    Held held(in);
    in.skip(begin.size);
    FoundCall call;
    const bool read = co_await read_key_value_call(context, style, &call);
    if (read) {
      context.out.call(call.name, call.arguments);
    } else {
      context.out.rejected(held.text());
    }
  }
}

}  // namespace vllm

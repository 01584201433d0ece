#include <algorithm>

#include "serve/parsing/json_scanner.h"
#include "serve/tools/dialect.h"

namespace vllm {
namespace {

bool is_one_of(std::string_view key, const std::vector<std::string_view>& keys) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

/// Reads the value that `scanner` waits for.
Task<bool> read_with(Reader& in, JsonScanner scanner, Sink sink) {
  for (;;) {
    const std::string_view rest = in.rest();
    const size_t read = scanner.scan(rest);
    if (sink && read > 0) sink(rest.substr(0, read));
    in.skip(read);
    if (scanner.state() != JsonScanner::State::More) break;
    if (in.ended()) {
      scanner.finish();
      break;
    }
    co_await in.more();
  }
  co_return scanner.state() == JsonScanner::State::Done;
}

/// Reads a JSON string and decodes it.
Task<bool> read_json_string(Reader& in, std::string* text) {
  const int first = co_await in.peek();
  if (first != '"') co_return false;
  const size_t from = in.offset();
  const bool read = co_await read_json(in);
  if (!read) co_return false;
  const Json value = try_json(in.since(from));
  if (!value.is_string()) co_return false;
  *text = value.get<std::string>();
  co_return true;
}

Task<bool> read_json_object_call(Reader& in, const JsonCallKeys& keys, FoundCall* call, bool* foreign_key) {
  in.skip(1);
  bool named = false, has_arguments = false, valid = true;
  std::string raw;
  for (int member = 0;; ++member) {
    co_await skip_space(in);
    int byte = co_await in.peek();
    if (byte == '}' && member == 0) {
      in.skip(1);
      break;
    }
    std::string key;
    const bool key_read = co_await read_json_string(in, &key);
    if (!key_read) co_return false;
    co_await skip_space(in);
    const bool colon = co_await accept(in, ":");
    if (!colon) co_return false;
    const bool is_name = !keys.name_is_key && is_one_of(key, keys.name);
    const bool is_arguments = keys.name_is_key || is_one_of(key, keys.arguments);
    if (foreign_key && !is_name && !is_arguments && key != "type" && key != "id") {
      *foreign_key = true;
      co_return false;
    }
    co_await skip_space(in);
    const size_t from = in.offset();
    const bool value_read = co_await read_json(in);
    if (!value_read) co_return false;
    if (is_name) {
      const Json value = try_json(in.since(from));
      valid = valid && value.is_string();
      if (value.is_string()) call->name = value.get<std::string>();
      named = true;
    } else if (is_arguments) {
      valid = valid && !(keys.name_is_key && has_arguments);
      raw = in.since(from);
      has_arguments = true;
      if (keys.name_is_key) {
        call->name = key;
        named = true;
      }
    }
    co_await skip_space(in);
    byte = co_await in.peek();
    if (byte != ',' && byte != '}') co_return false;
    in.skip(1);
    if (byte == '}') break;
  }
  valid = valid && named && !call->name.empty() && (has_arguments || !keys.arguments_required);
  co_return valid&& normalise_arguments(raw, &call->arguments);
}

}  // namespace

Task<bool> read_json(Reader& in) {
  const bool read = co_await read_with(in, JsonScanner(), nullptr);
  co_return read;
}

bool normalise_arguments(std::string_view json, std::string* arguments) {
  json = trim(json);
  if (json.empty() || json == "null") {
    *arguments = "{}";
  } else if (json.front() == '{') {
    *arguments = json;
  } else if (json.front() == '"') {
    const Json text = try_json(json);
    if (!text.is_string()) return false;
    const std::string inner(trim(text.get_ref<const std::string&>()));
    if (!inner.empty() && !try_json(inner).is_object()) return false;
    *arguments = inner.empty() ? "{}" : inner;
  } else {
    return false;
  }
  return true;
}

Task<bool> read_json_calls(Reader& in, const JsonCallKeys& keys, std::vector<FoundCall>* calls,
                           bool* foreign_key) {
  co_await skip_space(in);
  int byte = co_await in.peek();
  const bool list = byte == '[';
  if (!list && byte != '{') co_return false;
  if (list) {
    in.skip(1);
    co_await skip_space(in);
    byte = co_await in.peek();
    if (byte == ']') {
      in.skip(1);
      co_return true;
    }
  }
  for (;;) {
    if (byte != '{') co_return false;
    FoundCall call;
    const bool read = co_await read_json_object_call(in, keys, &call, foreign_key);
    if (!read) co_return false;
    calls->push_back(std::move(call));
    if (!list) co_return true;
    co_await skip_space(in);
    byte = co_await in.peek();
    if (byte != ',' && byte != ']') co_return false;
    in.skip(1);
    if (byte == ']') co_return true;
    co_await skip_space(in);
    byte = co_await in.peek();
  }
}

namespace {

/// What follows the calls of a body: true when it ends properly.
Task<bool> read_json_body_end(Reader& in, const JsonStyle& style, std::vector<FoundCall>* calls) {
  for (;;) {
    if (style.ends.empty() && style.between.empty()) co_return true;
    co_await skip_space(in);
    const int end = co_await accept_any(in, style.ends);
    if (end >= 0) co_return true;
    const int byte = co_await in.peek();
    if (byte < 0) co_return true;
    bool again = false;
    if (!style.between.empty()) again = co_await accept(in, style.between);
    if (!again) {
      if (style.ends.empty()) co_return true;
      // The next body may begin before the end of this one.
      const Match next = co_await look(in, style.begins);
      co_return next.kind == Match::Yes;
    }
    co_await skip_space(in);
    const int next = co_await in.peek();
    if (next < 0) co_return true;
    // A marker may come again in front of each call.
    co_await accept_any(in, style.begins);
    const bool read = co_await read_json_calls(in, style.keys, calls);
    if (!read) co_return false;
  }
}

}  // namespace

Task<> read_json_dialect(ToolContext& context, const JsonStyle& style) {
  Reader& in = context.in;
  std::vector<std::string_view> begins = style.begins;
  if (style.bare_object) begins.push_back("{");
  for (;;) {
    const Match begin = co_await read_until(in, begins, context.content());
    if (begin.which < 0) co_return;
    const bool bare = begin.which >= static_cast<int>(style.begins.size());
    bool foreign_key = false;
    {
      Held held(in);
      if (!bare) in.skip(begin.size);
      JsonCallKeys keys = style.keys;
      if (bare) keys.arguments_required = true;
      std::vector<FoundCall> calls;
      bool read = true;
      if (style.list_only) {
        co_await skip_space(in);
        const int byte = co_await in.peek();
        read = byte == '[';
      }
      if (read) read = co_await read_json_calls(in, keys, &calls, bare ? &foreign_key : nullptr);
      if (read && !bare) read = co_await read_json_body_end(in, style, &calls);
      if (read && bare) {
        // Calls behind this one are found as bodies of their own; what stands between them is markup.
        co_await skip_space(in);
        if (!style.between.empty()) co_await accept(in, style.between);
      }
      if (read && !calls.empty()) {
        for (const FoundCall& call : calls) context.out.call(call.name, call.arguments);
      } else if (bare) {
        context.out.text(held.text());
      } else {
        context.out.rejected(held.text());
      }
    }
    // What is inside an object that is no call is none either.
    if (foreign_key) co_await read_with(in, JsonScanner::inside_object(), context.content());
  }
}

}  // namespace vllm

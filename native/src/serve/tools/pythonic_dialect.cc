#include "serve/tools/dialect.h"
#include "serve/tools/python_literal.h"

namespace vllm {
namespace {

constexpr size_t kMaxName = 256;

bool is_word_byte(int byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') ||
         byte == '_' || byte == '.' || byte == '-' || byte >= 0x80;
}

/// NAME(key=value, ...); the caller holds the text.
Task<bool> read_python_call(Reader& in, FoundCall* call) {
  for (;;) {
    const int byte = co_await in.peek();
    if (!is_word_byte(byte)) break;
    if (call->name.size() >= kMaxName) co_return false;
    call->name += static_cast<char>(byte);
    in.skip(1);
  }
  if (call->name.empty() || (call->name[0] >= '0' && call->name[0] <= '9')) co_return false;
  co_await skip_space(in);
  const int open = co_await in.peek();
  if (open != '(') co_return false;
  const size_t from = in.offset();
  BracketScanner scanner;
  for (;;) {
    in.skip(scanner.scan(in.rest()));
    if (scanner.state() != BracketScanner::State::More) break;
    const bool more = co_await in.more();
    if (!more) break;
  }
  if (scanner.state() != BracketScanner::State::Done) co_return false;
  std::string_view arguments = in.since(from);
  arguments = arguments.substr(1, arguments.size() - 2);
  co_return python_arguments_json(arguments, &call->arguments);
}

/// [a(), b()].
Task<bool> read_call_list(Reader& in, std::vector<FoundCall>* calls) {
  const bool open = co_await accept(in, "[");
  if (!open) co_return false;
  for (;;) {
    co_await skip_space(in);
    const int first = co_await in.peek();
    if (first == ']' && !calls->empty()) {
      in.skip(1);
      co_return true;
    }
    FoundCall call;
    const bool read = co_await read_python_call(in, &call);
    if (!read) co_return false;
    calls->push_back(std::move(call));
    co_await skip_space(in);
    const int next = co_await in.peek();
    if (next != ',' && next != ']') co_return false;
    in.skip(1);
    if (next == ']') co_return true;
  }
}

/// Calls one after the other, each on its line.
Task<bool> read_call_lines(Reader& in, std::span<const std::string_view> ends,
                           std::vector<FoundCall>* calls) {
  for (;;) {
    for (;;) {
      const int byte = co_await in.peek();
      if (!is_space(byte) && (byte != ',' || calls->empty())) break;
      in.skip(1);
    }
    const int byte = co_await in.peek();
    if (byte < 0) co_return true;
    const Match end = co_await look(in, ends);
    if (end.kind == Match::Yes) co_return true;
    FoundCall call;
    const bool read = co_await read_python_call(in, &call);
    if (!read) co_return false;
    calls->push_back(std::move(call));
  }
}

/// Drops a body that is written once more behind its end marker, with an end marker of its own.
Task<> skip_echo(ToolContext& context, const PythonicStyle& style) {
  Reader& in = context.in;
  Held held(in);
  co_await skip_space(in);
  const int first = co_await in.peek();
  bool echo = false;
  if (first == '[') {
    std::vector<FoundCall> again;
    echo = co_await read_call_list(in, &again);
    if (echo) {
      co_await skip_space(in);
      const int end = co_await accept_any(in, style.ends);
      echo = end >= 0;
    }
  }
  if (!echo) context.out.rejected(held.text());
}

}  // namespace

Task<> read_pythonic_dialect(ToolContext& context, const PythonicStyle& style) {
  Reader& in = context.in;
  if (style.bare) {
    // The whole text, or nothing of it, is a list of calls.
    Held held(in);
    co_await skip_space(in);
    const int first = co_await in.peek();
    std::vector<FoundCall> calls;
    bool read = false;
    if (first == '[') {
      read = co_await read_call_list(in, &calls);
      if (read) {
        co_await skip_space(in);
        co_await accept_any(in, style.ends);
        co_await skip_space(in);
        const int next = co_await in.peek();
        read = next < 0;
      }
    }
    if (read) {
      for (const FoundCall& call : calls) context.out.call(call.name, call.arguments);
    } else {
      context.out.rejected(held.text());
    }
  }
  for (;;) {
    const Match begin = co_await read_until(in, style.begins, context.content());
    if (begin.which < 0) co_return;
    bool read = false;
    {
      Held held(in);
      in.skip(begin.size);
      std::vector<FoundCall> calls;
      co_await skip_space(in);
      const int first = co_await in.peek();
      if (style.brackets || first == '[') {
        read = co_await read_call_list(in, &calls);
      } else {
        read = co_await read_call_lines(in, style.ends, &calls);
      }
      read = read && !calls.empty();
      if (read) {
        co_await skip_space(in);
        co_await accept_any(in, style.ends);
        for (const FoundCall& call : calls) context.out.call(call.name, call.arguments);
      } else {
        context.out.rejected(held.text());
      }
    }
    if (read && style.echo) co_await skip_echo(context, style);
  }
}

}  // namespace vllm

// [TOOL_CALLS] in its three forms: a JSON list, a JSON object, or NAME{arguments} with an optional [ARGS]
// between.
#include "serve/tools/dialect.h"

namespace vllm {
namespace {

constexpr size_t kMaxName = 256;
constexpr std::string_view kMarker[] = {"[TOOL_CALLS]"};

/// NAME{...} behind a marker. With a name alone `call` stays empty.
Task<bool> read_named(Reader& in, FoundCall* call) {
  std::string name;
  const std::string_view stops[] = {"[ARGS]", "[CALL_ID]", "[TOOL_CALLS]"};
  for (;;) {
    const int byte = co_await in.peek();
    if (byte < 0) co_return true;
    if (byte == '{') break;
    if (byte == '[') {
      const int stop = co_await accept_any(in, std::span(stops).first(2));
      if (stop == 0) break;
      if (stop < 0) {
        const Match again = co_await look(in, stops);
        co_return again.which == 2;  // a name without arguments is skipped
      }
      // An id of the model's own stands between [CALL_ID] and [ARGS].
      const std::string_view arguments[] = {"[ARGS]", "{", "[TOOL_CALLS]"};
      const Match next = co_await read_until(in, arguments, nullptr);
      if (next.which == 0) in.skip(next.size);
      break;
    }
    if (byte == '"' || byte == '}' || name.size() >= kMaxName) co_return false;
    name += static_cast<char>(byte);
    in.skip(1);
  }
  call->name = trim(name);
  if (call->name.empty() || call->name.find('\n') != std::string::npos) co_return false;
  co_await skip_space(in);
  const int first = co_await in.peek();
  if (first != '{') co_return false;
  const size_t from = in.offset();
  const bool read = co_await read_json(in);
  if (!read) co_return false;
  co_return normalise_arguments(in.since(from), &call->arguments);
}

}  // namespace

Task<> read_mistral(ToolContext& context) {
  Reader& in = context.in;
  const JsonCallKeys keys;
  for (;;) {
    const Match marker = co_await read_until(in, kMarker, context.content());
    if (marker.which < 0) co_return;
    Held held(in);
    in.skip(marker.size);
    co_await skip_space(in);
    const int first = co_await in.peek();
    bool read = false;
    std::vector<FoundCall> calls;
    if (first == '[' || first == '{') {
      read = co_await read_json_calls(in, keys, &calls);
      read = read && !calls.empty();
    } else {
      FoundCall call;
      read = co_await read_named(in, &call);
      if (read && !call.name.empty()) calls.push_back(std::move(call));
    }
    if (read) {
      for (const FoundCall& call : calls) context.out.call(call.name, call.arguments);
    } else {
      context.out.rejected(held.text());
    }
  }
}

}  // namespace vllm

#include "serve/tools/dialect.h"

namespace vllm {
namespace {

constexpr size_t kMaxHeader = 512;

/// Reads up to `end` and behind it; false when that is not within the length of a header.
Task<bool> read_header(Reader& in, std::span<const std::string_view> ends, std::string* header) {
  for (;;) {
    const Match end = co_await look(in, ends);
    if (end.kind == Match::Yes) {
      in.skip(end.size);
      co_return true;
    }
    const int byte = co_await in.peek();
    if (byte < 0 || header->size() >= kMaxHeader) co_return false;
    *header += static_cast<char>(byte);
    in.skip(1);
  }
}

struct MarkedCall {
  std::string name, id, arguments;
};

/// Splits functions.NAME:INDEX.
bool split_numbered(std::string_view header, MarkedCall* call) {
  header = trim(header);
  const size_t colon = header.rfind(':');
  if (colon == header.npos || colon == 0 || colon + 1 == header.size()) return false;
  if (header.substr(colon + 1).find_first_not_of("0123456789") != header.npos) return false;
  call->id = header;
  std::string_view name = header.substr(0, colon);
  if (name.starts_with("functions.")) name.remove_prefix(10);
  call->name = name;
  return !name.empty();
}

/// A call behind its begin marker.
Task<bool> read_marked_call(Reader& in, const MarkedStyle& style, MarkedCall* call) {
  std::string header;
  const std::string_view separators[] = {style.separator};
  bool read = co_await read_header(in, separators, &header);
  if (!read) co_return false;
  if (style.type_word) {
    header.clear();
    const std::string_view fences[] = {"```json", "```"};
    read = co_await read_header(in, fences, &header);
    if (!read) co_return false;
  }
  if (style.numbered) {
    if (!split_numbered(header, call)) co_return false;
  } else {
    call->name = trim(header);
  }
  if (call->name.empty() || call->name.find_first_of("{}\"\n<") != std::string::npos) co_return false;

  const std::string_view ends[] = {style.call_end, style.section_end};
  co_await skip_space(in);
  const int byte = co_await in.peek();
  if (byte == '{' || byte == '"' || byte == 'n') {
    const size_t from = in.offset();
    const bool value = co_await read_json(in);
    if (!value || !normalise_arguments(in.since(from), &call->arguments)) co_return false;
  } else {
    call->arguments = "{}";
  }
  co_await skip_space(in);
  if (style.type_word) {
    co_await accept(in, "```");
    co_await skip_space(in);
  }
  const Match end = co_await look(in, ends);
  if (end.which == 0) in.skip(end.size);
  // A model that stops behind the arguments has made the call.
  const int next = co_await in.peek();
  co_return end.kind == Match::Yes || next < 0;
}

}  // namespace

Task<> read_marked_dialect(ToolContext& context, const MarkedStyle& style) {
  Reader& in = context.in;
  const std::string_view begins[] = {style.section_begin, style.call_begin};
  const std::string_view inside[] = {style.call_begin, style.section_end};
  for (;;) {
    const Match begin = co_await read_until(in, begins, context.content());
    if (begin.which < 0) co_return;
    bool section_open = begin.which == 0;
    {
      Held held(in);
      if (section_open) {
        in.skip(begin.size);
        co_await skip_space(in);
        const Match call = co_await look(in, inside);
        if (call.which != 0) {
          context.out.rejected(held.text());
          continue;
        }
      }
      in.skip(style.call_begin.size());
      MarkedCall call;
      const bool read = co_await read_marked_call(in, style, &call);
      if (read) {
        context.out.call(call.name, call.arguments, call.id);
      } else {
        context.out.rejected(held.text());
        section_open = false;
      }
    }
    // Between calls of a section there is nothing but noise.
    while (section_open) {
      const Match next = co_await read_until(in, inside, nullptr);
      if (next.which < 0) co_return;
      if (next.which == 1) {
        in.skip(next.size);
        break;
      }
      Held held(in);
      in.skip(next.size);
      MarkedCall call;
      const bool read = co_await read_marked_call(in, style, &call);
      if (read) {
        context.out.call(call.name, call.arguments, call.id);
      } else {
        context.out.rejected(held.text());
      }
    }
  }
}

}  // namespace vllm

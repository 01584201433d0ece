#include "serve/tools/tool_output.h"

#include "base/error.h"
#include "serve/parsing/reader.h"
#include "serve/parsing/utf8_tail.h"
#include "serve/tools/tool_schemas.h"

namespace vllm {

void ToolOutput::append(std::string_view text) {
  for (;;) {
    const bool hold = !any_text_ || after_call_ || rules_.strip_before_call;
    if (!hold) {
      content_ += text;
      return;
    }
    size_t end = text.size();
    while (end > 0 && is_space(text[end - 1])) --end;
    if (end == 0) {
      space_ += text;
      return;
    }
    content_ += space_;
    space_.clear();
    any_text_ = true;
    after_call_ = false;
    content_ += text.substr(0, end);
    text.remove_prefix(end);
    if (text.empty()) return;
  }
}

void ToolOutput::text(std::string_view text) {
  if (index_ >= 0 && !rules_.keep_after_call && !rejected_) return;
  append(text);
}

void ToolOutput::rejected(std::string_view text) {
  rejected_ = true;
  append(text);
}

std::string ToolOutput::new_id(std::string_view name, std::string_view native_id) {
  std::string id;
  do {
    id.clear();
    switch (ids_) {
      case CallId::Numbered:
        id = native_id.empty() || used_ids_.contains(native_id)
                 ? format("functions.%.*s:%zu", static_cast<int>(name.size()), name.data(), used_ids_.size())
                 : std::string(native_id);
        if (used_ids_.contains(id)) id += format("-%04x", static_cast<unsigned>(random_() & 0xffff));
        break;
      case CallId::Short:
        for (int i = 0; i < 9; ++i) {
          id += "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"[random_() % 62];
        }
        break;
      case CallId::Call:
      case CallId::Chat:
        id = ids_ == CallId::Call ? "call_" : "chatcmpl-tool-";
        for (int i = 0; i < (ids_ == CallId::Call ? 24 : 32); ++i) id += "0123456789abcdef"[random_() % 16];
        break;
    }
  } while (!used_ids_.insert(id).second);
  return id;
}

ToolCallDelta& ToolOutput::delta() {
  if (deltas_.empty() || deltas_.back().index != index_) deltas_.push_back({index_, "", "", ""});
  return deltas_.back();
}

void ToolOutput::call(std::string_view name, std::string_view arguments, std::string_view native_id) {
  begin_call(name, native_id);
  whole_arguments(arguments);
  end_call();
}

void ToolOutput::begin_call(std::string_view name, std::string_view native_id) {
  space_.clear();
  after_call_ = true;
  rejected_ = false;
  ++index_;
  keys_.clear();
  whole_ = false;
  deltas_.push_back({index_, new_id(name, native_id), std::string(name), ""});
}

void ToolOutput::argument(std::string_view key, std::string_view json) {
  if (whole_ || !keys_.emplace(key).second) return;
  std::string& arguments = delta().arguments;
  arguments += keys_.size() == 1 ? "{" : ", ";
  arguments += json_quote(key);
  arguments += ": ";
  arguments += json;
}

void ToolOutput::whole_arguments(std::string_view json) {
  if (whole_ || !keys_.empty()) return;
  whole_ = true;
  delta().arguments += json;
}

void ToolOutput::end_call(bool unfinished) {
  if (unfinished && cut_) {
    if (!whole_ && keys_.empty()) delta().arguments += "{";
    return;
  }
  if (!whole_) delta().arguments += keys_.empty() ? "{}" : "}";
}

ToolDelta ToolOutput::take(bool ended) {
  ToolDelta result;
  result.calls.swap(deltas_);
  if (ended) {
    if (index_ < 0) content_ += space_;
    space_.clear();
    result.content.swap(content_);
    return result;
  }
  result.content = take_whole_characters(content_);
  return result;
}

}  // namespace vllm

// Collects what a dialect finds into deltas.
#pragma once
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "serve/tools/tool_parser.h"

namespace vllm {

/// How the ids of calls look.
enum class CallId {
  Chat,     // chatcmpl-tool- and 32 hex digits
  Short,    // 9 letters and digits (Mistral)
  Call,     // call_ and 24 hex digits (DeepSeek V3.2, V4)
  Numbered  // functions.NAME:INDEX (Kimi)
};

/// What becomes of text that is no call.
struct TextRules {
  bool strip_before_call = false;  // drop white space between text and a call
  bool keep_after_call = true;     // text behind a call is content
};

/// White space in front of a first call, between calls and behind the last is no content.
class ToolOutput {
 public:
  ToolOutput(TextRules rules, CallId ids) : rules_(rules), ids_(ids) {}

  void text(std::string_view text);
  /// Text that looked like a call and is none. It is kept even behind a call, with what follows it.
  void rejected(std::string_view text);
  void call(std::string_view name, std::string_view arguments, std::string_view native_id = "");

  /// A call whose arguments come one by one. Of two arguments with one name the first counts.
  void begin_call(std::string_view name, std::string_view native_id = "");
  bool has_argument(std::string_view key) const { return keys_.contains(key); }
  void argument(std::string_view key, std::string_view json);
  /// Arguments as a whole JSON object, in place of single ones.
  void whole_arguments(std::string_view json);
  /// `unfinished`: the text ends before the call does. When it was cut, the arguments stay open.
  void end_call(bool unfinished = false);

  /// The model was stopped before the end of its text.
  void set_cut(bool cut) { cut_ = cut; }
  bool cut() const { return cut_; }

  int calls() const { return index_ + 1; }
  /// What came since the last call; at the end also what was held.
  ToolDelta take(bool ended);

 private:
  std::string new_id(std::string_view name, std::string_view native_id);
  ToolCallDelta& delta();
  void append(std::string_view text);

  TextRules rules_;
  CallId ids_;
  std::string content_;
  std::string space_;  // white space that a call would drop
  bool any_text_ = false;
  bool after_call_ = false;
  bool rejected_ = false;  // text behind the last call is kept
  int index_ = -1;
  bool whole_ = false;
  bool cut_ = false;
  std::set<std::string, std::less<>> keys_;  // of the open call
  std::set<std::string, std::less<>> used_ids_;
  std::vector<ToolCallDelta> deltas_;
  std::mt19937_64 random_{std::random_device{}()};
};

}  // namespace vllm

// Finds the tool calls in a model's text while it arrives.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace vllm {

/// A piece of one call. The first piece of a call carries its id and whole name; later ones only arguments.
struct ToolCallDelta {
  int index = 0;
  std::string id;
  std::string name;
  std::string arguments;  // pieces joined: a JSON object
};

struct ToolDelta {
  std::string content;  // whole UTF-8 characters
  std::vector<ToolCallDelta> calls;
};

/// The joined deltas do not depend on how the text is cut, which may be anywhere: the answer to a whole text
/// is one feed and finish. Content never holds markup of a recognised call. Time and memory are linear in the
/// text.
class ToolParser {
 public:
  virtual ~ToolParser() = default;
  virtual ToolDelta feed(std::string_view bytes) = 0;
  /// `cut`: the model was stopped before its end. A call that is sent while it arrives and lacks its end then
  /// has arguments without theirs, which are no JSON: nobody may take it for the call that was meant.
  virtual ToolDelta finish(bool cut = false) = 0;
};

}  // namespace vllm

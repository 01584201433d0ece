// Parts a model's text into thoughts and answer while it arrives.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace vllm {

struct ReasoningDelta {
  std::string reasoning;  // whole UTF-8 characters, both
  std::string content;
  /// The content is the thought once more. It holds no tool calls.
  bool repeats_thought = false;
};

/// The joined deltas do not depend on how the text is cut. Line breaks at both ends of a thought and at the
/// start of the content behind it are stripped; tags are in neither.
class ReasoningParser {
 public:
  virtual ~ReasoningParser() = default;
  virtual ReasoningDelta feed(std::string_view bytes) = 0;
  /// `stopped_naturally`: the model ended its turn, it was not cut. A thought that is open then is delivered
  /// once more as content, so that the answer is not empty.
  virtual ReasoningDelta finish(bool stopped_naturally) = 0;

  /// The next token belongs to a thought.
  virtual bool thinking() const = 0;
  /// The text so far may still turn out to begin with a thought.
  virtual bool undecided() const = 0;
  /// What opens and closes a thought; empty for dialects that have none.
  virtual std::string_view start_text() const = 0;
  virtual std::string_view end_text() const = 0;
  /// All texts that open or close one: an end belongs to the start at its place.
  virtual const std::vector<std::string_view>& start_texts() const = 0;
  virtual const std::vector<std::string_view>& end_texts() const = 0;
  /// The place of the start that the prompt ends in; 0 when it ends in none.
  virtual size_t prompt_start() const = 0;
};

struct ReasoningDialect;

/// Throws Error(InvalidArgument) that lists the names. `none` is a dialect without thoughts.
const ReasoningDialect& find_reasoning_dialect(std::string_view name);
/// The dialect that a chat template shows, `none` when it shows none.
const ReasoningDialect& detect_reasoning_dialect(std::string_view template_source);
/// Sorted.
std::vector<std::string> reasoning_dialect_names();
std::string_view reasoning_dialect_name(const ReasoningDialect& dialect);

struct ReasoningStart {
  /// The rendered prompt: it may end inside a thought, or with one that is closed.
  std::string_view prompt;
  /// A tool parser reads the content: messages to tools and the user keep their framing where a dialect has
  /// some.
  bool tools_active = false;
};

/// `template_kwargs`: chat_template_kwargs of the request (enable_thinking, thinking), null for none.
std::unique_ptr<ReasoningParser> make_reasoning_parser(const ReasoningDialect& dialect,
                                                       const ReasoningStart& start,
                                                       const nlohmann::ordered_json& template_kwargs);

}  // namespace vllm

// Chat templates: Jinja as transformers sets it up (trim_blocks, lstrip_blocks, loopcontrols, the
// `generation` block, no autoescape, the immutable sandbox), parsed once and rendered from any thread.
#pragma once
#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace vllm::jinja {

struct Tree;

class Template {
 public:
  /// Throws Error(InvalidArgument) that names line and column ("3:17").
  static std::shared_ptr<const Template> parse(std::string source);

  /// `variables` is an object. `now` is what strftime_now sees, the local time when empty.
  /// Throws Error(InvalidArgument): the bare text given to raise_exception; for any other fault (use of an
  /// undefined value, a wrong type, a limit on steps, memory, nesting or output) a sentence with line and
  /// column.
  std::string render(const nlohmann::ordered_json& variables,
                     std::optional<std::tm> now = std::nullopt) const;

  /// As given to parse.
  const std::string& source() const { return source_; }

  /// The template walks the parts of a message's content, so that it wants content as a list ("openai"
  /// format).
  bool iterates_content() const { return iterates_content_; }

  /// The word occurs in the source and no letter, digit or underscore touches it.
  bool mentions(std::string_view word) const;

 private:
  Template() = default;

  std::string source_;
  std::string normalized_;
  std::shared_ptr<const Tree> tree_;
  bool iterates_content_ = false;
};

}  // namespace vllm::jinja

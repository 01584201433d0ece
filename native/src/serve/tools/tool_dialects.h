// The tool-call dialects by name.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/tools/tool_parser.h"

namespace vllm {

struct ToolDialect;

/// By name or alias. Throws Error(InvalidArgument) that lists the names.
const ToolDialect& find_tool_dialect(std::string_view name);

/// The dialect that a chat template prints calls in; hermes when nothing in it tells.
const ToolDialect& detect_tool_dialect(std::string_view template_source);

/// All names and aliases, sorted.
std::vector<std::string> tool_dialect_names();

std::string_view tool_dialect_name(const ToolDialect& dialect);
std::vector<std::string_view> tool_dialect_aliases(const ToolDialect& dialect);
/// Texts of which one opens the first call; none for a dialect without markers.
const std::vector<std::string_view>& tool_dialect_triggers(const ToolDialect& dialect);

/// `tools`: the list of the request, null for none. It is copied.
std::unique_ptr<ToolParser> make_tool_parser(const ToolDialect& dialect, const nlohmann::ordered_json& tools);

/// For constrained calls of dialects without a ToolTagFormat. The text is a JSON list of
/// {"name": ..., "parameters": {...}}, or the arguments of the tool that the request names.
std::unique_ptr<ToolParser> make_call_list_parser(const nlohmann::ordered_json& tools);
std::unique_ptr<ToolParser> make_named_call_parser(std::string_view tool);

enum class ArgumentStyle {
  Json,  // one JSON object by the tool's parameters
  Tags   // one piece of markup an argument
};

/// What one call looks like, for a grammar. A whole answer is
///   section_begin, call, (separator, call)*, section_end
/// and a call is
///   begin, [digits, begin_after_number,] arguments, end
/// With ArgumentStyle::Tags the arguments are, for each in the order of the schema,
///   argument_begin, KEY, argument_after_key, VALUE, argument_end
/// where VALUE is text without argument_end for a string and JSON for everything else.
struct ToolTagFormat {
  std::string trigger;  // where a free text turns into calls: the beginning of section_begin or begin
  std::string section_begin, section_end;
  std::string begin;
  bool numbered = false;
  std::string begin_after_number;
  ArgumentStyle arguments = ArgumentStyle::Json;
  std::string argument_begin, argument_after_key, argument_end;
  std::string end;
  std::string separator;
};

struct ToolTagOptions {
  /// Mistral: the vocabulary holds [ARGS]; the template prints calls as a JSON list.
  bool args_token = false;
  bool json_list = false;
};

/// Absent for dialects without such a description.
std::optional<ToolTagFormat> tool_tag_format(const ToolDialect& dialect, std::string_view tool,
                                             const ToolTagOptions& options = {});

}  // namespace vllm

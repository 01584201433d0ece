// What a dialect is made of: a coroutine over a text, and the few mechanisms that most dialects share.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/parsing/reader.h"
#include "serve/tools/tool_output.h"
#include "serve/tools/tool_schemas.h"

namespace vllm {

struct ToolContext {
  Reader& in;
  ToolOutput& out;
  const ToolSchemas& tools;

  Sink content() const {
    return [this](std::string_view text) { out.text(text); };
  }
};

/// Reads a whole text: content and calls go to `out`.
using ToolReader = std::function<Task<>(ToolContext&)>;

struct FoundCall {
  std::string name;
  std::string arguments;  // a JSON object
};

// ---- JSON bodies: {"name": ..., "arguments": {...}}, alone or in a list

struct JsonCallKeys {
  std::vector<std::string_view> name = {"name"};
  std::vector<std::string_view> arguments = {"arguments", "parameters"};
  bool arguments_required = false;
  bool name_is_key = false;  // {"NAME": {arguments}}
};

/// Reads one call or a list of calls; the caller must hold the text. Reading stops at the first byte that
/// cannot belong to it, or behind the first key that a call does not have when `foreign_key` is given (it is
/// then set).
Task<bool> read_json_calls(Reader& in, const JsonCallKeys& keys, std::vector<FoundCall>* calls,
                           bool* foreign_key = nullptr);
/// Reads one JSON value; false at the first byte that makes it none.
Task<bool> read_json(Reader& in);
/// Arguments as they are sent: an object verbatim, {} for null or nothing, the object inside a string. False
/// for others.
bool normalise_arguments(std::string_view json, std::string* arguments);

/// Calls of this kind between markers.
struct JsonStyle {
  std::vector<std::string_view> begins;  // one opens a body
  std::vector<std::string_view> ends;    // one may close it
  std::string_view between = "";         // between calls that are not in a list
  JsonCallKeys keys = {};
  bool list_only = false;
  /// A bare `{` is a body as well. It must begin with a key of a call and have arguments.
  bool bare_object = false;
};
Task<> read_json_dialect(ToolContext& context, const JsonStyle& style);

// ---- Calls with a header in front of JSON arguments, between markers

struct MarkedStyle {
  std::string_view section_begin, section_end;  // around all calls
  std::string_view call_begin, call_end;
  std::string_view separator;  // between header parts, or header and arguments
  bool type_word = false;      // TYPE separator NAME, then the arguments in a fence of ```json
  bool numbered = false;       // the header is functions.NAME:INDEX
};
Task<> read_marked_dialect(ToolContext& context, const MarkedStyle& style);

// ---- Calls as tags with one tag an argument

enum class TagForm {
  Equals,     // <function=NAME>
  Attribute,  // <invoke name="NAME">
};
enum class ValueRule {
  OneNewline,    // one newline less at each end, typed by the schema
  StripNonText,  // verbatim for text, stripped for the others, typed by the schema
  StringFlag,    // attribute string="true": verbatim; else typed by the schema
  JsonOrText,    // JSON where it is, else text
  Literal        // CDATA, JSON or Python literals unless the schema wants text
};
struct TagStyle {
  std::vector<std::string_view> begins;  // wrapper around calls
  std::string_view end;
  bool wrapper_required = true;
  std::string_view call = "function";  // tag names
  std::string_view parameter = "parameter";
  TagForm form = TagForm::Equals;
  ValueRule values = ValueRule::OneNewline;
  std::vector<std::string_view> noise = {};  // between wrapper and calls
  bool unwrap = false;  // one parameter `arguments` or `input` that holds the whole object
  bool known_only =
      false;  // drop calls of unknown tools, unknown arguments, calls that lack a required argument
};
Task<> read_tag_dialect(ToolContext& context, const TagStyle& style);
/// <TAG=NAME> or <TAG name="NAME" ...> at the start of the text; </TAG>.
Match match_open_tag(std::string_view text, bool ended, std::string_view tag, TagForm form);
Match match_close_tag(std::string_view text, bool ended, std::string_view tag);
/// Reads a call whose opening tag is next, up to its end or to what ends it as well: another call, a wrapper,
/// `stops`.
Task<> read_tag_call(ToolContext& context, const TagStyle& style, std::vector<std::string_view> stops);

// ---- Calls as <arg_key>K</arg_key><arg_value>V</arg_value>

struct ArgKeyStyle {
  std::vector<std::string_view> begins;  // opens a call
  std::string_view section_begin = "", section_end = "";
  std::string_view name_end = "";  // in front of the arguments
  bool literal_values = false;     // values that are not text: JSON, Python literal, text
  bool suffixes = false;           // every tag may end in a suffix of its tokenizer
};
Task<> read_arg_key_dialect(ToolContext& context, const ArgKeyStyle& style);

// ---- Python calls: name(key=value, ...)

struct PythonicStyle {
  std::vector<std::string_view> begins, ends;  // markers around the calls
  bool bare = false;                           // a list of calls without markers may be the whole text
  bool brackets = true;                        // calls stand in a list, otherwise one after the other
  bool echo = false;  // models repeat the body behind the end marker, with a second end marker
};
Task<> read_pythonic_dialect(ToolContext& context, const PythonicStyle& style);
/// JSON text of a Python literal; false when `text` is none.
bool python_literal_json(std::string_view text, std::string* json);

// ---- call:name{key:value, ...}

struct KeyValueStyle {
  std::string_view begin, end;
  std::string_view quote;     // around strings
  bool end_optional = false;  // the last call may lack its end
  bool json_values = false;   // quoted values are JSON where they can be
};
Task<> read_key_value_dialect(ToolContext& context, const KeyValueStyle& style);

// ---- Dialects of their own

Task<> read_mistral(ToolContext& context);
Task<> read_xlam(ToolContext& context);
Task<> read_gigachat3(ToolContext& context);
Task<> read_ernie45(ToolContext& context);
Task<> read_hunyuan_a13b(ToolContext& context);
Task<> read_muse_glimmer(ToolContext& context);
Task<> read_inkling(ToolContext& context);

}  // namespace vllm

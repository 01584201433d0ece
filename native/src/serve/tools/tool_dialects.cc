#include "serve/tools/tool_dialects.h"

#include <algorithm>

#include "base/error.h"
#include "serve/tools/dialect.h"

namespace vllm {

struct ToolDialect {
  std::vector<std::string_view> names;  // the first is the name, the others are aliases
  std::vector<std::string_view> triggers;
  ToolReader read;
  TextRules text = {};
  CallId ids = CallId::Chat;
};

namespace {

constexpr TextRules kKeep = {};
constexpr TextRules kDrop = {.keep_after_call = false};
constexpr TextRules kStrip = {.strip_before_call = true};
constexpr TextRules kStripDrop = {.strip_before_call = true, .keep_after_call = false};

/// A reader for a style, which it owns.
template <typename Style>
ToolReader reader(Task<> (*read)(ToolContext&, const Style&), Style style) {
  return [read, style = std::make_shared<Style>(std::move(style))](ToolContext& context) {
    return read(context, *style);
  };
}
ToolReader json(JsonStyle style) { return reader(read_json_dialect, std::move(style)); }
ToolReader marked(MarkedStyle style) { return reader(read_marked_dialect, std::move(style)); }
ToolReader tags(TagStyle style) { return reader(read_tag_dialect, std::move(style)); }
ToolReader arg_keys(ArgKeyStyle style) { return reader(read_arg_key_dialect, std::move(style)); }
ToolReader pythonic(PythonicStyle style) { return reader(read_pythonic_dialect, std::move(style)); }
ToolReader key_values(KeyValueStyle style) { return reader(read_key_value_dialect, std::move(style)); }

TagStyle dsml(std::string_view begin, std::string_view end) {
  return {.begins = {begin},
          .end = end,
          .call = "｜DSML｜invoke",
          .parameter = "｜DSML｜parameter",
          .form = TagForm::Attribute,
          .values = ValueRule::StringFlag,
          .unwrap = true};
}

/// One line a dialect, U+FF5C is the bar and U+2581 the low block of the DeepSeek markers.
const std::vector<ToolDialect>& dialects() {
  static const std::vector<ToolDialect> table = {
      // JSON bodies.
      {{"hermes", "qwen3", "qwen3_json"},
       {"<tool_call>"},
       json({.begins = {"<tool_call>"}, .ends = {"</tool_call>"}}),
       kDrop},
      {{"longcat"},
       {"<longcat_tool_call>"},
       json({.begins = {"<longcat_tool_call>"}, .ends = {"</longcat_tool_call>"}}),
       kDrop},
      {{"granite4"}, {"<tool_call>"}, json({.begins = {"<tool_call>"}, .ends = {"</tool_call>"}}), kKeep},
      {{"granite"},
       {"<|tool_call|>", "<tool_call>"},
       json({.begins = {"<|tool_call|>", "<tool_call>"}, .ends = {}, .list_only = true}),
       kStrip},
      {{"granite-20b-fc"}, {"<function_call>"}, json({.begins = {"<function_call>"}, .ends = {}}), kDrop},
      {{"llama3_json", "llama4_json"},
       {"<|python_tag|>", "{\"name\": "},
       json({.begins = {"<|python_tag|>"}, .ends = {}, .between = ";", .bare_object = true}),
       kDrop},
      {{"phi4_mini_json"},
       {"functools["},
       json({.begins = {"functools"}, .ends = {}, .list_only = true}),
       kDrop},
      {{"internlm"},
       {"<|action_start|><|plugin|>"},
       json({.begins = {"<|action_start|><|plugin|>"}, .ends = {"<|action_end|>"}}),
       kDrop},
      {{"jamba"},
       {"<tool_calls>"},
       json({.begins = {"<tool_calls>"}, .ends = {"</tool_calls>"}, .list_only = true}),
       kDrop},
      {{"apertus"},
       {"<|tools_prefix|>"},
       json({.begins = {"<|tools_prefix|>"}, .ends = {"<|tools_suffix|>"}, .keys = {.name_is_key = true}}),
       kStrip},
      {{"hunyuan_a13b"}, {"<tool_calls>"}, read_hunyuan_a13b, kDrop},
      {{"ernie45"}, {"<tool_call>"}, read_ernie45, kStripDrop},
      {{"gigachat3"}, {"<|message_sep|>", "<|function_call|>"}, read_gigachat3, kDrop},
      {{"xlam"}, {}, read_xlam, kStripDrop},
      {{"mistral"}, {"[TOOL_CALLS]"}, read_mistral, kStripDrop, CallId::Short},
      {{"inkling"}, {"<|content_invoke_tool_json|>"}, read_inkling, kKeep},

      // JSON arguments behind a header.
      {{"deepseek_v3"},
       {"<｜tool▁calls▁begin｜>"},
       marked({.section_begin = "<｜tool▁calls▁begin｜>",
               .section_end = "<｜tool▁calls▁end｜>",
               .call_begin = "<｜tool▁call▁begin｜>",
               .call_end = "<｜tool▁call▁end｜>",
               .separator = "<｜tool▁sep｜>",
               .type_word = true}),
       kDrop},
      {{"deepseek_v31"},
       {"<｜tool▁calls▁begin｜>"},
       marked({.section_begin = "<｜tool▁calls▁begin｜>",
               .section_end = "<｜tool▁calls▁end｜>",
               .call_begin = "<｜tool▁call▁begin｜>",
               .call_end = "<｜tool▁call▁end｜>",
               .separator = "<｜tool▁sep｜>"}),
       kDrop},
      {{"kimi_k2"},
       {"<|tool_calls_section_begin|>"},
       marked({.section_begin = "<|tool_calls_section_begin|>",
               .section_end = "<|tool_calls_section_end|>",
               .call_begin = "<|tool_call_begin|>",
               .call_end = "<|tool_call_end|>",
               .separator = "<|tool_call_argument_begin|>",
               .numbered = true}),
       kDrop,
       CallId::Numbered},

      // Tags.
      {{"qwen3_coder", "qwen3_xml", "mimo", "step3p5"},
       {"<tool_call>", "<function="},
       tags({.begins = {"<tool_call>"}, .end = "</tool_call>", .wrapper_required = false}),
       kStripDrop},
      {{"seed_oss"},
       {"<seed:tool_call>"},
       tags({.begins = {"<seed:tool_call>"}, .end = "</seed:tool_call>", .wrapper_required = false}),
       kStripDrop},
      {{"minimax_m2"},
       {"<minimax:tool_call>"},
       tags({.begins = {"<minimax:tool_call>"},
             .end = "</minimax:tool_call>",
             .call = "invoke",
             .form = TagForm::Attribute,
             .values = ValueRule::StripNonText}),
       kStripDrop},
      {{"deepseek_v32"},
       {"<｜DSML｜function_calls>"},
       tags(dsml("<｜DSML｜function_calls>", "</｜DSML｜function_calls>")),
       kDrop,
       CallId::Call},
      {{"deepseek_v4"},
       {"<｜DSML｜tool_calls>"},
       tags(dsml("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>")),
       kDrop,
       CallId::Call},
      {{"step3"},
       {"<｜tool_calls_begin｜>"},
       tags({.begins = {"<｜tool_calls_begin｜>"},
             .end = "<｜tool_calls_end｜>",
             .call = "steptml:invoke",
             .parameter = "steptml:parameter",
             .form = TagForm::Attribute,
             .values = ValueRule::StripNonText,
             .noise = {"<｜tool_call_begin｜>", "<｜tool_call_end｜>", "<｜tool_sep｜>", "function"}}),
       kStrip},
      {{"minicpm5"},
       {"<function name=\""},
       tags({.begins = {},
             .end = "</function_calls>",
             .wrapper_required = false,
             .parameter = "param",
             .form = TagForm::Attribute,
             .values = ValueRule::Literal,
             .known_only = true}),
       kKeep},
      {{"muse_glimmer"}, {"<atem:function_calls>"}, read_muse_glimmer, kKeep},
      {{"glm45"}, {"<tool_call>"}, arg_keys({.begins = {"<tool_call>"}}), kStripDrop},
      {{"glm47"}, {"<tool_call>"}, arg_keys({.begins = {"<tool_call>"}}), kStripDrop},
      {{"poolside_v1"},
       {"<tool_call>"},
       arg_keys({.begins = {"<tool_call>"}, .literal_values = true}),
       kDrop},
      {{"hy_v3"},
       {"<tool_calls"},
       arg_keys({.begins = {"<tool_call>"},
                 .section_begin = "<tool_calls>",
                 .section_end = "</tool_calls>",
                 .name_end = "<tool_sep>",
                 .suffixes = true}),
       kDrop},

      // Python calls.
      {{"pythonic"}, {}, pythonic({.begins = {}, .ends = {}, .bare = true}), kDrop},
      {{"llama4_pythonic"},
       {"<|python_start|>"},
       pythonic({.begins = {"<|python_start|>"}, .ends = {"<|python_end|>"}, .bare = true}),
       kDrop},
      {{"olmo3"},
       {"<function_calls>"},
       pythonic({.begins = {"<function_calls>"}, .ends = {"</function_calls>"}, .brackets = false}),
       kDrop},
      {{"lfm2"},
       {"<|tool_call_start|>"},
       pythonic({.begins = {"<|tool_call_start|>"}, .ends = {"<|tool_call_end|>"}, .echo = true}),
       kStrip},

      // Key and value.
      {{"gemma4"},
       {"<|tool_call>call:"},
       key_values({.begin = "<|tool_call>", .end = "<tool_call|>", .quote = "<|\"|>"}),
       kStripDrop},
      {{"functiongemma"},
       {"<start_function_call>"},
       key_values({.begin = "<start_function_call>",
                   .end = "<end_function_call>",
                   .quote = "<escape>",
                   .json_values = true}),
       kStripDrop},
  };
  return table;
}

/// A dialect at work.
class DialectParser : public ToolParser {
 public:
  DialectParser(const ToolReader& read, TextRules text, CallId ids, const Json& tools)
      : read_(read), tools_(tools), out_(text, ids), context_{in_, out_, tools_}, task_(read_(context_)) {}

  ToolDelta feed(std::string_view bytes) override {
    in_.feed(bytes);
    task_.rethrow();
    return out_.take(false);
  }
  ToolDelta finish(bool cut) override {
    out_.set_cut(cut);
    in_.end();
    task_.rethrow();
    return out_.take(true);
  }

 private:
  ToolReader read_;  // owns the style that the task reads
  ToolSchemas tools_;
  Reader in_;
  ToolOutput out_;
  ToolContext context_;
  Task<> task_;
};

/// The text is a list of calls, or no call at all.
Task<> read_call_list_text(ToolContext& context) {
  Reader& in = context.in;
  const JsonCallKeys keys;
  Held held(in);
  std::vector<FoundCall> calls;
  bool read = co_await read_json_calls(in, keys, &calls);
  if (read) co_await skip_space(in);
  const int next = co_await in.peek();
  read = read && next < 0;
  if (read) {
    for (const FoundCall& call : calls) context.out.call(call.name, call.arguments);
    co_return;
  }
  for (bool more = true; more;) {
    in.skip(in.rest().size());
    more = co_await in.more();
  }
  context.out.rejected(held.text());
}

/// The text is the arguments of one tool.
Task<> read_named_call(ToolContext& context, const std::string& tool) {
  Reader& in = context.in;
  Held held(in);
  co_await skip_space(in);
  const size_t from = in.offset();
  const bool read = co_await read_json(in);
  std::string arguments;
  if (read && normalise_arguments(in.since(from), &arguments)) {
    context.out.call(tool, arguments);
    co_return;
  }
  for (bool more = true; more;) {
    in.skip(in.rest().size());
    more = co_await in.more();
  }
  context.out.rejected(held.text());
}

}  // namespace

const ToolDialect& find_tool_dialect(std::string_view name) {
  for (const ToolDialect& dialect : dialects()) {
    if (std::find(dialect.names.begin(), dialect.names.end(), name) != dialect.names.end()) return dialect;
  }
  std::string list;
  for (const std::string& known : tool_dialect_names()) list += (list.empty() ? "" : ", ") + known;
  fail_argument("tool_parser is %s, which is no known parser; it must be one of %s.", quote(name).c_str(),
                list.c_str());
}

const ToolDialect& detect_tool_dialect(std::string_view source) {
  const auto has = [&](std::string_view text) { return source.find(text) != source.npos; };
  // The first row whose text the template holds decides.
  static constexpr std::pair<std::string_view, std::string_view> kRows[] = {
      {"<atem:function_calls>", "muse_glimmer"},
      {"<longcat_tool_call>", "longcat"},
      {"<｜tool▁calls▁begin｜>", "deepseek_v3"},
      {"<｜DSML｜function_calls>", "deepseek_v32"},
      {"<｜DSML｜tool_calls>", "deepseek_v4"},
      {"<｜tool_calls_begin｜>", "step3"},
      {"[TOOL_CALLS]", "mistral"},
      {"<function name=\"", "minicpm5"},
      {"<function_calls>", "olmo3"},
      {"<function_call>", "granite-20b-fc"},
      {"<|tool|>", "phi4_mini_json"},
      {"<|tool_call|>", "granite"},
      {"<|action_start|><|plugin|>", "internlm"},
      {"functools[", "phi4_mini_json"},
      {"<|python_start|>", "llama4_pythonic"},
      {"<|python_tag|>", "llama3_json"},
      {"<|tool_call_start|>", "lfm2"},
      {"<start_function_call>", "functiongemma"},
      {"<|tools_prefix|>", "apertus"},
      {"<|function_call|>", "gigachat3"},
      {"<|tool_calls_section_begin|>", "kimi_k2"},
      {"<minimax:tool_call>", "minimax_m2"},
      {"<|tool_call>call:", "gemma4"},
      {"<seed:tool_call>", "seed_oss"},
      {"<tool_sep", "hy_v3"},
      {"<tool_calls>", "jamba"},
      {"<tool_calls", "hy_v3"},
      {"<arg_key>", "glm47"},
      {"<function=", "qwen3_coder"},
      {"<tool_call>", "hermes"},
      {"{\"name\": function name, \"parameters\":", "llama3_json"},
      {"'\"parameters\": '", "llama3_json"},
  };
  for (const auto& [text, name] : kRows) {
    if (!has(text)) continue;
    if (name == "deepseek_v3" && !has("```json")) return find_tool_dialect("deepseek_v31");
    return find_tool_dialect(name);
  }
  return find_tool_dialect("hermes");
}

std::vector<std::string> tool_dialect_names() {
  std::vector<std::string> names;
  for (const ToolDialect& dialect : dialects())
    names.insert(names.end(), dialect.names.begin(), dialect.names.end());
  std::sort(names.begin(), names.end());
  return names;
}

std::string_view tool_dialect_name(const ToolDialect& dialect) { return dialect.names.front(); }

std::vector<std::string_view> tool_dialect_aliases(const ToolDialect& dialect) {
  return {dialect.names.begin() + 1, dialect.names.end()};
}

const std::vector<std::string_view>& tool_dialect_triggers(const ToolDialect& dialect) {
  return dialect.triggers;
}

std::unique_ptr<ToolParser> make_tool_parser(const ToolDialect& dialect, const Json& tools) {
  return std::make_unique<DialectParser>(dialect.read, dialect.text, dialect.ids, tools);
}

std::unique_ptr<ToolParser> make_call_list_parser(const Json& tools) {
  return std::make_unique<DialectParser>(read_call_list_text, kDrop, CallId::Chat, tools);
}

std::unique_ptr<ToolParser> make_named_call_parser(std::string_view tool) {
  const ToolReader read = reader(read_named_call, std::string(tool));
  return std::make_unique<DialectParser>(read, kDrop, CallId::Chat, Json());
}

}  // namespace vllm

#include "serve/tools/tool_dialects.h"
#include "serve/tools/tool_schemas.h"

namespace vllm {

std::optional<ToolTagFormat> tool_tag_format(const ToolDialect& dialect, std::string_view tool,
                                             const ToolTagOptions& options) {
  const std::string_view name = tool_dialect_name(dialect);
  const std::string plain(tool);
  const std::string quoted = json_quote(tool);
  ToolTagFormat format;
  if (name == "hermes" || name == "longcat") {
    const std::string tag = name == "hermes" ? "tool_call>" : "longcat_tool_call>";
    format.trigger = "<" + tag;
    format.begin = "<" + tag + "\n{\"name\": " + quoted + ", \"arguments\": ";
    format.end = "}\n</" + tag;
    format.separator = "\n";
  } else if (name == "llama3_json") {
    format.trigger = "{\"name\": ";
    format.begin = "{\"name\": " + quoted + ", \"parameters\": ";
    format.end = "}";
    format.separator = "; ";
  } else if (name == "mistral") {
    format.trigger = "[TOOL_CALLS]";
    if (options.json_list) {
      format.section_begin = "[TOOL_CALLS] [";
      format.begin = "{\"name\": " + quoted + ", \"arguments\": ";
      format.end = "}";
      format.separator = ", ";
      format.section_end = "]";
    } else {
      format.begin = "[TOOL_CALLS]" + plain + (options.args_token ? "[ARGS]" : "");
    }
  } else if (name == "deepseek_v3" || name == "deepseek_v31") {
    const bool fenced = name == "deepseek_v3";
    format.trigger = format.section_begin = "<｜tool▁calls▁begin｜>";
    format.begin = fenced ? "<｜tool▁call▁begin｜>function<｜tool▁sep｜>" + plain + "\n```json\n"
                          : "<｜tool▁call▁begin｜>" + plain + "<｜tool▁sep｜>";
    format.end = std::string(fenced ? "\n```" : "") + "<｜tool▁call▁end｜>";
    format.separator = fenced ? "\n" : "";
    format.section_end = "<｜tool▁calls▁end｜>";
  } else if (name == "kimi_k2") {
    format.trigger = format.section_begin = "<|tool_calls_section_begin|>";
    format.begin = "<|tool_call_begin|>functions." + plain + ":";
    format.numbered = true;
    format.begin_after_number = "<|tool_call_argument_begin|>";
    format.end = "<|tool_call_end|>";
    format.section_end = "<|tool_calls_section_end|>";
  } else if (name == "qwen3_coder" || name == "seed_oss") {
    const std::string tag = name == "seed_oss" ? "seed:tool_call>" : "tool_call>";
    format.trigger = "<" + tag;
    format.begin = "<" + tag + "\n<function=" + plain + ">\n";
    format.arguments = ArgumentStyle::Tags;
    format.argument_begin = "<parameter=";
    format.argument_after_key = ">\n";
    format.argument_end = "\n</parameter>\n";
    format.end = "</function>\n</" + tag;
    format.separator = "\n";
  } else if (name == "glm45" || name == "glm47") {
    const std::string line = name == "glm45" ? "\n" : "";
    format.trigger = "<tool_call>";
    format.begin = "<tool_call>" + plain + line;
    format.arguments = ArgumentStyle::Tags;
    format.argument_begin = "<arg_key>";
    format.argument_after_key = "</arg_key>" + line + "<arg_value>";
    format.argument_end = "</arg_value>" + line;
    format.end = "</tool_call>";
    format.separator = "\n";
  } else if (name == "minimax_m2") {
    format.trigger = "<minimax:tool_call>";
    format.section_begin = "<minimax:tool_call>\n";
    format.begin = "<invoke name=\"" + plain + "\">\n";
    format.arguments = ArgumentStyle::Tags;
    format.argument_begin = "<parameter name=\"";
    format.argument_after_key = "\">";
    format.argument_end = "</parameter>\n";
    format.end = "</invoke>\n";
    format.section_end = "</minimax:tool_call>";
  } else {
    return std::nullopt;
  }
  return format;
}

}  // namespace vllm

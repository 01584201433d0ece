// A chat request: OpenAI's chat-completions object, read and checked.
#pragma once
#include <optional>
#include <string>

#include "base/json.h"
#include "serve/chat_template.h"
#include "serve/request_fields.h"

namespace vllm {

struct ToolChoice {
  enum class Kind : uint8_t { None, Auto, Required, Named };
  Kind kind = Kind::Auto;
  std::string name;  // Named
};

struct ChatRequest {
  PromptInput prompt;  // its tools are null when none are offered
  Json tools;          // of the request; null when there are none
  ToolChoice tool_choice;
  bool parallel_tool_calls = true;
  GenerationRequest generation;              // all but prompt, constraint and thinking
  std::optional<ConstraintSpec> constraint;  // of the answer
  int64_t thinking_budget = -1;
  bool include_reasoning = true;
  bool include_usage = false;
  bool continuous_usage = false;
  std::string model;  // echoed; empty: the model's own name

  bool calls_possible() const { return !tools.is_null() && tool_choice.kind != ToolChoice::Kind::None; }
};

/// `strict`: unknown keys are refused by name, else ignored. Throws Error(InvalidArgument) naming the field.
ChatRequest parse_chat_request(const Json& request, bool strict, const Tokenizer& tokenizer);

}  // namespace vllm

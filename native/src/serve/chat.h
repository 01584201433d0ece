// Chat requests: from messages to a prompt and its constraint, from tokens to content, thoughts and tool
// calls.
#pragma once
#include <atomic>
#include <memory>
#include <string>

#include "base/json.h"
#include "engine/engine.h"
#include "serve/chat_request.h"
#include "serve/chat_template.h"
#include "serve/reasoning/reasoning_parser.h"
#include "serve/tools/tool_dialects.h"

namespace vllm {

struct ChatSettings {
  std::string template_path;     // empty: the model's own
  std::string tool_parser;       // empty: from the template
  std::string reasoning_parser;  // empty: from the template; "none": thoughts are not split off
};

/// The parsers of one request's output. The joined pieces do not depend on how the text arrives.
class ChatOutput {
 public:
  struct Piece {
    std::string reasoning;
    std::string content;
    std::vector<ToolCallDelta> calls;
    bool empty() const { return reasoning.empty() && content.empty() && calls.empty(); }
  };

  /// `tools`: null when the output holds no calls. `only_first_call`: later calls are dropped.
  ChatOutput(std::unique_ptr<ReasoningParser> reasoning, std::unique_ptr<ToolParser> tools,
             bool include_reasoning, bool only_first_call);
  /// What a delta adds; the last delta of a request ends the parsers.
  Piece add(const Delta& delta);
  bool has_calls() const { return has_calls_; }

 private:
  void take_content(std::string_view text, Piece& piece);
  void take_tools(ToolDelta delta, Piece& piece);

  std::unique_ptr<ReasoningParser> reasoning_;  // null: none
  std::unique_ptr<ToolParser> tools_;
  bool include_reasoning_;
  bool only_first_call_;
  bool has_calls_ = false;
  std::string held_space_;  // white space that is content only when more content, and no call, follows
};

/// One chat request on its way.
struct ChatCall {
  GenerationRequest generation;
  std::unique_ptr<ChatOutput> output;
  std::string id;
  std::string model;
  int64_t created = 0;
  bool named_choice = false;
  bool include_usage = false;
  bool continuous_usage = false;
};

/// A whole answer as it grows.
struct ChatAnswer {
  ChatOutput::Piece joined;  // one entry a call
  Json logprobs = Json::array();
  Delta last;
};

class Chat {
 public:
  /// Reads the model's templates and settles its dialects. Throws Error(ModelLoad) for a template file that
  /// cannot be read.
  Chat(Engine& engine, const ChatSettings& settings);

  /// Throws Error(InvalidArgument) for what is wrong with the request, its template or its constraint.
  ChatCall prepare(const Json& request, bool strict);
  /// The text that the template makes of a request; unknown fields are refused. Throws as prepare().
  std::string prompt(const Json& request) const;

  /// Adds a delta to a whole answer, and the "chat.completion" of one that is complete.
  void collect(ChatCall& call, const Delta& delta, ChatAnswer& answer) const;
  Json response(const ChatCall& call, const ChatAnswer& answer) const;
  /// The chunks of a delta, in order: each has a thought, content or calls, never two of them; the last delta
  /// of a request has at least one, with the finish reason. With `totals` every chunk has usage and timings.
  std::vector<Json> chunks(ChatCall& call, const Delta& delta, bool totals) const;
  /// The chunk that opens a stream, and the one that closes it with the usage.
  Json role_chunk(const ChatCall& call) const;
  Json usage_chunk(const ChatCall& call, const Delta& last) const;

  /// Names of the dialects in use; one that is not known stands as it was given.
  const std::string& tool_parser() const { return tool_parser_; }
  const std::string& reasoning_parser() const { return reasoning_parser_; }

 private:
  Json chunk(const ChatCall& call, Json delta, Json finish_reason) const;
  std::string finish_reason(const ChatCall& call, const Delta& last) const;
  StructuralTags tool_tags(const ChatRequest& request, const ToolDialect& dialect, bool* native) const;

  Engine& engine_;
  ChatTemplates templates_;
  std::string model_name_;
  std::string tool_parser_, reasoning_parser_;
  std::atomic<uint64_t> next_id_{1};
};

}  // namespace vllm

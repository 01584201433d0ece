#include "serve/chat.h"

#include <chrono>
#include <filesystem>

#include "base/log.h"
#include "serve/json_fields.h"

namespace vllm {

ChatOutput::ChatOutput(std::unique_ptr<ReasoningParser> reasoning, std::unique_ptr<ToolParser> tools,
                       bool include_reasoning, bool only_first_call)
    : reasoning_(std::move(reasoning)),
      tools_(std::move(tools)),
      include_reasoning_(include_reasoning),
      only_first_call_(only_first_call) {}

void ChatOutput::take_tools(ToolDelta delta, Piece& piece) {
  for (ToolCallDelta& call : delta.calls) {
    if (only_first_call_ && call.index > 0) continue;
    has_calls_ = true;
    piece.calls.push_back(std::move(call));
  }
  held_space_ += delta.content;
  const size_t end = held_space_.find_last_not_of(" \t\r\n") + 1;  // 0 when there is only white space
  piece.content.append(held_space_, 0, end);
  held_space_.erase(0, end);
}

void ChatOutput::take_content(std::string_view text, Piece& piece) {
  if (text.empty()) return;
  if (tools_) {
    take_tools(tools_->feed(text), piece);
  } else {
    piece.content += text;
  }
}

ChatOutput::Piece ChatOutput::add(const Delta& delta) {
  Piece piece;
  if (reasoning_) {
    ReasoningDelta part = reasoning_->feed(delta.text);
    if (include_reasoning_) piece.reasoning = std::move(part.reasoning);
    take_content(part.content, piece);
  } else {
    take_content(delta.text, piece);
  }
  if (!delta.finished()) return piece;
  std::string repeated;
  if (reasoning_) {
    ReasoningDelta part = reasoning_->finish(delta.finish == FinishReason::Stop);
    if (include_reasoning_) piece.reasoning += part.reasoning;
    if (part.repeats_thought) {
      repeated = std::move(part.content);
    } else {
      take_content(part.content, piece);
    }
  }
  if (tools_) take_tools(tools_->finish(delta.finish != FinishReason::Stop), piece);
  if (!has_calls_) piece.content += held_space_;
  held_space_.clear();
  piece.content += repeated;
  return piece;
}

namespace {

/// Tools are shown to the model and its calls are left in the text.
constexpr const char* kNoToolParser = "none";

/// Whether a template prints Mistral's calls as one JSON list.
bool prints_call_list(const std::string& source) {
  return source.find("[TOOL_CALLS] [") != std::string::npos;
}

/// The schema of the arguments need not be met.
bool is_free(const Json& function) {
  const auto strict = function.find("strict");
  return strict != function.end() && strict->is_boolean() && !strict->get<bool>();
}

std::string schema_of(const Json& function) {
  const auto parameters = function.find("parameters");
  if (parameters == function.end() || parameters->is_null() || parameters->empty())
    return R"({"type": "object"})";
  return dump_json(*parameters);
}

Json call_json(const ToolCallDelta& call, bool whole) {
  Json function = Json::object();
  if (!call.name.empty()) function["name"] = call.name;
  if (whole || !call.arguments.empty()) function["arguments"] = call.arguments;
  Json out = {{"index", call.index}};
  if (!call.id.empty()) {
    out["id"] = call.id;
    out["type"] = "function";
  }
  out["function"] = std::move(function);
  return out;
}

}  // namespace

Chat::Chat(Engine& engine, const ChatSettings& settings)
    : engine_(engine),
      templates_(engine.checkpoint(), engine.tokenizer(), settings.template_path),
      model_name_(std::filesystem::path(engine.info().model_path).filename().string()),
      tool_parser_(settings.tool_parser),
      reasoning_parser_(settings.reasoning_parser) {
  const std::string& source = templates_.source(true);
  if (tool_parser_ == "auto") tool_parser_.clear();
  if (reasoning_parser_ == "auto") reasoning_parser_.clear();
  const auto name = [](const std::string& wanted, const auto& find) -> std::string {
    try {
      return find();
    } catch (const Error& error) {
      log_warning("chat requests will fail: %s", error.message().c_str());
      return wanted;
    }
  };
  tool_parser_ = name(tool_parser_, [&]() -> std::string {
    if (tool_parser_ == kNoToolParser) return tool_parser_;
    return std::string(tool_dialect_name(tool_parser_.empty() ? detect_tool_dialect(source)
                                                              : find_tool_dialect(tool_parser_)));
  });
  reasoning_parser_ = name(reasoning_parser_, [&] {
    return std::string(reasoning_dialect_name(reasoning_parser_.empty()
                                                  ? detect_reasoning_dialect(source)
                                                  : find_reasoning_dialect(reasoning_parser_)));
  });
  log_info("chat: template %s, tool calls as %s, thoughts as %s",
           source.empty() ? "none (plain lines)" : "found", tool_parser_.c_str(), reasoning_parser_.c_str());
}

/// The grammar of the calls: in the dialect's own syntax (`native`), or as JSON where it has no description.
/// Calls that may be made are looked for in free text, unless the answer has a constraint: then they take its
/// place.
StructuralTags Chat::tool_tags(const ChatRequest& request, const ToolDialect& dialect, bool* native) const {
  using Kind = ToolChoice::Kind;
  StructuralTags tags;
  tags.mode = request.tool_choice.kind == Kind::Auto && !request.constraint ? StructuralTags::Mode::Lazy
                                                                            : StructuralTags::Mode::Required;
  tags.several = request.tool_choice.kind != Kind::Named && request.parallel_tool_calls;
  tags.text_after = tags.mode == StructuralTags::Mode::Lazy;
  ToolTagOptions options;
  options.args_token = engine_.tokenizer().find("[ARGS]").has_value();
  options.json_list = prints_call_list(templates_.source(true));
  *native = true;
  for (const Json& tool : request.tools) {
    const Json& function = tool["function"];
    const std::string name = function["name"].get<std::string>();
    if (request.tool_choice.kind == Kind::Named && name != request.tool_choice.name) continue;
    StructuralTag tag;
    tag.content.text = is_free(function) ? R"({"type": "object"})" : schema_of(function);
    if (const auto format = tool_tag_format(dialect, name, options)) {
      tag.begin = format->begin;
      if (format->numbered) tag.after_number = format->begin_after_number;
      tag.end = format->end;
      if (format->arguments == ArgumentStyle::Tags) {
        tag.content.kind = TagContent::Kind::Parameters;
        tag.content.text = schema_of(function);
        tag.content.free_values = is_free(function);
        tag.content.before_name = format->argument_begin;
        tag.content.after_name = format->argument_after_key;
        tag.content.after_value = format->argument_end;
      }
      tags.triggers = {format->trigger};
      tags.section_begin = format->section_begin;
      tags.separator = format->separator;
      tags.section_end = format->section_end;
    } else {
      *native = false;
      if (request.tool_choice.kind == Kind::Required) {
        tag.begin = "{\"name\": " + dump_json(Json(name)) + ", \"parameters\": ";
        tag.end = "}";
        tags.section_begin = "[";
        tags.separator = ", ";
        tags.section_end = "]";
      }
    }
    tags.tags.push_back(std::move(tag));
  }
  return tags;
}

std::string Chat::prompt(const Json& request) const {
  return templates_.render(parse_chat_request(request, true, engine_.tokenizer()).prompt);
}

ChatCall Chat::prepare(const Json& json, bool strict) {
  const ToolDialect* dialect = tool_parser_ == kNoToolParser ? nullptr : &find_tool_dialect(tool_parser_);
  const ReasoningDialect& reasoning_dialect = find_reasoning_dialect(reasoning_parser_);
  ChatRequest request = parse_chat_request(json, strict, engine_.tokenizer());
  const std::string prompt = templates_.render(request.prompt);

  ChatCall call;
  call.generation = std::move(request.generation);
  call.generation.prompt = engine_.encode_prompt(prompt);
  std::unique_ptr<ReasoningParser> reasoning =
      make_reasoning_parser(reasoning_dialect, {prompt, request.calls_possible()}, request.prompt.variables);
  // Marks of calls and thoughts may be control tokens; end tokens show nothing anyway.
  if (request.calls_possible() || !reasoning->end_text().empty())
    call.generation.sampling.skip_special = false;

  std::unique_ptr<ToolParser> tools;
  std::optional<ConstraintSpec> constraint = request.constraint;
  const bool forced = request.calls_possible() && request.tool_choice.kind != ToolChoice::Kind::Auto;
  if (forced && dialect == nullptr) fail_argument("tool_choice asks for a call and tool_parser is none");
  if (request.calls_possible() && dialect != nullptr) {
    tools = make_tool_parser(*dialect, request.tools);
    bool native = true;
    StructuralTags tags = tool_tags(request, *dialect, &native);
    if (forced && !native)
      tools = request.tool_choice.kind == ToolChoice::Kind::Named
                  ? make_named_call_parser(request.tool_choice.name)
                  : make_call_list_parser(request.tools);
    if (!constraint && (forced || native)) {
      constraint.emplace();
      constraint->kind = ConstraintSpec::Kind::StructuralTags;
      constraint->tags = std::move(tags);
    } else if (constraint && constraint->kind != ConstraintSpec::Kind::StructuralTags) {
      if (native) {
        constraint->or_tags = std::move(tags);
      } else {
        log_warning(
            "the answer has a structured constraint, which leaves no room for calls as %s writes them",
            tool_parser_.c_str());
      }
    }
  }
  if (constraint) {
    std::vector<std::string> warnings;
    call.generation.constraint = engine_.constraints().make(*constraint, &warnings);
    for (const std::string& warning : warnings) log_warning("%s", warning.c_str());
  }
  if (!reasoning->end_text().empty() && (call.generation.constraint || request.thinking_budget >= 0)) {
    ThinkingSpec thinking;
    thinking.starts.assign(reasoning->start_texts().begin(), reasoning->start_texts().end());
    thinking.ends.assign(reasoning->end_texts().begin(), reasoning->end_texts().end());
    thinking.opened_with = reasoning->prompt_start();
    thinking.open_at_start = reasoning->thinking();
    thinking.may_open = reasoning->undecided();
    thinking.budget = request.thinking_budget;
    call.generation.thinking = std::move(thinking);
  }
  call.output = std::make_unique<ChatOutput>(std::move(reasoning), std::move(tools),
                                             request.include_reasoning, !request.parallel_tool_calls);
  call.id = "chatcmpl-" + std::to_string(next_id_++);
  call.model = request.model.empty() ? model_name_ : request.model;
  call.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  call.named_choice = request.tool_choice.kind == ToolChoice::Kind::Named;
  call.include_usage = request.include_usage;
  call.continuous_usage = request.continuous_usage;
  return call;
}

std::string Chat::finish_reason(const ChatCall& call, const Delta& last) const {
  if (last.finish == FinishReason::Stop && call.output->has_calls() && !call.named_choice)
    return "tool_calls";
  return finish_reason_name(last.finish);
}

void Chat::collect(ChatCall& call, const Delta& delta, ChatAnswer& answer) const {
  const ChatOutput::Piece piece = call.output->add(delta);
  answer.joined.reasoning += piece.reasoning;
  answer.joined.content += piece.content;
  for (const ToolCallDelta& part : piece.calls) {
    if (answer.joined.calls.empty() || answer.joined.calls.back().index != part.index) {
      answer.joined.calls.push_back(part);
    } else {
      answer.joined.calls.back().arguments += part.arguments;
    }
  }
  if (const Json logprobs = logprobs_json(delta, engine_.tokenizer()); !logprobs.is_null())
    for (const Json& entry : logprobs["content"]) answer.logprobs.push_back(entry);
  answer.last = delta;
}

Json Chat::response(const ChatCall& call, const ChatAnswer& answer) const {
  Json message = {{"role", "assistant"}};
  message["content"] = answer.joined.content.empty() ? Json(nullptr) : Json(answer.joined.content);
  if (!answer.joined.reasoning.empty()) message["reasoning"] = answer.joined.reasoning;
  if (!answer.joined.calls.empty()) {
    Json& calls = message["tool_calls"] = Json::array();
    for (const ToolCallDelta& part : answer.joined.calls) calls.push_back(call_json(part, true));
  }
  Json choice;
  choice["index"] = 0;
  choice["message"] = std::move(message);
  choice["logprobs"] = answer.logprobs.empty() ? Json(nullptr) : Json{{"content", answer.logprobs}};
  choice["finish_reason"] = finish_reason(call, answer.last);
  choice["stop_reason"] = stop_reason_json(answer.last);
  Json out;
  out["id"] = call.id;
  out["object"] = "chat.completion";
  out["created"] = call.created;
  out["model"] = call.model;
  out["choices"] = Json::array({std::move(choice)});
  out["usage"] = usage_json(answer.last);
  return out;
}

Json Chat::chunk(const ChatCall& call, Json delta, Json finish_reason) const {
  Json choice;
  choice["index"] = 0;
  choice["delta"] = std::move(delta);
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = std::move(finish_reason);
  Json out;
  out["id"] = call.id;
  out["object"] = "chat.completion.chunk";
  out["created"] = call.created;
  out["model"] = call.model;
  out["choices"] = Json::array({std::move(choice)});
  return out;
}

Json Chat::role_chunk(const ChatCall& call) const {
  return chunk(call, {{"role", "assistant"}, {"content", ""}}, nullptr);
}

Json Chat::usage_chunk(const ChatCall& call, const Delta& last) const {
  Json out = chunk(call, Json::object(), nullptr);
  out["choices"] = Json::array();
  out["usage"] = usage_json(last);
  return out;
}

std::vector<Json> Chat::chunks(ChatCall& call, const Delta& delta, bool totals) const {
  const ChatOutput::Piece piece = call.output->add(delta);
  std::vector<Json> out;
  if (!piece.reasoning.empty()) out.push_back(chunk(call, {{"reasoning", piece.reasoning}}, nullptr));
  if (!piece.content.empty()) out.push_back(chunk(call, {{"content", piece.content}}, nullptr));
  if (!piece.calls.empty()) {
    Json calls = Json::array();
    for (const ToolCallDelta& part : piece.calls) calls.push_back(call_json(part, false));
    out.push_back(chunk(call, {{"tool_calls", std::move(calls)}}, nullptr));
  }
  const Json logprobs = logprobs_json(delta, engine_.tokenizer());
  if (out.empty() && (delta.finished() || totals || !logprobs.is_null()))
    out.push_back(chunk(call, Json::object(), nullptr));
  if (!logprobs.is_null()) out.front()["choices"][0]["logprobs"] = logprobs;
  if (delta.finished()) {
    Json& last = out.back()["choices"][0];
    last["finish_reason"] = finish_reason(call, delta);
    last["stop_reason"] = stop_reason_json(delta);
  }
  if (totals) {
    for (Json& each : out) {
      each["usage"] = usage_json(delta);
      each["timings"] = timings_json(delta);
    }
  }
  return out;
}

}  // namespace vllm

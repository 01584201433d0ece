#include "serve/chat_template.h"

#include <algorithm>
#include <filesystem>

#include "base/log.h"
#include "serve/json_fields.h"
#include "serve/messages.h"

namespace vllm {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSpecialTokens[] = {"bos_token", "eos_token", "pad_token", "unk_token"};

/// A token in tokenizer_config.json: its text, or an object with `content`.
std::string token_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string())
    return value["content"].get<std::string>();
  return {};
}

Json read_json(const fs::path& path) {
  return parse_json(read_text_file(path.string()), path.string().c_str(), Status::ModelLoad);
}

/// Without a template: a line a message, after a description of the tools if there are any.
std::string plain_prompt(const Json& messages, const Json& tools, bool add_generation_prompt) {
  std::string out;
  if (!tools.is_null()) {
    out += "system: You may call functions. Their signatures, one a line:\n<tools>\n";
    for (const Json& tool : tools) out += dump_json(tool) + "\n";
    out +=
        "</tools>\nTo call one, answer with its name and arguments as JSON:\n<tool_call>\n"
        "{\"name\": \"<function-name>\", \"arguments\": <arguments-object>}\n</tool_call>\n";
  }
  for (const Json& message : messages) {
    out += message["role"].get<std::string>() + ": " + message["content"].get<std::string>();
    if (message.contains("tool_calls"))
      for (const Json& call : message["tool_calls"])
        out += "\n<tool_call>\n" + dump_json(call["function"]) + "\n</tool_call>";
    out += "\n";
  }
  if (add_generation_prompt) return out + "assistant:";
  if (!out.empty()) out.pop_back();
  return out;
}

/// Cuts a rendered conversation behind the text of its last message.
std::string cut_after_last(std::string prompt, const Json& messages) {
  std::string text = messages.back()["content"].is_string()
                         ? messages.back()["content"].get<std::string>()
                         : messages.back()["content"].back()["text"].get<std::string>();
  text.erase(0, std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  const size_t at = prompt.rfind(text);
  if (text.empty() || at == std::string::npos)
    fail_argument("continue_final_message: the template does not print the last message as it is");
  prompt.resize(at + text.size());
  return prompt;
}

}  // namespace

ChatTemplates::ChatTemplates(const Checkpoint& checkpoint, const Tokenizer& tokenizer,
                             const std::string& explicit_path) {
  for (const char* name : {"bos_token", "eos_token"}) special_[name] = "";
  if (checkpoint.is_gguf()) {
    const Json& metadata = checkpoint.config();
    for (const char* name : {"bos", "eos", "padding", "unknown"}) {
      const auto id = metadata.find(format("tokenizer.ggml.%s_token_id", name));
      if (id == metadata.end() || !id->is_number_integer()) continue;
      const std::string key = std::string(name) == "padding"   ? "pad"
                              : std::string(name) == "unknown" ? "unk"
                                                               : name;
      special_[key + "_token"] = std::string(tokenizer.bytes(id->get<int32_t>()));
    }
    const auto single = metadata.find("tokenizer.chat_template");
    if (single != metadata.end() && single->is_string()) add("default", single->get<std::string>());
    for (const std::string_view name : checkpoint.string_array("tokenizer.chat_templates")) {
      const auto named = metadata.find("tokenizer.chat_template." + std::string(name));
      if (named != metadata.end() && named->is_string()) add(std::string(name), named->get<std::string>());
    }
  } else {
    read_folder(checkpoint.path(), explicit_path);
  }
  try_out();
}

void ChatTemplates::read_folder(const std::string& folder, const std::string& explicit_path) {
  const fs::path root = folder, config_path = root / "tokenizer_config.json";
  Json config = Json::object();
  if (fs::exists(config_path)) config = read_json(config_path);
  for (const char* name : kSpecialTokens) {
    const auto token = config.find(name);
    if (token != config.end() && !token->is_null()) special_[name] = token_text(*token);
  }
  const auto read_any = [&](const fs::path& path) {
    const std::string text = read_text_file(path.string());
    if (path.extension() != ".json") return add("default", text);
    const Json object = parse_json(text, path.string().c_str(), Status::ModelLoad);
    if (object.is_object() && object.contains("chat_template")) add_value(object["chat_template"]);
  };
  if (!explicit_path.empty()) {
    read_any(explicit_path);
    if (entries_.empty())
      log_warning("%s has no chat_template, the model's own is used", explicit_path.c_str());
  }
  for (const char* name : {"chat_template.jinja", "chat_template.json"})
    if (entries_.empty() && fs::exists(root / name)) read_any(root / name);
  if (entries_.empty() && config.contains("chat_template")) add_value(config["chat_template"]);
  const fs::path more = root / "additional_chat_templates";
  if (!fs::is_directory(more)) return;
  for (const auto& file : fs::directory_iterator(more))
    if (file.path().extension() == ".jinja")
      add(file.path().stem().string(), read_text_file(file.path().string()));
}

/// A text, a list of {"name", "template"}, or an object of name to template.
void ChatTemplates::add_value(const Json& value) {
  if (value.is_string()) return add("default", value.get<std::string>());
  if (value.is_array()) {
    for (const Json& item : value)
      if (item.is_object() && item.contains("name") && item.contains("template") &&
          item["name"].is_string() && item["template"].is_string())
        add(item["name"].get<std::string>(), item["template"].get<std::string>());
  } else if (value.is_object()) {
    for (const auto& [name, source] : value.items())
      if (source.is_string()) add(name, source.get<std::string>());
  }
}

void ChatTemplates::add(std::string name, std::string source) {
  Entry entry;
  entry.name = std::move(name);
  entry.source = source;
  try {
    entry.parsed = jinja::Template::parse(std::move(source));
  } catch (const Error& error) {
    entry.fault = error.message();
    log_warning("the chat template '%s' cannot be read, chat requests will fail: %s", entry.name.c_str(),
                entry.fault.c_str());
  }
  entries_.push_back(std::move(entry));
}

const ChatTemplates::Entry* ChatTemplates::choose(bool with_tools) const {
  const auto named = [&](const char* name) -> const Entry* {
    for (const Entry& entry : entries_)
      if (entry.name == name) return &entry;
    return nullptr;
  };
  if (with_tools)
    if (const Entry* entry = named("tool_use")) return entry;
  if (const Entry* entry = named("default")) return entry;
  return entries_.empty() ? nullptr : &entries_.front();
}

const std::string& ChatTemplates::source(bool with_tools) const {
  static const std::string none;
  const Entry* entry = choose(with_tools);
  return entry != nullptr ? entry->source : none;
}

std::string ChatTemplates::render(const PromptInput& input) const {
  const bool with_tools = !input.tools.is_null();
  const Entry* entry = choose(with_tools);
  std::vector<std::string> warnings;
  if (entry == nullptr) {
    const Json messages = normalise_messages(input.messages, false, false, warnings);
    std::string prompt = plain_prompt(messages, input.tools, input.add_generation_prompt);
    return input.continue_final_message ? cut_after_last(std::move(prompt), messages) : prompt;
  }
  if (!entry->parsed) fail_argument("the chat template cannot be read: %s", entry->fault.c_str());
  const jinja::Template& parsed = *entry->parsed;
  const Json messages =
      normalise_messages(input.messages, parsed.iterates_content(), !parsed.mentions("developer"), warnings);
  for (const std::string& warning : warnings) log_warning("%s", warning.c_str());
  Json variables = special_;
  for (const auto& [name, value] : input.variables.items()) variables[name] = value;
  variables["messages"] = messages;
  variables["tools"] = input.tools;
  variables["documents"] = input.documents;
  variables["add_generation_prompt"] = input.add_generation_prompt;
  if (input.continue_final_message) variables["continue_final_message"] = true;
  std::string prompt = parsed.render(variables);
  return input.continue_final_message ? cut_after_last(std::move(prompt), messages) : prompt;
}

/// Renders a short conversation plain, with a tool, and with a tool turn; a template may refuse any of them.
/// One warning a template and reason.
void ChatTemplates::try_out() const {
  static const Json tool = {
      {"type", "function"},
      {"function",
       {{"name", "get_time"},
        {"description", "The time at a place"},
        {"parameters", {{"type", "object"}, {"properties", {{"place", {{"type", "string"}}}}}}}}}};
  static const Json call = {{"id", "call00001"},
                            {"type", "function"},
                            {"function", {{"name", "get_time"}, {"arguments", "{\"place\": \"x\"}"}}}};
  const Json user = {{"role", "user"}, {"content", "Hello"}};
  PromptInput plain, with_tool, tool_turn;
  plain.messages = Json::array({user});
  with_tool.messages = plain.messages;
  with_tool.tools = Json::array({tool});
  tool_turn.tools = with_tool.tools;
  tool_turn.messages = Json::array(
      {user,
       {{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({call})}},
       {{"role", "tool"}, {"name", "get_time"}, {"tool_call_id", "call00001"}, {"content", "12:00"}}});
  const struct {
    const char* what;
    const PromptInput& input;
  } trials[] = {{"a plain conversation", plain}, {"tools", with_tool}, {"a tool's answer", tool_turn}};
  struct Refusal {
    const Entry* entry;
    std::string reason, what;
  };
  std::vector<Refusal> refusals;
  for (const auto& trial : trials) {
    const Entry* entry = choose(!trial.input.tools.is_null());
    if (entry == nullptr || !entry->parsed) continue;  // said already, or the plain form serves
    try {
      render(trial.input);
    } catch (const Error& error) {
      const auto same = std::find_if(refusals.begin(), refusals.end(), [&](const Refusal& refusal) {
        return refusal.entry == entry && refusal.reason == error.message();
      });
      if (same != refusals.end()) {
        same->what += std::string(", ") + trial.what;
      } else {
        refusals.push_back({entry, error.message(), trial.what});
      }
    }
  }
  for (const Refusal& refusal : refusals)
    log_warning("the chat template '%s' does not take %s: %s", refusal.entry->name.c_str(),
                refusal.what.c_str(), refusal.reason.c_str());
}

}  // namespace vllm

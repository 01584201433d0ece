#include "serve/messages.h"

#include "serve/json_fields.h"

namespace vllm {
namespace {

/// Text of one part of an array content; throws for anything but text.
std::string part_text(const Json& part, const std::string& place) {
  if (part.is_string()) return part.get<std::string>();
  if (!part.is_object()) fail_argument("%s is %s, needed is an object", place.c_str(), brief(part).c_str());
  const auto type = part.find("type");
  if (type == part.end() || !type->is_string()) fail_argument("%s has no type", place.c_str());
  const std::string& name = type->get_ref<const std::string&>();
  if (name == "text" || name == "input_text" || name == "output_text") {
    const auto text = part.find("text");
    if (text == part.end() || !text->is_string())
      fail_argument("%s of type %s has no text", place.c_str(), name.c_str());
    return text->get<std::string>();
  }
  fail_argument("%s is of type %s, and this model takes text only", place.c_str(), quote(name).c_str());
}

Json normalise_content(const Json& message, const std::string& place, bool parts) {
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) return parts ? Json::array() : Json("");
  if (content->is_string()) return *content;
  if (!content->is_array())
    fail_argument("%s.content is %s, needed is a string or an array of parts", place.c_str(),
                  brief(*content).c_str());
  Json list = Json::array();
  std::string joined;
  for (size_t i = 0; i < content->size(); ++i) {
    const std::string text = part_text((*content)[i], format("%s.content[%zu]", place.c_str(), i));
    if (i > 0) joined += "\n";
    joined += text;
    list.push_back({{"type", "text"}, {"text", text}});
  }
  if (parts) return list;
  return joined;
}

/// Arguments as an object; what is no JSON stays text.
Json normalise_arguments_of(const Json& function, const std::string& place,
                            std::vector<std::string>& warnings) {
  const auto arguments = function.find("arguments");
  if (arguments == function.end() || arguments->is_null()) return Json::object();
  if (!arguments->is_string()) {
    if (arguments->is_object()) return *arguments;
    warnings.push_back(place + ".function.arguments is no object and counts as {}");
    return Json::object();
  }
  const std::string& text = arguments->get_ref<const std::string&>();
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return Json::object();
  try {
    Json parsed = parse_json(text, "arguments", Status::InvalidArgument);
    if (parsed.is_object()) return parsed;
    warnings.push_back(place + ".function.arguments is no object and counts as {}");
    return Json::object();
  } catch (const Error&) {
    warnings.push_back(place + ".function.arguments is no JSON and stays text");
    return text;
  }
}

Json normalise_tool_calls(const Json& calls, const std::string& place, std::vector<std::string>& warnings) {
  if (!calls.is_array())
    fail_argument("%s.tool_calls is %s, needed is an array", place.c_str(), brief(calls).c_str());
  Json out = Json::array();
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string at = format("%s.tool_calls[%zu]", place.c_str(), i);
    if (!calls[i].is_object())
      fail_argument("%s is %s, needed is an object", at.c_str(), brief(calls[i]).c_str());
    Json call = calls[i];
    if (!call.contains("type") || call["type"].is_null()) call["type"] = "function";
    if (call["type"] != "function")
      fail_argument("%s.type is %s, needed is function", at.c_str(), brief(call["type"]).c_str());
    const auto function = call.find("function");
    if (function == call.end() || !function->is_object()) fail_argument("%s has no function", at.c_str());
    (*function)["arguments"] = normalise_arguments_of(*function, at, warnings);
    out.push_back(std::move(call));
  }
  return out;
}

/// Developer messages become system messages; all system messages are joined by blank lines and put first.
Json merge_system(Json messages) {
  std::string system;
  bool any = false;
  Json out = Json::array();
  for (Json& message : messages) {
    if (message["role"] != "developer" && message["role"] != "system") {
      out.push_back(std::move(message));
      continue;
    }
    std::string text;
    if (message["content"].is_string()) {
      text = message["content"].get<std::string>();
    } else {
      for (const Json& part : message["content"])
        text += (text.empty() ? "" : "\n") + part["text"].get<std::string>();
    }
    if (any) system += "\n\n";
    system += text;
    any = true;
  }
  if (any) out.insert(out.begin(), Json{{"role", "system"}, {"content", system}});
  return out;
}

}  // namespace

Json normalise_messages(const Json& messages, bool content_parts, bool developer_is_system,
                        std::vector<std::string>& warnings) {
  if (!messages.is_array()) fail_argument("messages is %s, needed is an array", brief(messages).c_str());
  if (messages.empty()) fail_argument("messages is empty, needed is at least one");
  Json out = Json::array();
  bool developer = false;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string place = format("messages[%zu]", i);
    const Json& message = messages[i];
    if (!message.is_object())
      fail_argument("%s is %s, needed is an object", place.c_str(), brief(message).c_str());
    const auto role = message.find("role");
    if (role == message.end() || !role->is_string()) fail_argument("%s has no role", place.c_str());
    developer = developer || *role == "developer";
    Json normal;
    normal["role"] = *role;
    normal["content"] = normalise_content(message, place, content_parts && *role != "tool");
    for (const auto& [key, value] : message.items()) {
      if (key == "role" || key == "content" || value.is_null()) continue;
      if (key == "tool_calls") {
        Json calls = normalise_tool_calls(value, place, warnings);
        if (!calls.empty()) normal["tool_calls"] = std::move(calls);
      } else if (key == "reasoning" || key == "reasoning_content") {
        const std::string& thought = string_field((place + "." + key).c_str(), value);
        for (const char* name : {"reasoning", "reasoning_content"})
          if (!normal.contains(name)) normal[name] = thought;
      } else {
        normal[key] = value;
      }
    }
    out.push_back(std::move(normal));
  }
  return developer && developer_is_system ? merge_system(std::move(out)) : out;
}

}  // namespace vllm

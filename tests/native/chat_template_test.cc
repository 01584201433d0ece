// Where a model's chat template comes from, what it gets, and the form without one.
#include "serve/chat_template.h"

#include <doctest/doctest.h>

#include "tokenizer_files.h"

using namespace vllm;

namespace {

namespace fs = std::filesystem;

/// Name to text.
using Files = std::map<std::string, std::string>;

/// A folder with the given files, as a checkpoint whose templates are read.
class Folder {
 public:
  explicit Folder(const Files& files) {
    static int count = 0;
    path_ = fs::temp_directory_path() /
            format("vllm_chat_template_test_%d_%d", static_cast<int>(getpid()), count++);
    for (const auto& [name, text] : files) {
      fs::create_directories((path_ / name).parent_path());
      std::ofstream(path_ / name, std::ios::binary) << text;
    }
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }

  std::string operator/(const char* name) const { return (path_ / name).string(); }
  ChatTemplates templates(const std::string& explicit_path = "") const {
    return ChatTemplates(FakeCheckpoint(path_.string(), false), tokenizer(), explicit_path);
  }
  static const Tokenizer& tokenizer() {
    static const std::unique_ptr<Tokenizer> loaded =
        load_tokenizer(byte_level_gguf(fixture("byte_level.json"), "qwen2"));
    return *loaded;
  }

 private:
  fs::path path_;
};

Json user(const Json& content = "Hi") { return Json::array({{{"role", "user"}, {"content", content}}}); }

Json one_tool() { return Json::parse(R"([{"type": "function", "function": {"name": "now"}}])"); }

PromptInput input(Json messages, Json tools = nullptr) {
  PromptInput in;
  in.messages = std::move(messages);
  in.tools = std::move(tools);
  return in;
}

std::string rendered(const Files& files, const PromptInput& in = input(user())) {
  return Folder(files).templates().render(in);
}

std::string config(const Json& chat_template) {
  return dump_json(Json{{"chat_template", chat_template}, {"bos_token", "<s>"}});
}

/// What a template that prints its messages as JSON sees.
std::string seen(const Json& messages, const char* source = "{{ messages | tojson }}") {
  return rendered({{"chat_template.jinja", source}}, input(messages));
}

Json assistant(const Json& arguments) {
  return Json::array(
      {{{"role", "assistant"},
        {"content", nullptr},
        {"tool_calls", Json::array({{{"function", {{"name", "f"}, {"arguments", arguments}}}}})}}});
}

std::string refusal(const Json& messages) {
  return message_of(Status::InvalidArgument, [&] { seen(messages); });
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a template is taken from the first place that has one") {
  const std::string json = R"({"chat_template": "from json"})";
  CHECK(rendered({{"tokenizer_config.json", config("from config")}}) == "from config");
  CHECK(rendered({{"tokenizer_config.json", config("from config")}, {"chat_template.json", json}}) ==
        "from json");
  const Folder all({{"tokenizer_config.json", config("from config")},
                    {"chat_template.json", json},
                    {"chat_template.jinja", "from jinja"},
                    {"other.json", config("from other")},
                    {"other.jinja", "from a file"},
                    {"empty.json", "{}"}});
  CHECK(all.templates().render(input(user())) == "from jinja");
  CHECK(all.templates(all / "other.json").render(input(user())) == "from other");
  CHECK(all.templates(all / "other.jinja").render(input(user())) == "from a file");
  CHECK(all.templates(all / "empty.json").render(input(user())) == "from jinja");
  CHECK(has(message_of(Status::ModelLoad, [&] { all.templates(all / "missing.json"); }), "missing.json"));
  CHECK(has(message_of(Status::ModelLoad, [&] { rendered({{"tokenizer_config.json", "{"}}); }),
            "tokenizer_config.json"));
}

TEST_CASE("of several templates a request with tools gets tool_use, others default, else the first") {
  const auto list = [](std::initializer_list<const char*> names) {
    Json out = Json::array();
    for (const char* name : names) out.push_back({{"name", name}, {"template", std::string("is ") + name}});
    return config(out);
  };
  const PromptInput plain = input(user()), with_tools = input(user(), one_tool());
  const std::string both = list({"rag", "tool_use", "default"});
  CHECK(rendered({{"tokenizer_config.json", both}}, plain) == "is default");
  CHECK(rendered({{"tokenizer_config.json", both}}, with_tools) == "is tool_use");
  CHECK(rendered({{"tokenizer_config.json", list({"rag", "other"})}}, with_tools) == "is rag");
  const std::string object = config({{"default", "is default"}, {"tool_use", "is tool_use"}});
  CHECK(rendered({{"tokenizer_config.json", object}}, with_tools) == "is tool_use");
  const Files files = {{"chat_template.jinja", "is main"},
                       {"additional_chat_templates/tool_use.jinja", "is additional"}};
  CHECK(rendered(files, plain) == "is main");
  CHECK(rendered(files, with_tools) == "is additional");
}

TEST_CASE("LOAD-10 a GGUF's templates and begin token are those of its metadata") {
  FakeCheckpoint gguf = byte_level_gguf(fixture("byte_level.json"), "qwen2");
  gguf.set("bos_token_id", Folder::tokenizer().encode("<|im_start|>", true, false).at(0));
  gguf.config()["tokenizer.chat_template"] = "{{ bos_token }} main {{ eos_token }}.";
  gguf.strings["tokenizer.chat_templates"] = {"tool_use"};
  gguf.config()["tokenizer.chat_template.tool_use"] = "for tools";
  const Folder other(Files{{"t.jinja", "explicit"}});
  const ChatTemplates templates(gguf, Folder::tokenizer(), other / "t.jinja");
  CHECK(templates.render(input(user())) == "<|im_start|> main .");
  CHECK(templates.render(input(user(), one_tool())) == "for tools");
}

TEST_CASE("TPL-05 a template gets what was sent, special tokens, and nothing else") {
  const auto shown = [](const char* source, const PromptInput& in, const Json& tokens = Json::object()) {
    return rendered({{"chat_template.jinja", source}, {"tokenizer_config.json", dump_json(tokens)}}, in);
  };
  const char* tokens = "{{ bos_token }}|{{ eos_token }}|{{ pad_token is defined }}";
  CHECK(shown(tokens, input(user())) == "||False");
  CHECK(shown(tokens, input(user()),
              {{"bos_token", {{"content", "<s>"}}}, {"eos_token", "</s>"}, {"pad_token", nullptr}}) ==
        "<s>|</s>|False");
  const char* names =
      "{{ tools is none }} {{ documents is none }} {{ enable_thinking is defined }} {{ date is defined }} "
      "{{ add_generation_prompt }}";
  CHECK(shown(names, input(user())) == "True True False False True");
  PromptInput in = input(user(), one_tool());
  in.documents = Json::array({{{"text", "d"}}});
  in.add_generation_prompt = false;
  in.variables = {{"enable_thinking", false}, {"tools", "not these"}, {"messages", "nor these"}};
  CHECK(shown(names, in) == "False False True False False");
  CHECK(shown("{{ tools | tojson }}{{ documents | tojson }}{{ messages | length }}", in) ==
        R"([{"type": "function", "function": {"name": "now"}}][{"text": "d"}]1)");
}

TEST_CASE("TPL-03 TPL-05 messages are brought into the form that templates expect") {
  CHECK(seen(user(nullptr)) == R"([{"role": "user", "content": ""}])");
  CHECK(seen(Json::parse(R"([{"role": "user", "name": null}])")) == R"([{"role": "user", "content": ""}])");
  const Json parts = Json::parse(R"([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])");
  CHECK(seen(user(parts)) == R"([{"role": "user", "content": "a\nb"}])");
  const char* walks =
      "{% for m in messages %}{% for part in m.content %}[{{ part.type }} {{ part.text }}]{% endfor %}{% "
      "endfor %}";
  CHECK(seen(user(parts), walks) == "[text a][text b]");
  CHECK(seen(Json::array({{{"role", "tool"}, {"content", parts}}})) ==
        R"([{"role": "tool", "content": "a\nb"}])");

  CHECK(has(seen(assistant(R"({"b": 1, "a": "é"})")), R"("arguments": {"b": 1, "a": "é"})"));
  for (const Json& empty : {Json(""), Json(" "), Json(nullptr), Json("[1]"), Json("5"), Json::array({1})})
    CHECK(has(seen(assistant(empty)), R"("arguments": {})"));
  CHECK(has(seen(assistant("{broken")), R"("arguments": "{broken")"));
  CHECK(has(seen(assistant("{}")), R"("type": "function")"));
  Json none = assistant("");
  none[0]["tool_calls"] = Json::array();
  CHECK(seen(none) == R"([{"role": "assistant", "content": ""}])");

  for (const char* name : {"reasoning", "reasoning_content"})
    CHECK(has(seen(Json::array({{{"role", "assistant"}, {"content", "b"}, {name, "a"}}})),
              R"("reasoning": "a", "reasoning_content": "a")"));
  CHECK(seen(Json::parse(R"([{"role": "user", "content": "u"}, {"role": "developer", "content": "d"},
                             {"role": "system", "content": "s"}])")) ==
        R"([{"role": "system", "content": "d\n\ns"}, {"role": "user", "content": "u"}])");
  CHECK(has(seen(Json::array({{{"role", "developer"}, {"content", "d"}}}),
                 "{# developer #}{% if messages[0].role == 'developer' %}kept{% endif %}"),
            "kept"));
  CHECK(has(seen(Json::array({{{"role", "critic"}, {"content", "c"}}})), R"("role": "critic")"));
}

TEST_CASE("messages that cannot be used are refused with their place") {
  CHECK(has(refusal(Json::array()), "messages is empty"));
  CHECK(has(refusal(Json::object()), "messages"));
  CHECK(has(refusal(Json::array({1})), "messages[0]"));
  CHECK(has(refusal(Json::array({{{"content", "x"}}})), "messages[0] has no role"));
  CHECK(has(refusal(user(5)), "messages[0].content"));
  CHECK(has(refusal(user(Json::parse(R"([{"type": "text", "text": "a"}, {"type": "image_url"}])"))),
            "messages[0].content[1] is of type 'image_url'"));
  CHECK(has(refusal(user(Json::parse(R"([{"type": "text"}])"))), "has no text"));
  for (const char* calls : {R"("x")", R"([1])", R"([{"type": "code"}])", R"([{"type": "function"}])"}) {
    Json message = assistant("");
    message[0]["tool_calls"] = Json::parse(calls);
    CHECK(has(refusal(message), "messages[0].tool_calls"));
  }
}

TEST_CASE("continue_final_message ends the prompt behind the last message") {
  const Files files = {{"chat_template.jinja",
                        "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
                        "{% if add_generation_prompt %}<assistant>{% endif %}"}};
  PromptInput in = input(Json::parse(
      R"([{"role": "user", "content": "Count: one"}, {"role": "assistant", "content": " one, two "}])"));
  in.add_generation_prompt = false;
  in.continue_final_message = true;
  CHECK(rendered(files, in) == "<user>Count: one</user><assistant> one, two");
  CHECK(rendered({}, in) == "user: Count: one\nassistant:  one, two");
  in.messages[1]["content"] = "";
  CHECK(has(message_of(Status::InvalidArgument, [&] { rendered(files, in); }), "continue_final_message"));
  CHECK(has(message_of(Status::InvalidArgument, [&] { rendered({{"chat_template.jinja", "x"}}, in); }),
            "continue_final_message"));
}

TEST_CASE("TPL-02 without a template there are lines of role and content, the tools in front") {
  const Json talk = Json::parse(R"([{"role": "system", "content": "S"}, {"role": "user", "content": "U"}])");
  PromptInput in = input(talk);
  CHECK(rendered({}, in) == "system: S\nuser: U\nassistant:");
  in.add_generation_prompt = false;
  CHECK(rendered({}, in) == "system: S\nuser: U");
  const std::string with_tools = rendered({}, input(talk, one_tool()));
  CHECK(has(with_tools, "<tools>\n{\"type\":\"function\",\"function\":{\"name\":\"now\"}}\n</tools>"));
  CHECK(with_tools.ends_with("system: S\nuser: U\nassistant:"));
  CHECK(has(rendered({}, input(assistant(R"({"a": 1})"))),
            "<tool_call>\n{\"name\":\"f\",\"arguments\":{\"a\":1}}"));
}

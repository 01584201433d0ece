// A tiny Qwen3 whose chat template and dialects a test chooses, asked through the ABI.
#pragma once
#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "all_devices.h"
#include "base/json.h"
#include "logged.h"
#include "tiny_models.h"
#include "vllm_ext.h"

namespace chat_model {

namespace fs = std::filesystem;
using vllm::Json;
using vllm::test::logged;

/// The tiny Qwen3 with another chat template.
struct Model {
  fs::path folder;
  vllm_engine* engine = nullptr;

  /// An empty `chat_template`: the model has none.
  explicit Model(const std::string& chat_template, const char* tool_parser = nullptr,
                 const char* reasoning = nullptr, bool jump_forward = false,
                 const char* tokenizer_config = nullptr) {
    static int count = 0;
    folder = fs::temp_directory_path() /
             ("vllm_chat_test_" + std::to_string(getpid()) + "_" + std::to_string(count++));
    fs::create_directory(folder);
    for (const auto& file : fs::directory_iterator(tiny::folder("qwen3")))
      if (file.path().extension() == ".json" || file.path().extension() == ".safetensors")
        fs::copy_file(file.path(), folder / file.path().filename());
    if (chat_template.empty()) {
      fs::remove(folder / "tokenizer_config.json");
    } else {
      std::ofstream(folder / "chat_template.jinja") << chat_template;
    }
    if (tokenizer_config != nullptr) std::ofstream(folder / "tokenizer_config.json") << tokenizer_config;
    const std::string path = folder.string();
    vllm_model_params params = vllm_model_params_default();
    params.model_path = path.c_str();
    params.block_size = 16;
    params.num_blocks = 64;
    params.max_model_len = 512;
    params.tool_parser = tool_parser;
    params.reasoning_parser = reasoning;
    params.enable_jump_forward = jump_forward ? 1 : 2;
    const std::string settings =
        R"({"threads": 2, "kv_cache_dtype": "f32", "device": ")" + vllm::test::engine_device() + "\"}";
    REQUIRE_MESSAGE(vllm_ext_load(&params, settings.c_str(), &engine) == VLLM_OK, vllm_last_error());
  }
  ~Model() {
    vllm_engine_free(engine);
    fs::remove_all(folder);
  }

  Json chat(const Json& request) {
    char* out = nullptr;
    REQUIRE_MESSAGE(vllm_chat(engine, request.dump().c_str(), &out) == VLLM_OK, vllm_last_error());
    Json json = vllm::parse_json(out, "answer", vllm::Status::Unknown);
    vllm_string_free(out);
    return json;
  }

  std::string refused(const Json& request) {
    char* out = nullptr;
    CHECK(vllm_chat(engine, request.dump().c_str(), &out) == VLLM_ERR_INVALID_ARGUMENT);
    CHECK(out == nullptr);
    return vllm_last_error();
  }

  /// The chunks of a stream, and how the terminal call looked.
  std::vector<Json> stream(Json request) {
    struct Chunks {
      std::vector<Json> all;
      int terminal = 0;
    } chunks;
    request["stream"] = true;
    const auto callback = [](const char* text, bool finished, void* user_data) {
      auto* c = static_cast<Chunks*>(user_data);
      if (finished) {
        CHECK(std::string(text).empty());
        ++c->terminal;
      } else {
        CHECK(c->terminal == 0);
        c->all.push_back(vllm::parse_json(text, "chunk", vllm::Status::Unknown));
      }
      return true;
    };
    REQUIRE(vllm_chat_stream(engine, request.dump().c_str(), callback, &chunks) == VLLM_OK);
    CHECK(chunks.terminal == 1);
    return chunks.all;
  }

  /// The chunks of an extension request, of either form.
  std::vector<Json> submit(const Json& request) {
    std::vector<Json> chunks;
    vllm_request* handle = nullptr;
    const auto callback = [](const char* text, bool, void* user_data) {
      static_cast<std::vector<Json>*>(user_data)->push_back(
          vllm::parse_json(text, "chunk", vllm::Status::Unknown));
      return true;
    };
    REQUIRE_MESSAGE(vllm_ext_submit(engine, request.dump().c_str(), callback, &chunks, &handle) == VLLM_OK,
                    vllm_last_error());
    vllm_request_wait(handle);
    vllm_request_free(handle);
    return chunks;
  }

  std::string submit_refused(const Json& request) {
    vllm_request* handle = nullptr;
    const auto callback = [](const char*, bool, void*) { return true; };
    CHECK(vllm_ext_submit(engine, request.dump().c_str(), callback, nullptr, &handle) ==
          VLLM_ERR_INVALID_ARGUMENT);
    CHECK(handle == nullptr);
    return vllm_last_error();
  }

  Json query(const Json& question) {
    char* out = nullptr;
    REQUIRE(vllm_ext_query(engine, question.dump().c_str(), &out) == VLLM_OK);
    Json json = vllm::parse_json(out, "answer", vllm::Status::Unknown);
    vllm_string_free(out);
    return json;
  }

  int64_t free_blocks() { return query({{"query", "metrics"}})["kv_blocks_free"].get<int64_t>(); }

  /// A logit_bias that favours the token of one character.
  Json favour(const std::string& character, double bias) {
    const Json ids = query({{"query", "tokenize"}, {"text", character}, {"add_special", false}})["tokens"];
    REQUIRE(ids.size() == 1);
    return {{std::to_string(ids[0].get<int>()), bias}};
  }
};

inline int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

inline const char* const kPlain =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt "
    "%}<assistant>{% endif %}";

inline Json ask(const std::string& text) { return Json::array({{{"role", "user"}, {"content", text}}}); }

inline Json request(int max_tokens, double temperature = 0, int seed = 1) {
  return {{"messages", ask("Hi")}, {"max_tokens", max_tokens}, {"temperature", temperature}, {"seed", seed}};
}

inline Json weather_tools() {
  return Json::parse(
      R"([{"type": "function", "function": {"name": "get_weather", "description": "w", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"type": "integer", "minimum": 1,
    "maximum": 9}}, "required": ["city", "days"]}}}, {"type": "function", "function": {"name": "now",
    "parameters": {"type": "object", "properties": {}}}}])");
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline Json parsed(const std::string& text) {
  return vllm::parse_json(text, "the model's text", vllm::Status::Unknown);
}

/// An answer's parts, streamed or not.
struct Answer {
  std::string reasoning, content, finish;
  std::vector<std::pair<std::string, std::string>> calls;  // name, arguments
  int tokens = 0;

  bool operator==(const Answer&) const = default;
  void add(const Json& message) {
    reasoning += message.value("reasoning", "");
    if (message.contains("content") && message["content"].is_string())
      content += message["content"].get<std::string>();
    if (!message.contains("tool_calls")) return;
    for (const Json& call : message["tool_calls"]) {
      calls.resize(std::max(calls.size(), call["index"].get<size_t>() + 1));
      calls[call["index"].get<size_t>()].first += call["function"].value("name", "");
      calls[call["index"].get<size_t>()].second += call["function"].value("arguments", "");
    }
  }
};

inline std::ostream& operator<<(std::ostream& out, const Answer& a) {
  out << a.finish << " after " << a.tokens << ": [" << a.reasoning << "] " << a.content;
  for (const auto& [name, arguments] : a.calls) out << " | " << name << " " << arguments;
  return out;
}

inline Answer whole(Model& model, const Json& r) {
  const Json json = model.chat(r);
  Answer answer;
  answer.add(json["choices"][0]["message"]);
  answer.finish = json["choices"][0]["finish_reason"].get<std::string>();
  answer.tokens = json["usage"]["completion_tokens"].get<int>();
  return answer;
}

/// The answer to a request of the extension, of either form.
inline Answer joined(const std::vector<Json>& chunks) {
  Answer answer;
  for (const Json& chunk : chunks) {
    REQUIRE_FALSE(chunk.contains("error"));
    const Json& choice = chunk["choices"][0];
    if (choice.contains("text")) answer.content += choice["text"].get<std::string>();
    if (choice.contains("delta")) {
      const Json& delta = choice["delta"];
      CHECK(delta.contains("content") + delta.contains("reasoning") + delta.contains("tool_calls") <= 1);
      answer.add(delta);
    }
    if (choice["finish_reason"].is_string()) answer.finish = choice["finish_reason"].get<std::string>();
    answer.tokens = chunk["usage"]["completion_tokens"].get<int>();
  }
  return answer;
}

/// The answer, which has to be the same streamed.
inline Answer both_ways(Model& model, const Json& r) {
  const Answer answer = whole(model, r);
  CHECK(joined(model.submit(r)) == answer);
  return answer;
}

}  // namespace chat_model

// Tokenizers for tests: made of fixtures, as a folder with tokenizer.json or as the metadata of a GGUF.
#pragma once
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "text/tokenizer.h"

namespace vllm {

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail_runtime("%s cannot be read.", path.c_str());
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

inline Json fixture(const char* name) {
  return parse_json(read_file(std::string(FIXTURES "/tokenizers/") + name), name, Status::Runtime);
}

/// Metadata without a file.
class FakeCheckpoint : public Checkpoint {
 public:
  explicit FakeCheckpoint(std::string path = "fake.gguf", bool gguf = true) : gguf_(gguf) {
    path_ = std::move(path);
    config_ = Json::object();
  }
  bool is_gguf() const override { return gguf_; }
  std::vector<std::string_view> string_array(std::string_view key) const override {
    const auto found = strings.find(key);
    if (found == strings.end()) return {};
    return {found->second.begin(), found->second.end()};
  }
  std::vector<float> float_array(std::string_view key) const override {
    const auto found = floats.find(key);
    return found == floats.end() ? std::vector<float>{} : found->second;
  }
  std::vector<int32_t> int_array(std::string_view key) const override {
    const auto found = ints.find(key);
    return found == ints.end() ? std::vector<int32_t>{} : found->second;
  }
  Json& config() { return config_; }

  std::map<std::string, std::vector<std::string>, std::less<>> strings;
  std::map<std::string, std::vector<float>, std::less<>> floats;
  std::map<std::string, std::vector<int32_t>, std::less<>> ints;

  std::vector<std::string>& tokens() { return strings["tokenizer.ggml.tokens"]; }
  std::vector<std::string>& merges() { return strings["tokenizer.ggml.merges"]; }
  std::vector<float>& scores() { return floats["tokenizer.ggml.scores"]; }
  std::vector<int32_t>& types() { return ints["tokenizer.ggml.token_type"]; }
  void set(const char* name, Json value) {
    config_[std::string("tokenizer.ggml.") + name] = std::move(value);
  }

 private:
  bool gguf_;
};

/// Loads a folder that holds just these files; "" leaves the second out.
inline std::unique_ptr<Tokenizer> load_folder(const std::string& tokenizer_json,
                                              const std::string& config_json = "") {
  static int count = 0;
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() /
      format("vllm_tokenizer_test_%d_%d", static_cast<int>(getpid()), count++);
  std::filesystem::create_directory(folder);
  struct Remove {
    const std::filesystem::path& folder;
    ~Remove() { std::filesystem::remove_all(folder); }
  } remove{folder};
  std::ofstream(folder / "tokenizer.json", std::ios::binary) << tokenizer_json;
  if (!config_json.empty()) std::ofstream(folder / "tokenizer_config.json", std::ios::binary) << config_json;
  return load_tokenizer(FakeCheckpoint(folder.string(), false));
}

/// The message of the Error with this status that `action` throws; "" when it throws none.
template <typename Action>
std::string message_of(Status status, Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    if (error.status() == status) return error.message();
    return "another status: " + error.message();
  }
  return "";
}

/// tokenizer.json of a family of byte_level_families.json.
inline Json byte_level_json(const Json& vocabulary, const Json& family) {
  Json json;
  for (const char* key : {"normalizer", "pre_tokenizer", "post_processor", "decoder"})
    json[key] = family[key];
  json["added_tokens"] = vocabulary["added_tokens"];
  json["model"] = {{"type", "BPE"}, {"vocab", vocabulary["vocab"]}, {"merges", vocabulary["merges"]}};
  json["model"]["ignore_merges"] = family["ignore_merges"];
  return json;
}

/// The same vocabulary as a GGUF has it.
inline FakeCheckpoint byte_level_gguf(const Json& vocabulary, const std::string& pre) {
  FakeCheckpoint gguf;
  gguf.set("model", "gpt2");
  gguf.set("pre", pre);
  const size_t size = vocabulary["vocab"].size() + vocabulary["added_tokens"].size();
  gguf.tokens().resize(size);
  gguf.types().resize(size, 1);
  for (const auto& [text, id] : vocabulary["vocab"].items()) gguf.tokens()[id.get<size_t>()] = text;
  for (const Json& token : vocabulary["added_tokens"]) {
    const auto id = token["id"].get<size_t>();
    gguf.tokens()[id] = token["content"].get<std::string>();
    gguf.types()[id] = token["special"].get<bool>() ? 3 : 4;
  }
  for (const Json& merge : vocabulary["merges"]) {
    gguf.merges().push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  return gguf;
}

}  // namespace vllm

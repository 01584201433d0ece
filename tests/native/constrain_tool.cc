// Follows grammars over a vocabulary on lines of JSON, for tests that compare the masks with another
// implementation.
//
//   constrain_tool PATH      PATH: a GGUF, a folder with tokenizer.json, or a .json file with
//                            {"tokens": [base64, ...], "controls": [id, ...], "end_ids": [id, ...]}
//
// Each input line is one of
//   {"compile": {"kind": "json", "text": ...}}    kinds: json, object, regex, gbnf, tags,
//                                                 choice (with "choices")
//   {"mask": true}                                the state: allowed ids (base64 of the mask's words),
//   can_end, times in us
//   {"accept": [ids]}   {"rollback": n}
// and gives one line; a refused text gives {"error": ...}.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "base/json.h"
#include "constrain/compiler.h"
#include "text/tokenizer.h"

namespace {

using vllm::Json;

class TokenizerFolder : public vllm::Checkpoint {
 public:
  explicit TokenizerFolder(std::string path) { path_ = std::move(path); }
  bool is_gguf() const override { return false; }
  std::vector<std::string_view> string_array(std::string_view) const override { return {}; }
  std::vector<float> float_array(std::string_view) const override { return {}; }
  std::vector<int32_t> int_array(std::string_view) const override { return {}; }
};

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string decode_base64(const std::string& text) {
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(kDigits.find(c));
    if ((count += 6) >= 8) out += static_cast<char>(bits >> (count -= 8));
  }
  return out;
}

std::string encode_base64(const std::vector<uint32_t>& words) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(words.data());
  const size_t size = words.size() * 4;
  std::string out;
  for (size_t i = 0; i < size; i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) bits = bits << 8 | (i + k < size ? bytes[i + k] : 0u);
    for (size_t k = 0; k < 4; ++k) out += i + k > size ? '=' : kDigits[bits >> (18 - 6 * k) & 63];
  }
  return out;
}

class ListedTokenizer : public vllm::Tokenizer {
 public:
  explicit ListedTokenizer(const Json& file) {
    for (const Json& token : file.at("tokens")) tokens_.push_back(decode_base64(token.get<std::string>()));
    vocab_size_ = static_cast<int32_t>(tokens_.size());
    controls_.resize(tokens_.size());
    for (const Json& id : file.at("controls")) controls_.at(id.get<size_t>()) = true;
    end_ids_ = file.at("end_ids").get<std::vector<int32_t>>();
  }
  std::vector<int32_t> encode(std::string_view, bool, bool) const override { return {}; }
  std::string_view bytes(int32_t id) const override { return tokens_.at(id); }
  bool is_control(int32_t id) const override { return controls_.at(id); }
  std::optional<int32_t> find(std::string_view) const override { return std::nullopt; }

 private:
  std::vector<std::string> tokens_;
  std::vector<bool> controls_;
};

std::unique_ptr<vllm::Tokenizer> load(const std::string& path) {
  if (std::filesystem::is_directory(path)) return vllm::load_tokenizer(TokenizerFolder(path));
  if (!path.ends_with(".json")) return vllm::load_tokenizer(*vllm::Checkpoint::open(path));
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return std::make_unique<ListedTokenizer>(
      vllm::parse_json(text.str(), "the vocabulary", vllm::Status::ModelLoad));
}

vllm::ConstraintSpec spec_of(const Json& request) {
  using Kind = vllm::ConstraintSpec::Kind;
  const std::string kind = request.at("kind");
  vllm::ConstraintSpec spec;
  spec.text = request.value("text", "");
  spec.compact = request.value("compact", false);
  spec.choices = request.value("choices", std::vector<std::string>());
  if (kind == "tags") spec.tags = vllm::parse_structural_tag_request(spec.text);
  spec.kind = kind == "json"     ? Kind::JsonSchema
              : kind == "object" ? Kind::JsonObject
              : kind == "regex"  ? Kind::Regex
              : kind == "choice" ? Kind::Choice
              : kind == "tags"   ? Kind::StructuralTags
                                 : Kind::Gbnf;
  return spec;
}

class Session {
 public:
  explicit Session(const vllm::Tokenizer& tokenizer)
      : compiler_(tokenizer, tokenizer.end_ids()), words_((tokenizer.vocab_size() + 31) / 32) {}

  Json answer(const Json& request) {
    if (request.contains("compile")) {
      constraint_ = nullptr;
      std::vector<std::string> warnings;
      const double took =
          timed([&] { constraint_ = compiler_.make(spec_of(request["compile"]), &warnings); });
      return {{"us", took}, {"warnings", warnings}};
    }
    if (constraint_ == nullptr) return {{"error", "nothing is compiled"}};
    if (request.contains("accept")) {
      const auto ids = request["accept"].get<std::vector<int32_t>>();
      int count = 0;
      const double took = timed([&] { count = constraint_->accept(ids); });
      return {{"accepted", count}, {"us", took}};
    }
    if (request.contains("rollback")) {
      constraint_->rollback(request["rollback"].get<int>());
      return {{"ok", true}};
    }
    const double took = timed([&] { constraint_->mask(words_); });
    return {{"mask", encode_base64(words_)}, {"can_end", constraint_->can_end()}, {"us", took}};
  }

 private:
  static double timed(auto&& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  }

  vllm::ConstraintCompiler compiler_;
  std::vector<uint32_t> words_;
  std::unique_ptr<vllm::Constraint> constraint_;
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::cerr << "usage: constrain_tool PATH\n";
    return 2;
  }
  const auto tokenizer = load(argv[1]);
  Session session(*tokenizer);
  std::cout << vllm::dump_json({{"vocab_size", tokenizer->vocab_size()}, {"end_ids", tokenizer->end_ids()}})
            << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    Json out;
    try {
      out = session.answer(vllm::parse_json(line, "the line", vllm::Status::InvalidArgument));
    } catch (const vllm::Error& error) {
      out = {{"error", error.message()}};
    }
    std::cout << vllm::dump_json(out) << std::endl;
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << "constrain_tool: " << error.what() << "\n";
  return 1;
}

// Encodes and decodes lines of JSON with a real tokenizer, for tests that compare it with another
// implementation.
//
//   encode_tool PATH      PATH: a GGUF, or a folder with tokenizer.json
//
// Each input line is {"text": ..., "special": true, "bos": true} and gives the list of ids, or
// {"ids": [...], "skip_special": true} and gives the text; a refused line gives {"error": ...}. The first
// line of output describes the tokenizer and the milliseconds that loading took.
#include <chrono>
#include <filesystem>
#include <iostream>

#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace {

/// A folder that holds a tokenizer only.
class TokenizerFolder : public vllm::Checkpoint {
 public:
  explicit TokenizerFolder(std::string path) { path_ = std::move(path); }
  bool is_gguf() const override { return false; }
  std::vector<std::string_view> string_array(std::string_view) const override { return {}; }
  std::vector<float> float_array(std::string_view) const override { return {}; }
  std::vector<int32_t> int_array(std::string_view) const override { return {}; }
};

vllm::Json answer(const vllm::Tokenizer& tokenizer, const vllm::Json& request) {
  if (request.contains("ids")) {
    return vllm::decode(tokenizer, request["ids"].get<std::vector<int32_t>>(),
                        request.value("skip_special", true));
  }
  return tokenizer.encode(request.at("text").get<std::string>(), request.value("special", true),
                          request.value("bos", false));
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::cerr << "usage: encode_tool PATH\n";
    return 2;
  }
  const std::string path = argv[1];
  std::unique_ptr<vllm::Checkpoint> checkpoint;
  if (std::filesystem::is_directory(path)) {
    checkpoint = std::make_unique<TokenizerFolder>(path);
  } else {
    checkpoint = vllm::Checkpoint::open(path);
  }
  const auto start = std::chrono::steady_clock::now();
  const auto tokenizer = vllm::load_tokenizer(*checkpoint);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  std::cout << vllm::dump_json({{"vocab_size", tokenizer->vocab_size()},
                                {"adds_bos", tokenizer->adds_bos()},
                                {"bos", tokenizer->bos().value_or(-1)},
                                {"end_ids", tokenizer->end_ids()},
                                {"load_ms", took.count()}})
            << "\n";
  for (std::string line; std::getline(std::cin, line);) {
    vllm::Json out;
    try {
      out = answer(*tokenizer, vllm::parse_json(line, "the line", vllm::Status::InvalidArgument));
    } catch (const vllm::Error& error) {
      out = {{"error", error.message()}};
    }
    std::cout << vllm::dump_json(out) << "\n";
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << "encode_tool: " << error.what() << "\n";
  return 1;
}

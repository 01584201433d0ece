// The tiny checkpoints of tests/fixtures/transformers with what transformers computed for them.
#pragma once
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"

namespace tiny {

struct Expected {
  std::vector<int32_t> token_ids;
  std::vector<float> logits;  // [token_ids.size(), vocab]
  int vocab = 0;
  float std = 0;
  std::vector<int32_t> greedy_prompt, greedy_ids;
  std::vector<double> greedy_gap;
};

inline std::string folder(const std::string& name) { return std::string(FIXTURES) + "/transformers/" + name; }

/// All numbers of a file.
inline std::vector<float> floats(const std::string& path) {
  const std::string bytes = vllm::read_text_file(path);
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(float));
  return out;
}

inline Expected expected(const std::string& name) {
  const vllm::Json json = vllm::parse_json(vllm::read_text_file(folder(name) + "/expected.json"),
                                           "expected.json", vllm::Status::Unknown);
  Expected out;
  out.token_ids = json["token_ids"].get<std::vector<int32_t>>();
  out.vocab = json["logits"]["shape"][1].get<int>();
  out.std = json["logits"]["std"].get<float>();
  out.greedy_prompt = json["greedy"]["prompt_ids"].get<std::vector<int32_t>>();
  out.greedy_ids = json["greedy"]["token_ids"].get<std::vector<int32_t>>();
  out.greedy_gap = json["greedy"]["top2_gap"].get<std::vector<double>>();
  out.logits = floats(folder(name) + "/" + json["logits"]["file"].get<std::string>());
  if (out.logits.size() != out.token_ids.size() * static_cast<size_t>(out.vocab))
    throw std::runtime_error("expected logits of " + name + " have another size");
  return out;
}

}  // namespace tiny

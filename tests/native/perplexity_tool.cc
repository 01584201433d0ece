// How well a model predicts tokens, for comparison with another implementation on the same file.
//
//   perplexity_tool MODEL WINDOW [THREADS [bf16|f32|q8_0 [DEVICE]]] < TOKENS
//
// TOKENS is a JSON list of ids. They are cut into windows of WINDOW tokens, each a sequence of its own;
// printed is {"nll": sum of -log p over all but the first token of each window, "tokens": their number,
// "device": ...}.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <iterator>

#include "base/error.h"
#include "base/json.h"
#include "model/model.h"

namespace {

/// -log p of `token`, summed up in f64.
double surprise(std::span<const float> logits, int32_t token) {
  const float top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float v : logits) sum += std::exp(static_cast<double>(v) - top);
  return std::log(sum) + top - logits[static_cast<size_t>(token)];
}

/// The sum over one sequence, whose logits are computed a few rows at a time.
double surprise_of(vllm::Model& model, vllm::KvCache& cache, std::span<const int32_t> tokens) {
  constexpr int kStep = 128;
  const int n = static_cast<int>(tokens.size());
  double sum = 0;
  for (int begin = 0; begin < n; begin += kStep) {
    const int end = std::min(n, begin + kStep);
    vllm::StepBatch batch;
    batch.seq_start = {0, end - begin};
    batch.state_slots = {-1};
    batch.max_blocks = cache.spec.num_blocks;
    for (int b = 0; b < batch.max_blocks; ++b) batch.block_table.push_back(b);
    for (int p = begin; p < end; ++p) {
      batch.token_ids.push_back(tokens[p]);
      batch.positions.push_back(p);
      if (p + 1 < n) batch.logit_rows.push_back(p - begin);
    }
    model.forward(batch, cache);
    for (int row : batch.logit_rows) sum += surprise(model.logits(row), tokens[begin + row + 1]);
  }
  return sum;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3) {
    std::cerr << "usage: perplexity_tool MODEL WINDOW [THREADS [bf16|f32|q8_0 [DEVICE]]] < TOKENS\n";
    return 2;
  }
  const int window = std::stoi(argv[2]);
  const std::string text((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
  const auto tokens =
      vllm::parse_json(text, "the tokens", vllm::Status::InvalidArgument).get<std::vector<int32_t>>();
  const auto device = vllm::make_device(argc > 5 ? argv[5] : "cpu", argc > 3 ? std::stoi(argv[3]) : 0);
  const auto checkpoint = vllm::Checkpoint::open(argv[1]);
  const auto model = vllm::Model::load(*checkpoint, *device);
  for (int32_t token : tokens) {
    if (token < 0 || token >= model->spec().vocab)
      vllm::fail_argument("Token %d is outside the vocabulary.", token);
  }
  vllm::KvCacheSpec spec;
  spec.layers = model->kv_layers();
  spec.block_size = 32;
  spec.num_blocks = (window + 31) / 32;
  const std::string_view kv = argc > 4 ? argv[4] : "bf16";
  spec.format = kv == "f32"    ? vllm::KvFormat::F32
                : kv == "q8_0" ? vllm::KvFormat::Q8_0
                               : vllm::KvFormat::BF16;
  const auto cache = device->make_kv_cache(spec);
  double sum = 0;
  int64_t count = 0;
  for (size_t begin = 0; begin < tokens.size(); begin += static_cast<size_t>(window)) {
    const size_t length = std::min(static_cast<size_t>(window), tokens.size() - begin);
    sum += surprise_of(*model, *cache, std::span(tokens).subspan(begin, length));
    count += static_cast<int64_t>(length) - 1;
  }
  std::cout << vllm::dump_json({{"nll", sum}, {"tokens", count}, {"device", device->description()}}) << "\n";
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}

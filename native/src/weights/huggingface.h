// Hugging Face model directories: config.json and safetensors, whole or in shards.
#pragma once
#include <string>
#include <vector>

#include "weights/checkpoint.h"

namespace vllm {

class HuggingFaceCheckpoint : public Checkpoint {
 public:
  /// Opens the directory at `path`.
  explicit HuggingFaceCheckpoint(const std::string& path);

  bool is_gguf() const override { return false; }
  std::vector<std::string_view> string_array(std::string_view) const override { return {}; }
  std::vector<float> float_array(std::string_view) const override { return {}; }
  std::vector<int32_t> int_array(std::string_view) const override { return {}; }

 private:
  void read_config();
  void read_weights();
  void read_shards(const std::string& index_path);
  /// Puts the tensors of each quantised module together as its one weight.
  void join_quantised();
};

}  // namespace vllm

// GGUF models, whole or split.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weights/checkpoint.h"
#include "weights/gguf.h"

namespace vllm {

class GgufCheckpoint : public Checkpoint {
 public:
  /// Opens the file at `path` and, when it is a part of a split model, all the other parts beside it.
  explicit GgufCheckpoint(const std::string& path);

  bool is_gguf() const override { return true; }
  std::vector<std::string_view> string_array(std::string_view key) const override;
  std::vector<float> float_array(std::string_view key) const override;
  std::vector<int32_t> int_array(std::string_view key) const override;

 private:
  void take_metadata(GgufFile& part);
  void take_tensors(GgufFile& part);
  /// Makes `X.scale` a part of `X.weight`, as files converted from NVFP4 have them (llama.cpp's converter),
  /// and drops `X.input_scale`, which is for products whose inputs are quantised too.
  void join_scales();
  /// Of the whole weight, or of each row where there is one for each matrix of a stack.
  std::shared_ptr<const std::vector<float>> scale_of(const Weight& weight, const Weight& scale) const;
  /// The array of this key, null when the key is absent; another type of value is an error.
  const GgufValue* find_array(std::string_view key, bool of_strings) const;

  std::shared_ptr<MappedFile> file_;  // holds the metadata
  std::map<std::string, GgufValue, std::less<>> metadata_;
};

}  // namespace vllm

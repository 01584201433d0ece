// An opened model: one GGUF file (or its split parts), or a Hugging Face directory with safetensors.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "device/device.h"

namespace vllm {

/// A named tensor of a checkpoint; `shape` is outermost first (Hugging Face order), `data` of any alignment.
struct Weight {
  std::string name;
  Format format = Format::F32;
  std::vector<int64_t> shape;
  const uint8_t* data = nullptr;
  size_t bytes = 0;
  std::shared_ptr<MappedFile> file;
  // Of a quantised weight whose parts are several tensors: see WeightView. `data` and `bytes` are then those
  // of its codes.
  std::shared_ptr<const RowSource> source;
  std::shared_ptr<const std::vector<float>> scale;
  std::shared_ptr<const std::vector<int32_t>> order;
  bool joined() const { return source || scale || order; }

  /// As a matrix: 1-D tensors are one row, leading dimensions are folded into the rows.
  WeightView view() const;
};

/// A tensor that is there in a type that is none of ours.
struct UnsupportedTensor {
  std::string type;
  std::shared_ptr<MappedFile> file;
  std::vector<int64_t> shape;
  const uint8_t* data = nullptr;
  size_t bytes = 0;
};

class Checkpoint {
 public:
  /// Opens `path` (a .gguf file by content, or a directory with config.json). Everything in it is treated as
  /// hostile. Throws Error(ModelLoad) with file, what was found and what is needed.
  static std::unique_ptr<Checkpoint> open(const std::string& path);
  virtual ~Checkpoint() = default;

  virtual bool is_gguf() const = 0;
  const std::string& path() const { return path_; }
  /// Hugging Face: config.json with `text_config` merged over the top level. GGUF: all scalar metadata and
  /// numeric arrays of at most 4096 entries, keys as in the file ("llama.block_count").
  const Json& config() const { return config_; }
  /// By checkpoint name; null when absent. Throws Error(ModelLoad) when the tensor is there in a type that is
  /// not supported, naming tensor, type and the supported ones, or when its parts make no weight.
  const Weight* find(std::string_view name) const;
  const std::map<std::string, Weight, std::less<>>& weights() const { return weights_; }
  /// Weight formats with their bytes (MB is 10^6), most first: "Q4_1 66.4 MB, Q8_0 30.1 MB", and the
  /// quantisation that the configuration names.
  std::string format_summary() const;
  /// 16 hex digits over all tensor names, formats, shapes and offsets.
  std::string fingerprint() const;

  // GGUF only (empty for directories): arrays of the metadata, borrowed from the mapping.
  virtual std::vector<std::string_view> string_array(std::string_view key) const = 0;
  virtual std::vector<float> float_array(std::string_view key) const = 0;
  virtual std::vector<int32_t> int_array(std::string_view key) const = 0;

 protected:
  std::string path_;
  Json config_;
  std::map<std::string, Weight, std::less<>> weights_;
  std::map<std::string, UnsupportedTensor, std::less<>> unsupported_;
  std::map<std::string, std::string, std::less<>> faults_;  // weight to why it cannot be read
  std::string quantisation_;                                // for format_summary; empty: none
};

/// "F32, F16, BF16, ...": the formats of base/formats.h, for error messages.
std::string supported_formats();

}  // namespace vllm

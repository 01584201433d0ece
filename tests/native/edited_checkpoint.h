// A checkpoint with changes, and the words with which a model of it is refused.
#pragma once
#include <doctest/doctest.h>

#include "base/error.h"
#include "base/mapped_file.h"
#include "file_writers.h"
#include "model/model.h"
#include "weights/checkpoint.h"

struct EditedCheckpoint : vllm::Checkpoint {
  explicit EditedCheckpoint(const vllm::Checkpoint& from) : gguf_(from.is_gguf()) {
    path_ = from.path();
    config_ = from.config();
    weights_ = from.weights();
  }
  bool is_gguf() const override { return gguf_; }
  std::vector<std::string_view> string_array(std::string_view) const override { return {}; }
  std::vector<float> float_array(std::string_view) const override { return {}; }
  std::vector<int32_t> int_array(std::string_view) const override { return {}; }
  using Checkpoint::config_;
  using Checkpoint::weights_;

 private:
  bool gguf_;
};

/// The same weights as F32 or BF16, in a file of their own.
struct ConvertedCheckpoint : EditedCheckpoint {
  ConvertedCheckpoint(const vllm::Checkpoint& from, vllm::Format format, const vllm::test::TempDir& folder)
      : EditedCheckpoint(from) {
    const auto size = static_cast<size_t>(vllm::format_info(format).block_bytes);
    std::string bytes;
    std::vector<float> row;
    for (const auto& [name, weight] : weights_) {
      const vllm::WeightView view = weight.view();
      row.resize(static_cast<size_t>(view.cols));
      for (int64_t r = 0; r < view.rows; ++r) {
        view.decode_row(r, row.data());
        for (const float value : row)
          bytes += format == vllm::Format::F32 ? vllm::test::raw(value)
                                               : vllm::test::raw(vllm::f32_to_bf16(value));
      }
    }
    const auto file = vllm::MappedFile::open(folder.write("weights", bytes));
    const uint8_t* next = file->data();
    for (auto& [name, weight] : weights_) {
      const vllm::WeightView view = weight.view();
      weight.format = format;
      weight.data = next;
      weight.bytes = static_cast<size_t>(view.rows * view.cols) * size;
      weight.file = file;
      weight.source = nullptr;
      weight.scale = nullptr;
      weight.order = nullptr;
      next += weight.bytes;
    }
  }
};

/// "" when it loads.
template <typename Edit>
std::string refusal(const vllm::Checkpoint& checkpoint, const Edit& edit) {
  EditedCheckpoint edited(checkpoint);
  edit(edited);
  const auto device = vllm::make_reference_device();
  try {
    vllm::Model::load(edited, *device);
  } catch (const vllm::Error& error) {
    CHECK(error.status() == vllm::Status::ModelLoad);
    return error.message();
  }
  return std::string();
}

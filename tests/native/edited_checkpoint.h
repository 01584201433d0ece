// A checkpoint with changes, and the words with which a model of it is refused.
#pragma once
#include <doctest/doctest.h>

#include "base/error.h"
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

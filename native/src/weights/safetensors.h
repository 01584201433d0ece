// Safetensors files.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "weights/checkpoint.h"

namespace vllm {

/// The table of one file. Every tensor's bytes lie inside the file and overlap no other tensor's.
struct SafetensorsFile {
  std::map<std::string, Weight, std::less<>> weights;
  std::map<std::string, UnsupportedTensor, std::less<>> unsupported;
};

/// Throws Error(ModelLoad) naming the file, the tensor and what is wrong with it.
SafetensorsFile parse_safetensors(const std::shared_ptr<MappedFile>& file);

}  // namespace vllm

// The tables of a GGUF file, version 2 or 3.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weights/checkpoint.h"

namespace vllm {

/// Value types of the metadata, numbered as in the file.
enum class GgufType : uint32_t { U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64 };

/// One metadata value, borrowed from the mapping and checked to lie inside it.
struct GgufValue {
  GgufType type = GgufType::U8;  // of the value, or of the elements of an array; never Array
  bool is_array = false;
  uint64_t count = 1;             // elements
  const uint8_t* data = nullptr;  // the first element, of any alignment
};

/// The tables of one file. Every tensor's bytes lie inside the file and overlap no other tensor's.
struct GgufFile {
  std::shared_ptr<MappedFile> file;
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::vector<Weight> tensors;  // in the order of the file
};

/// Throws Error(ModelLoad) naming the file and what is wrong with it.
GgufFile parse_gguf(std::shared_ptr<MappedFile> file);

/// A scalar, string or array of numbers as JSON.
Json to_json(const GgufValue& value);
/// The strings of an array of strings, borrowed.
std::vector<std::string_view> strings_of(const GgufValue& value);
/// The numbers of any array but one of strings.
std::vector<float> floats_of(const GgufValue& value);
/// The same as integers; nothing when one of them is none or does not fit.
std::optional<std::vector<int32_t>> ints_of(const GgufValue& value);

}  // namespace vllm

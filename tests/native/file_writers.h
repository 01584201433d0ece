// Writers of small model files for tests. They write what they are told to, right or wrong.
#pragma once
#include <doctest/doctest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace vllm::test {

/// A folder that goes when it leaves the scope.
struct TempDir {
  TempDir() {
    char name[] = "/tmp/vllm_test_XXXXXX";
    path = ::mkdtemp(name);
  }
  ~TempDir() { std::filesystem::remove_all(path); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  /// Writes a file and gives its path.
  std::string write(const std::string& name, std::string_view content) const {
    const std::string file_path = path + "/" + name;
    std::FILE* file = std::fopen(file_path.c_str(), "wb");
    REQUIRE(file != nullptr);
    REQUIRE(std::fwrite(content.data(), 1, content.size(), file) == content.size());
    std::fclose(file);
    return file_path;
  }

  std::string path;
};

/// The message of the Error(ModelLoad) that `work` throws; "" when it throws none.
std::string load_error(const auto& work) {
  try {
    work();
  } catch (const Error& error) {
    CHECK(error.status() == Status::ModelLoad);
    CHECK(error.message().find('\n') == std::string::npos);
    CHECK(error.message().ends_with('.'));
    return error.message();
  }
  return "";
}

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

template <typename T>
std::string raw(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

inline std::string gguf_string(std::string_view text) {
  return raw<uint64_t>(text.size()) + std::string(text);
}

struct GgufTensor {
  std::string name;
  std::vector<uint64_t> dims;  // innermost first, as in the file
  uint32_t type = 0;
  uint64_t bytes = 0;
  std::optional<uint64_t> offset;  // of the data section; the next aligned place when unset
};

struct GgufWriter {
  std::string magic = "GGUF";
  uint32_t version = 3;
  uint64_t alignment = 32;  // that the data is laid out by
  std::vector<std::string> keys;
  std::vector<GgufTensor> tensors;
  std::optional<uint64_t> key_count, tensor_count;
  std::string tail;  // after the tensor table, before the padding

  /// `type` is the number of the value type, `value` its bytes.
  void add(std::string_view key, uint32_t type, std::string_view value) {
    keys.push_back(gguf_string(key) + raw(type) + std::string(value));
  }
  void add_u32(std::string_view key, uint32_t value) { add(key, 4, raw(value)); }
  void add_string(std::string_view key, std::string_view value) { add(key, 8, gguf_string(value)); }
  void add_strings(std::string_view key, const std::vector<std::string>& values) {
    std::string bytes = raw<uint32_t>(8) + raw<uint64_t>(values.size());
    for (const std::string& value : values) bytes += gguf_string(value);
    add(key, 9, bytes);
  }

  std::string header() const {
    std::string out = magic + raw(version) + raw<uint64_t>(tensor_count.value_or(tensors.size())) +
                      raw<uint64_t>(key_count.value_or(keys.size()));
    for (const std::string& key : keys) out += key;
    uint64_t offset = 0;
    for (const GgufTensor& tensor : tensors) {
      out += gguf_string(tensor.name) + raw<uint32_t>(tensor.dims.size());
      for (const uint64_t size : tensor.dims) out += raw(size);
      out += raw(tensor.type) + raw(tensor.offset.value_or(offset));
      offset = (offset + tensor.bytes + alignment - 1) / alignment * alignment;
    }
    return out + tail;
  }

  /// The whole file; the byte i of the data section is i % 251.
  std::string file() const {
    std::string out = header();
    out.resize((out.size() + alignment - 1) / alignment * alignment);
    uint64_t end = 0;
    for (const GgufTensor& tensor : tensors) {
      end = (end + alignment - 1) / alignment * alignment + tensor.bytes;
    }
    for (uint64_t i = 0; i < end; ++i) out += static_cast<char>(i % 251);
    return out;
  }
};

/// A small valid model.
inline GgufWriter small_gguf() {
  GgufWriter out;
  out.add_string("general.architecture", "llama");
  out.add_u32("llama.block_count", 2);
  out.add_strings("tokenizer.ggml.tokens", {"<s>", "a", "", "bc"});
  out.add("tokenizer.ggml.token_type", 9,
          raw<uint32_t>(5) + raw<uint64_t>(2) + raw<int32_t>(1) + raw<int32_t>(-3));
  out.tensors = {
      {"a.weight", {5, 3}, 0, 60, {}}, {"b.weight", {64, 2}, 8, 136, {}}, {"c.weight", {7}, 1, 14, {}}};
  return out;
}

/// A safetensors file of this header text and these bytes of data.
inline std::string safetensors_file(std::string_view header, std::string_view data) {
  return raw<uint64_t>(header.size()) + std::string(header) + std::string(data);
}

}  // namespace vllm::test

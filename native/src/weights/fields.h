// Checked reads of configuration values, the same for config.json and GGUF metadata.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace vllm {

/// Reads keys of one JSON object. Every error is Error(ModelLoad) that names file, key, value found and what
/// is needed. A key that is absent or null is "absent". A `prefix` ("llama.") is put before every key.
/// Borrows the object.
class Fields {
 public:
  Fields(const Json& object, std::string source, std::string prefix = {});

  bool has(std::string_view key) const;
  /// Required integer in [min, max]; integral floats are accepted.
  int64_t integer(std::string_view key, int64_t min, int64_t max) const;
  int64_t integer_or(std::string_view key, int64_t fallback, int64_t min, int64_t max) const;
  /// Finite number in [min, max].
  double number(std::string_view key, double min, double max) const;
  double number_or(std::string_view key, double fallback, double min, double max) const;
  bool boolean_or(std::string_view key, bool fallback) const;
  std::string string(std::string_view key) const;
  std::string string_or(std::string_view key, std::string fallback) const;
  /// A scalar or an array of integers, each in [min, max]; empty when absent.
  std::vector<int64_t> integers(std::string_view key, int64_t min, int64_t max) const;
  /// A scalar or an array of finite numbers; empty when absent.
  std::vector<double> numbers(std::string_view key) const;
  /// A scalar or an array of strings; empty when absent.
  std::vector<std::string> strings(std::string_view key) const;
  /// A nested object; absent gives nullopt, another type is an error.
  std::optional<Fields> object(std::string_view key) const;
  const std::string& source() const { return source_; }
  /// Throws "SOURCE: KEY is VALUE, needed is NEED."
  [[noreturn]] void fail(std::string_view key, const std::string& need) const;

 private:
  Fields(const Json& object, std::string source, std::string prefix, std::string path);
  const Json* find(std::string_view key) const;
  const Json& object_;
  std::string source_;
  std::string prefix_;
  std::string path_;  // "rope_scaling." of a nested object, for messages
};

}  // namespace vllm

// The normalizer, pre_tokenizer, post_processor and decoder of a tokenizer.json.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"

namespace vllm {

/// Every read throws Error(ModelLoad) naming what is malformed or not supported. Null values add nothing.
class PipelineReader {
 public:
  std::string source;  // named in errors

  void read_normalizer(const Json& value, Normalizer& normalizer);
  /// Sets byte_level.
  void read_pre_tokenizer(const Json& value, PreTokenizer& pre_tokenizer);
  /// Call after read_pre_tokenizer(). Sets replacements, byte_fallback_decoder and strips_leading_space.
  void read_decoder(const Json& value);
  /// Sets bos.
  void read_post_processor(const Json& value);

  bool byte_level = false;                                        // merging sees bytes; otherwise characters
  std::vector<std::pair<std::string, std::string>> replacements;  // of the decoder, in order
  bool byte_fallback_decoder = false;
  bool strips_leading_space = false;
  std::optional<int64_t> bos;  // what the post-processor puts before a text

 private:
  void read_template(const Json& value);
  std::string type_of(const Json& value, const char* part) const;
  const Json& member(const Json& value, const char* key) const;
  std::string text(const Json& value, const char* key) const;
  bool flag(const Json& value, const char* key, bool fallback) const;
  const Json& list(const Json& value, const char* key) const;
  [[noreturn]] void fail(const std::string& message) const;
};

}  // namespace vllm

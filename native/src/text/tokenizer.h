// Text to token ids and back.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weights/checkpoint.h"

namespace vllm {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Special and user-defined tokens in the text become one id each (control tokens only with
  /// `parse_special`). With `add_bos` the begin token is put first if the model asks for one and the text
  /// does not already start with it. Takes about n log n time and up to 100 bytes of memory a byte of text,
  /// whatever the text. Throws Error(InvalidArgument) for text of more than 16 MiB, that is not valid UTF-8
  /// or that holds a character without any token.
  virtual std::vector<int32_t> encode(std::string_view text, bool parse_special, bool add_bos) const = 0;
  /// Bytes that the token adds to the text (not always valid UTF-8 on their own); empty for ids outside the
  /// vocabulary. Control tokens give their own text.
  virtual std::string_view bytes(int32_t id) const = 0;
  /// Tokens hidden from output by default: control tokens ("special" in tokenizer.json) and unused ones.
  virtual bool is_control(int32_t id) const = 0;
  /// Id of the token with exactly this text.
  virtual std::optional<int32_t> find(std::string_view text) const = 0;

  int32_t vocab_size() const { return vocab_size_; }       // ids are 0 .. vocab_size - 1
  size_t longest_token() const { return longest_token_; }  // bytes
  bool adds_bos() const { return adds_bos_; }
  std::optional<int32_t> bos() const { return bos_; }
  /// End-of-generation ids known to the tokenizer: eos, eot, eom (GGUF) or the tokenizer_config's eos.
  /// Sorted.
  const std::vector<int32_t>& end_ids() const { return end_ids_; }
  /// True when decoding must drop one leading space that encoding put before the first piece.
  bool strips_leading_space() const { return strips_leading_space_; }

 protected:
  int32_t vocab_size_ = 0;
  size_t longest_token_ = 0;
  bool adds_bos_ = false;
  bool strips_leading_space_ = false;
  std::optional<int32_t> bos_;
  std::vector<int32_t> end_ids_;
};

/// From tokenizer.json and tokenizer_config.json of a directory, or from the metadata of a GGUF.
/// Throws Error(ModelLoad) naming what is missing, malformed or unknown.
std::unique_ptr<Tokenizer> load_tokenizer(const Checkpoint& checkpoint);

}  // namespace vllm

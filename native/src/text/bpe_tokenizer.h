// The one tokenizer: added tokens, normalisation, splitting, byte-pair merging. What a file says is in its
// parts.
#pragma once
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace vllm {

struct TokenizerParts {
  Vocabulary vocabulary;
  AddedTokenFinder added;             // looked for in the text as it is
  Normalizer normalizer;              // of what lies between
  AddedTokenFinder added_normalized;  // looked for in the normalised text
  PreTokenizer pre_tokenizer;
  Bpe bpe;
  std::optional<int32_t> bos;
  bool adds_bos = false;
  bool strips_leading_space = false;
  std::vector<int32_t> end_ids;
};

class BpeTokenizer : public Tokenizer {
 public:
  explicit BpeTokenizer(TokenizerParts parts);
  std::vector<int32_t> encode(std::string_view text, bool parse_special, bool add_bos) const override;
  std::string_view bytes(int32_t id) const override;
  bool is_control(int32_t id) const override;
  std::optional<int32_t> find(std::string_view text) const override;

 private:
  TokenizerParts parts_;
};

/// Both throw Error(ModelLoad) naming the file, what was found and what is needed.
std::unique_ptr<Tokenizer> load_tokenizer_json(const std::string& directory);
std::unique_ptr<Tokenizer> load_gguf_tokenizer(const Checkpoint& checkpoint);

/// Text of tokens that end a generation in the models that use them.
bool ends_generation(std::string_view text);

}  // namespace vllm

#include "text/tokenizer.h"

#include "text/bpe_tokenizer.h"

namespace vllm {

std::unique_ptr<Tokenizer> load_tokenizer(const Checkpoint& checkpoint) {
  return checkpoint.is_gguf() ? load_gguf_tokenizer(checkpoint) : load_tokenizer_json(checkpoint.path());
}

}  // namespace vllm

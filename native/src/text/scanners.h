// Hand-written forms of the pre-tokenizer regexes in common use.
#pragma once
#include <cstddef>
#include <string_view>

namespace vllm {

/// Returns the end of the piece that starts at `begin` (< text.size()) of valid UTF-8. The pieces cover the
/// text.
using PieceScanner = size_t (*)(std::string_view text, size_t begin);

size_t scan_gpt2(std::string_view text, size_t begin);
size_t scan_llama3(std::string_view text, size_t begin);
size_t scan_qwen2(std::string_view text, size_t begin);
size_t scan_qwen35(std::string_view text, size_t begin);

/// The scanner that does exactly what `regex` does when all matches and the gaps become pieces; null when
/// there is none.
PieceScanner find_scanner(std::string_view regex);

}  // namespace vllm

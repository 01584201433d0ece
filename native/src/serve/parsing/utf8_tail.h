#pragma once
#include <string>

namespace vllm {

/// Takes from `text` all but a character at its end whose last bytes are missing.
std::string take_whole_characters(std::string& text);

}  // namespace vllm

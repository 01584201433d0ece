#include "serve/parsing/utf8_tail.h"

#include "text/unicode.h"

namespace vllm {

std::string take_whole_characters(std::string& text) {
  size_t whole = text.size();
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte < 0x80) break;
    if (byte < 0xc0) continue;
    const Utf8Step step = next_utf8(std::string_view(text).substr(text.size() - back));
    if (step.status == Utf8Status::Incomplete) whole = text.size() - back;
    break;
  }
  std::string taken = text.substr(0, whole);
  text.erase(0, whole);
  return taken;
}

}  // namespace vllm

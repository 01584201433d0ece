#include "text/vocabulary.h"

#include <array>
#include <charconv>
#include <string>

#include "text/unicode.h"

namespace vllm {
namespace {

/// Code point -> byte, -1 for none.
std::array<int16_t, 324> printable_table() {
  std::array<int16_t, 324> table;
  table.fill(-1);
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    table[itself ? byte : next++] = static_cast<int16_t>(byte);
  }
  return table;
}

}  // namespace

bool from_printable_bytes(std::string_view text, std::string& bytes) {
  static const std::array<int16_t, 324> table = printable_table();
  bytes.clear();
  for (size_t pos = 0; pos < text.size();) {
    const int32_t c = read_utf8(text, pos);
    if (c >= static_cast<int32_t>(table.size()) || table[c] < 0) return false;
    bytes += static_cast<char>(table[c]);
  }
  return true;
}

int byte_of_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  int value = 0;
  const char* digits = text.data() + 3;
  if (std::from_chars(digits, digits + 2, value, 16).ptr != digits + 2 || *digits == '-') return -1;
  return value;
}

}  // namespace vllm

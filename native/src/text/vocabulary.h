// The tokens of a vocabulary by id.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/text_map.h"

namespace vllm {

enum class TokenKind : uint8_t { Missing, Normal, Unknown, Control, UserDefined, Unused, Byte };

struct Vocabulary {
  TextStore store;                      // owns all texts
  std::vector<std::string_view> bytes;  // by id: what the token adds to a text; empty where there is no token
  std::vector<TokenKind> kinds;         // by id
  /// Texts of tokens that merging does not produce: special and added ones.
  std::unordered_map<std::string_view, int32_t> added;

  size_t size() const { return bytes.size(); }
};

/// Bytes of a token in the printable form of byte-level vocabularies (GPT-2: bytes 33-126, 161-172 and
/// 174-255 stand for the code points of the same number, the other 68 for U+0100 and up, in order). False
/// when a character is none of them.
bool from_printable_bytes(std::string_view text, std::string& bytes);

/// The byte of a byte token `<0xNN>`, -1 for any other text.
int byte_of_token(std::string_view text);

}  // namespace vllm

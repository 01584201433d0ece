// Token ids to text: Python's UTF-8 decoder is the oracle for invalid bytes.
#include "text/detokenizer.h"

#include <doctest/doctest.h>

#include <random>

#include "text/unicode.h"
#include "tokenizer_files.h"

using namespace vllm;

namespace {

/// Id b is the byte b; ids from 256 are the given texts, the first of them a control token.
class ByteTokenizer : public Tokenizer {
 public:
  explicit ByteTokenizer(std::vector<std::string> texts, bool strips = false) : texts_(std::move(texts)) {
    for (int b = 0; b < 256; ++b) bytes_[b] = static_cast<char>(b);
    vocab_size_ = 256 + static_cast<int32_t>(texts_.size());
    strips_leading_space_ = strips;
  }
  std::vector<int32_t> encode(std::string_view text, bool, bool) const override {
    std::vector<int32_t> ids;
    for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
    return ids;
  }
  std::string_view bytes(int32_t id) const override {
    if (id < 0 || id >= vocab_size_) return {};
    return id < 256 ? std::string_view(&bytes_[id], 1) : std::string_view(texts_[id - 256]);
  }
  bool is_control(int32_t id) const override { return id == 256; }
  std::optional<int32_t> find(std::string_view) const override { return std::nullopt; }

 private:
  std::vector<std::string> texts_;
  char bytes_[256];
};

constexpr char kReplacement[] = "\xef\xbf\xbd";

}  // namespace

TEST_CASE("UTF8-01: invalid bytes become one U+FFFD a run, in every way of cutting") {
  const Json cases = fixture("utf8.json");
  REQUIRE(cases.size() == 400);
  std::mt19937 random(3);
  for (const Json& each : cases) {
    const auto raw = each[0].get<std::vector<int32_t>>();
    const auto want = each[1].get<std::string>();
    CAPTURE(each[0].dump());
    std::string whole;
    for (const int32_t byte : raw) whole += static_cast<char>(byte);
    // Cuts: whole, each byte, 2, 3, 7 bytes, and random ones.
    for (int cut : {1000, 1, 2, 3, 7, 0, 0, 0}) {
      std::vector<std::string> pieces{"<control>"};
      for (size_t at = 0; at < whole.size(); at += pieces.back().size()) {
        pieces.push_back(whole.substr(at, cut ? cut : 1 + random() % 5));
      }
      const ByteTokenizer tokenizer(pieces);
      std::vector<int32_t> ids;
      Detokenizer detokenizer(tokenizer, true);
      std::string text;
      for (int32_t i = 257; i < tokenizer.vocab_size(); ++i) {
        ids.push_back(i);
        ids.push_back(256);  // hidden: takes no part
        const std::string part = detokenizer.add(i) + detokenizer.add(256);
        CHECK(find_invalid_utf8(part) == std::string::npos);
        text += part;
      }
      text += detokenizer.finish();
      CHECK(text == want);
      CHECK(decode(tokenizer, ids, true) == want);
    }
  }
}

TEST_CASE("UTF8-01: a character over several tokens arrives whole in one delta, other text at once") {
  const ByteTokenizer tokenizer({"<control>"});
  Detokenizer detokenizer(tokenizer, true);
  CHECK(detokenizer.add('a') == "a");
  CHECK(detokenizer.add(0xf0) == "");
  CHECK(detokenizer.add(0x9f) == "");
  CHECK(detokenizer.add(0x98) == "");
  CHECK(detokenizer.add(0x80) == "\xf0\x9f\x98\x80");
  CHECK(detokenizer.add(0xe4) == "");
  CHECK(detokenizer.add('b') == std::string(kReplacement) + "b");  // as soon as it is known
  CHECK(detokenizer.add(0xff) == kReplacement);
  CHECK(detokenizer.add(0xfe) == "");  // the same run
  CHECK(detokenizer.add(0xc3) == "");
  CHECK(detokenizer.add(0xa9) == "\xc3\xa9");
  CHECK(detokenizer.add(0xed) == "");
  CHECK(detokenizer.add(0xa0) == kReplacement);  // a surrogate
  CHECK(detokenizer.finish() == "");
  CHECK(detokenizer.add(0xe4) == "");
  CHECK(detokenizer.finish() == kReplacement);
  CHECK(detokenizer.finish() == "");
}

TEST_CASE("control tokens are hidden or shown") {
  const ByteTokenizer tokenizer({"<control>", "user"});
  CHECK(decode(tokenizer, {'a', 256, 257, 'b'}, true) == "auserb");
  CHECK(decode(tokenizer, {'a', 256, 257, 'b'}, false) == "a<control>userb");
  // A shown token ends an unfinished character, a hidden one does not.
  CHECK(decode(tokenizer, {0xc3, 256, 0xa9}, true) == "\xc3\xa9");
  CHECK(decode(tokenizer, {0xc3, 256, 0xa9}, false) ==
        std::string(kReplacement) + "<control>" + kReplacement);
  CHECK(decode(tokenizer, {-5, 'a', 100000}, false) == "a");
}

TEST_CASE("the leading space of the prefix rule is dropped from a whole sequence only") {
  const ByteTokenizer tokenizer({"<control>", " a"}, true);
  CHECK(decode(tokenizer, {257, 257}, true) == "a a");
  CHECK(decode(tokenizer, {256, 257}, true) == "a");
  CHECK(decode(tokenizer, {' ', ' ', 'a'}, true) == " a");
  CHECK(decode(ByteTokenizer({"<control>", " a"}), {257}, true) == " a");
  Detokenizer detokenizer(tokenizer, true);
  CHECK(detokenizer.add(257) == " a");
}

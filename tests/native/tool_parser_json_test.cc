// The JSON scanner against nlohmann's parser.
#include <doctest/doctest.h>

#include <random>

#include "base/json.h"
#include "serve/parsing/json_scanner.h"

using namespace vllm;

namespace {

/// Bytes of the value when `text` starts with one, npos otherwise.
size_t scan(std::string_view text, size_t piece) {
  JsonScanner scanner;
  size_t at = 0;
  while (at < text.size() && scanner.state() == JsonScanner::State::More) {
    const std::string_view bytes = text.substr(at, piece);
    const size_t read = scanner.scan(bytes);
    CHECK(read <= bytes.size());
    at += read;
    if (read < bytes.size()) break;
  }
  scanner.finish();
  return scanner.state() == JsonScanner::State::Done ? at : text.npos;
}

bool is_json(std::string_view text) {
  const size_t size = scan(text, 1000);
  return size != text.npos && text.find_first_not_of(" \n\r\t", size) == text.npos;
}

}  // namespace

TEST_CASE("TOOL-03 the scanner finds the end of a value") {
  CHECK(scan(R"({"a": "}\"]", "b": [1, {}]} tail)", 1) == 27);
  CHECK(scan("12 ", 1) == 2);
  CHECK(scan("-0.5e+10,", 3) == 8);
  CHECK(scan("  true]", 2) == 6);
  CHECK(scan("\"\\u00e9\\\\\"x", 1) == 10);
  for (const char* bad : {"",   "{",        "{a", "{\"a\" 1}", "[1,]",  "[,1]",   "{,}",     "01",
                          "1.", "-",        "+1", "tru",       "nul l", "\"\n\"", "\"\\x\"", "\"\\u12g4\"",
                          "]",  "{\"a\":}", "1e", "NaN",       "'a'",   "[1 2]"}) {
    CAPTURE(bad);
    CHECK_FALSE(is_json(bad));
  }
}

TEST_CASE("the scanner and a JSON parser agree about damaged texts") {
  const std::vector<std::string> seeds = {
      R"({"name": "add", "arguments": {"a": [1, -2.5e3, true, null, "x\n\"\\ \u00e9"], "b": {}}})",
      R"([[], [[]], {"": ""}, "\ud83d\ude00", 0, -0, 1E-2, false])", "\"text 🎉\"", "  -17.25 "};
  const std::string alphabet = "{}[]\",:\\ 0123456789.eE+-tfnaulrsx\n";
  std::mt19937 random(3);
  int valid = 0, invalid = 0;
  for (int round = 0; round < 60000; ++round) {
    std::string text = seeds[random() % seeds.size()];
    for (unsigned i = 0, n = random() % 3; i < n && !text.empty(); ++i) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text.erase(at, 1 + random() % 3);
          break;
        case 1:
          text.insert(at, 1, alphabet[random() % alphabet.size()]);
          break;
        default:
          text[at] = alphabet[random() % alphabet.size()];
      }
    }
    // What the scanner leaves to others: the encoding, pairs of surrogates, the range of numbers, duplicate
    // keys.
    bool expected = true;
    try {
      parse_json(text, "text", Status::Runtime);
    } catch (const Error& error) {
      expected = false;
      for (const char* other : {"UTF-8", "surrogate", "overflow", "twice"}) {
        if (error.message().find(other) != std::string::npos) expected = is_json(text);
      }
    }
    CAPTURE(text);
    CHECK(is_json(text) == expected);
    CHECK(scan(text, 1) == scan(text, 1000));
    ++(expected ? valid : invalid);
  }
  CHECK(valid > 5000);
  CHECK(invalid > 5000);
}

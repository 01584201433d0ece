// Encoding and decoding against the `tokenizers` and `sentencepiece` libraries
// (tools/make_tokenizer_fixtures.py).
#include "text/tokenizer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "text/detokenizer.h"
#include "tokenizer_files.h"

using namespace vllm;

namespace {

using Ids = std::vector<int32_t>;

/// Ids with and without special tokens, and the text back.
void check_family(const Tokenizer& tokenizer, const Json& family, const Json& texts) {
  REQUIRE(family["ids"].size() == texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    CAPTURE(i);
    const auto text = texts[i].get<std::string>();
    CAPTURE(text);
    const Ids ids = tokenizer.encode(text, true, false);
    CHECK(ids == family["ids"][i].get<Ids>());
    if (i < family["plain_ids"].size())
      CHECK(tokenizer.encode(text, false, false) == family["plain_ids"][i].get<Ids>());
    if (!family.contains("decoded")) continue;
    const Json& decoded = family["decoded"];
    const auto other = decoded.find(std::to_string(i));
    CHECK(decode(tokenizer, ids, true) == (other == decoded.end() ? text : other->get<std::string>()));
  }
}

Json char_level_json(const Json& vocabulary, const Json& family) {
  Json json;
  for (const char* key : {"normalizer", "pre_tokenizer", "post_processor", "decoder", "added_tokens"}) {
    json[key] = family[key];
  }
  json["model"] = {{"type", "BPE"},
                   {"vocab", vocabulary["vocab"]},
                   {"merges", vocabulary["merges"]},
                   {"unk_token", "<unk>"}};
  json["model"]["byte_fallback"] = family["byte_fallback"];
  json["model"]["fuse_unk"] = family["fuse_unk"];
  return json;
}

FakeCheckpoint sentencepiece_gguf(const Json& model, bool prefix) {
  FakeCheckpoint gguf;
  gguf.set("model", "llama");
  gguf.set("add_space_prefix", prefix);
  gguf.set("bos_token_id", 1);
  gguf.set("eos_token_id", 2);
  gguf.set("unknown_token_id", 0);
  gguf.tokens() = model["tokens"].get<std::vector<std::string>>();
  gguf.scores() = model["scores"].get<std::vector<float>>();
  gguf.types() = model["types"].get<Ids>();
  return gguf;
}

double seconds(const std::function<void()>& action) {
  const auto start = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

TEST_CASE("FILE-10: byte-level families encode as the tokenizers library does") {
  const Json vocabulary = fixture("byte_level.json"), families = fixture("byte_level_families.json");
  const Json texts = fixture("texts.json");
  REQUIRE(families.size() >= 10);
  for (const auto& [name, family] : families.items()) {
    CAPTURE(name);
    check_family(*load_folder(byte_level_json(vocabulary, family).dump()), family, texts);
  }
}

TEST_CASE("FILE-10: a GGUF's pre-tokenizer name stands for the same family") {
  const Json vocabulary = fixture("byte_level.json"), families = fixture("byte_level_families.json");
  const Json texts = fixture("texts.json");
  for (const auto& [name, family] : families.items()) {
    CAPTURE(name);
    check_family(*load_tokenizer(byte_level_gguf(vocabulary, name)), family, texts);
  }
  FakeCheckpoint gguf = byte_level_gguf(vocabulary, "no-such");
  CHECK(message_of(Status::ModelLoad, [&] { load_tokenizer(gguf); }).find("'no-such'") != std::string::npos);
  gguf.config().erase("tokenizer.ggml.pre");
  check_family(*load_tokenizer(gguf), families["default"], texts);
}

TEST_CASE("character-level families with and without byte fallback encode as the tokenizers library does") {
  const Json vocabulary = fixture("char_level.json"), families = fixture("char_level_families.json");
  const Json texts = fixture("texts.json");
  REQUIRE(families.size() >= 5);
  for (const auto& [name, family] : families.items()) {
    CAPTURE(name);
    check_family(*load_folder(char_level_json(vocabulary, family).dump()), family, texts);
  }
}

TEST_CASE("SentencePiece vocabularies of a GGUF encode as the sentencepiece library does") {
  const Json models = fixture("sentencepiece.json"), texts = fixture("texts.json");
  for (const char* name : {"prefix", "no_prefix"}) {
    CAPTURE(name);
    const Json& model = models[name];
    const auto tokenizer = load_tokenizer(sentencepiece_gguf(model, std::string(name) == "prefix"));
    CHECK(tokenizer->adds_bos());
    CHECK(tokenizer->bos() == 1);
    CHECK(tokenizer->end_ids() == Ids{2});
    REQUIRE(model["samples"].size() > 50);
    for (size_t i = 0; i < model["samples"].size(); ++i) {
      const auto text = texts[model["samples"][i].get<size_t>()].get<std::string>();
      CAPTURE(text);
      // The library knows no control tokens in text.
      const Ids ids = tokenizer->encode(text, false, false);
      CHECK(ids == model["ids"][i].get<Ids>());
      CHECK(decode(*tokenizer, ids, true) == model["decoded"][i].get<std::string>());
    }
  }
}

TEST_CASE("the prefix of a SentencePiece vocabulary stands before each fragment of text") {
  const Json models = fixture("sentencepiece.json");
  const auto tokenizer = load_tokenizer(sentencepiece_gguf(models["prefix"], true));
  const auto bare = load_tokenizer(sentencepiece_gguf(models["no_prefix"], false));
  const Ids word = tokenizer->encode("the", true, false);
  Ids want = word;
  want.push_back(2);
  want.insert(want.end(), word.begin(), word.end());
  CHECK(tokenizer->encode("the</s>the", true, false) == want);
  CHECK(tokenizer->strips_leading_space());
  CHECK(decode(*tokenizer, word, true) == "the");
  CHECK_FALSE(bare->strips_leading_space());
  CHECK(decode(*bare, bare->encode(" the", true, false), true) == " the");
  // Only the whole text loses the space: what continues a prompt keeps its own.
  Detokenizer growing(*tokenizer, true);
  std::string text;
  for (const int32_t id : word) text += growing.add(id);
  CHECK(text == " the");
}

TEST_CASE("added tokens take white space along, stand alone or are normalised as their flags say") {
  const Json fixtures = fixture("added_tokens.json"), vocabulary = fixture("byte_level.json");
  Json json = fixtures["tokenizer"];
  json["model"]["vocab"] = vocabulary["vocab"];
  json["model"]["merges"] = vocabulary["merges"];
  check_family(*load_folder(json.dump()), fixtures, fixtures["texts"]);
}

TEST_CASE("FILE-11: control and user-defined tokens of a rendered chat become one id each") {
  const Json vocabulary = fixture("byte_level.json");
  const auto tokenizer = load_tokenizer(byte_level_gguf(vocabulary, "qwen2"));
  const auto start = tokenizer->find("<|im_start|>"), end = tokenizer->find("<|im_end|>");
  const auto think = tokenizer->find("<think>"), closed = tokenizer->find("</think>");
  REQUIRE((start && end && think && closed));
  const Ids ids = tokenizer->encode("<|im_start|>a<think>b</think><|im_end|>", true, false);
  CHECK(ids.size() == 6);
  CHECK(ids.front() == *start);
  CHECK(ids[2] == *think);
  CHECK(ids.back() == *end);
  CHECK(decode(*tokenizer, ids, true) == "a<think>b</think>");
  CHECK(decode(*tokenizer, ids, false) == "<|im_start|>a<think>b</think><|im_end|>");
  CHECK(tokenizer->is_control(*start));
  CHECK_FALSE(tokenizer->is_control(*think));
  CHECK(tokenizer->bytes(*start) == "<|im_start|>");
  // Text that may not hold control tokens: user-defined ones only.
  const Ids plain = tokenizer->encode("<|im_start|><think>", false, false);
  CHECK(plain.size() > 2);
  CHECK(plain.back() == *think);
  CHECK(decode(*tokenizer, plain, true) == "<|im_start|><think>");
}

TEST_CASE("TPL-06: exactly one begin token where the model asks for one") {
  const Json vocabulary = fixture("byte_level.json");
  FakeCheckpoint gguf = byte_level_gguf(vocabulary, "llama-bpe");
  const Ids begin = load_tokenizer(gguf)->encode("<|im_start|>", true, false);
  REQUIRE(begin.size() == 1);
  gguf.set("bos_token_id", begin[0]);
  const auto asks = load_tokenizer(gguf);  // llama-bpe adds one unless the file says otherwise
  CHECK(asks->adds_bos());
  CHECK(asks->encode("", true, true) == begin);
  CHECK(asks->encode("<|im_start|>", true, true) == begin);
  CHECK(asks->encode("a", true, true).size() == 2);
  CHECK(asks->encode("a", true, true).front() == begin[0]);
  CHECK(asks->encode("a", true, false).size() == 1);
  CHECK(asks->encode("<|im_start|>a", true, true) == asks->encode("a", true, true));
  gguf.set("add_bos_token", false);
  CHECK_FALSE(load_tokenizer(gguf)->adds_bos());
  CHECK(load_tokenizer(gguf)->encode("a", true, true).size() == 1);
  FakeCheckpoint qwen = byte_level_gguf(vocabulary, "qwen2");
  qwen.set("bos_token_id", begin[0]);
  CHECK_FALSE(load_tokenizer(qwen)->adds_bos());
  qwen.set("add_bos_token", true);
  CHECK(load_tokenizer(qwen)->adds_bos());

  // tokenizer.json: the post-processor decides, add_bos_token of tokenizer_config.json wins.
  Json json = byte_level_json(vocabulary, fixture("byte_level_families.json")["qwen2"]);
  CHECK_FALSE(load_folder(json.dump(), R"({"bos_token": "<|im_start|>"})")->adds_bos());
  CHECK(load_folder(json.dump(), R"({"bos_token": {"content": "<|im_start|>"}, "add_bos_token": true})")
            ->adds_bos());
  json["post_processor"] = parse_json(
      R"({"type": "Sequence", "processors": [{"type": "ByteLevel"}, {"type": "TemplateProcessing",
          "single": [{"SpecialToken": {"id": "<b>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
          "special_tokens": {"<b>": {"id": "<b>", "ids": [3], "tokens": ["<b>"]}}}]})",
      "test", Status::Runtime);
  const auto templated = load_folder(json.dump());
  CHECK(templated->adds_bos());
  CHECK(templated->bos() == 3);
  CHECK(templated->encode("a", true, true).front() == 3);
  CHECK_FALSE(load_folder(json.dump(), R"({"add_bos_token": false})")->adds_bos());
}

TEST_CASE("STOP-03: all end ids of a file count, and well-known end texts") {
  const Json vocabulary = fixture("byte_level.json");
  FakeCheckpoint gguf = byte_level_gguf(vocabulary, "qwen2");
  const auto id = [&](const char* text) { return *load_tokenizer(gguf)->find(text); };
  const int32_t end = id("<|im_end|>"), endoftext = id("<|endoftext|>");
  CHECK(load_tokenizer(gguf)->end_ids() == Ids{std::min(end, endoftext), std::max(end, endoftext)});
  gguf.set("eos_token_id", 5);
  gguf.set("eot_token_id", 7);
  gguf.set("eom_token_id", 6);
  const Ids ids = load_tokenizer(gguf)->end_ids();
  CHECK(std::is_sorted(ids.begin(), ids.end()));
  for (const int32_t want : {5, 6, 7, end, endoftext}) CHECK(std::count(ids.begin(), ids.end(), want) == 1);
  const Json json = byte_level_json(vocabulary, fixture("byte_level_families.json")["qwen2"]);
  CHECK(load_folder(json.dump(), R"({"eos_token": "<|im_end|>"})")->end_ids() == Ids{end});
  CHECK(load_folder(json.dump())->end_ids() == Ids{std::min(end, endoftext), std::max(end, endoftext)});
}

TEST_CASE("ids outside the vocabulary have no text") {
  const auto tokenizer = load_tokenizer(byte_level_gguf(fixture("byte_level.json"), "qwen2"));
  for (const int32_t id : {-1, tokenizer->vocab_size(), INT32_MAX, INT32_MIN}) {
    CHECK(tokenizer->bytes(id).empty());
    CHECK_FALSE(tokenizer->is_control(id));
  }
  CHECK(decode(*tokenizer, {-1, INT32_MAX}, false).empty());
}

TEST_CASE("text that is not UTF-8 is refused, any other is taken") {
  const Json vocabulary = fixture("byte_level.json");
  const auto tokenizer = load_tokenizer(byte_level_gguf(vocabulary, "llama-bpe"));
  for (const char* bad : {"\xff", "a\xc3", "\xed\xa0\x80", "\xc0\x80", "ab\xf4\x90\x80\x80", "\xe4\xb8"}) {
    CHECK(message_of(Status::InvalidArgument, [&] { tokenizer->encode(bad, true, true); }).find("UTF-8") !=
          std::string::npos);
  }
  CHECK(message_of(Status::InvalidArgument, [&] {
          tokenizer->encode("ab\xff", true, true);
        }).find("byte 2") != std::string::npos);
  // Every code point, alone and in a row, goes through every family and comes back.
  std::string all;
  for (int32_t c = 0; c < 0x110000; c += c < 0x3000 ? 1 : 37) {
    if (c >= 0xd800 && c < 0xe000) continue;
    if (c < 0x80) {
      all += static_cast<char>(c);
    } else if (c < 0x800) {
      all += {static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
    } else if (c < 0x10000) {
      all += {static_cast<char>(0xe0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 63)),
              static_cast<char>(0x80 | (c & 63))};
    } else {
      all += {static_cast<char>(0xf0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 63)),
              static_cast<char>(0x80 | (c >> 6 & 63)), static_cast<char>(0x80 | (c & 63))};
    }
  }
  for (const char* pre : {"llama-bpe", "smollm", "tekken", "gpt-4o", "deepseek-v3", "default"}) {
    const auto each = load_tokenizer(byte_level_gguf(vocabulary, pre));
    CHECK(decode(*each, each->encode(all, true, false), true) == all);
  }
}

TEST_CASE("a text beyond 16 MiB is refused before it costs anything") {
  const auto tokenizer = load_tokenizer(byte_level_gguf(fixture("byte_level.json"), "default"));
  size_t longest = 0;
  for (int32_t id = 0; id < tokenizer->vocab_size(); ++id)
    longest = std::max(longest, tokenizer->bytes(id).size());
  CHECK(tokenizer->longest_token() == longest);
  const std::string text((size_t{1} << 24) + 1, 'a');
  CHECK(seconds([&] { CHECK_THROWS_AS(tokenizer->encode(text, true, false), Error); }) < 0.1);
}

TEST_CASE("long texts without a place to cut take little more than linear time") {
  const Json vocabulary = fixture("byte_level.json"), models = fixture("sentencepiece.json");
  const std::vector<std::pair<const char*, std::string>> units = {{"letters", "a"},
                                                                  {"emoji", "\xf0\x9f\x98\x80"},
                                                                  {"spaces", " "},
                                                                  {"newlines", "\n"},
                                                                  {"marks", "\xcc\x81\xcc\xa3"},
                                                                  {"digits", "7"},
                                                                  {"quotes", "'"},
                                                                  {"upper", "A"},
                                                                  {"mixed", " \n'"},
                                                                  {"markers", "\xe2\x96\x81"},
                                                                  {"han", "\xe7\x9a\x84"},
                                                                  {"letter pairs", "et"}};
  const auto check = [&](const Tokenizer& tokenizer) {
    for (const auto& [name, unit] : units) {
      CAPTURE(name);
      std::string text;
      while (text.size() < 200000) text += unit;
      CHECK(seconds([&] { tokenizer.encode(text, true, false); }) < 5);
    }
  };
  for (const char* pre : {"llama-bpe", "qwen35", "smollm", "tekken", "gpt-4o", "deepseek-v3", "default"}) {
    CAPTURE(pre);
    check(*load_tokenizer(byte_level_gguf(vocabulary, pre)));
  }
  check(*load_tokenizer(sentencepiece_gguf(models["prefix"], true)));
  const auto families = fixture("char_level_families.json");
  check(*load_folder(char_level_json(fixture("char_level.json"), families["no_prefix"]).dump()));
}

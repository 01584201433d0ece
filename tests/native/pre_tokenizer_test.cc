// Splitting and normalising against the `tokenizers` library, and the hand-written scanners against their
// regexes.
#include "text/pre_tokenizer.h"

#include <doctest/doctest.h>

#include <random>
#include <set>

#include "text/pipeline_json.h"
#include "text/regexes.h"
#include "tokenizer_files.h"

using namespace vllm;

namespace {

std::vector<std::string> split(const PreTokenizer& pre_tokenizer, const std::string& text) {
  std::deque<std::string> storage;
  std::vector<std::string> out;
  for (const Piece& piece : pre_tokenizer.split(text, true, storage)) out.emplace_back(piece.text);
  return out;
}

PreTokenizer one_stage(std::unique_ptr<SplitStage> stage) {
  PreTokenizer pre_tokenizer;
  pre_tokenizer.add(std::move(stage));
  return pre_tokenizer;
}

/// Random text from short ranges of code points, so that every class meets every other. All were assigned by
/// Unicode 14, which is what PCRE2 knows.
std::string random_text(std::mt19937& random) {
  static const std::vector<std::pair<int32_t, int32_t>> kRanges = {
      {'a', 'z'},         {'A', 'Z'},         {'0', '9'},       {' ', ' '},          {'\t', '\r'},
      {'!', '/'},         {'\'', '\''},       {0x300, 0x310},   {0x4e00, 0x4e20},    {0x1f600, 0x1f610},
      {0x660, 0x669},     {0xb2, 0xb3},       {0xa0, 0xa0},     {0x2028, 0x2029},    {0x85, 0x85},
      {0x2000, 0x200d},   {0x180e, 0x180e},   {0x17f, 0x17f},   {0x1c4, 0x1cc},      {0x2b0, 0x2b8},
      {0x2160, 0x2170},   {0x903, 0x910},     {0x20dd, 0x20e0}, {0x3040, 0x3060},    {0x1d400, 0x1d410},
      {0x1d7ce, 0x1d7d8}, {0x10400, 0x10430}, {0xfeff, 0xfeff}, {0x10ffff, 0x10ffff}};
  static const std::vector<std::string> kWords = {"'s",   "'RE", "'ll",  "'Ve",      " '",
                                                  "\r\n", "  ",  "\n\n", "'\xc5\xbf"};
  std::string text;
  for (int left = static_cast<int>(random() % 30) + 1; left > 0; --left) {
    if (random() % 5 == 0) {
      text += kWords[random() % kWords.size()];
      continue;
    }
    const auto [first, last] = kRanges[random() % kRanges.size()];
    for (int run = static_cast<int>(random() % 4); run >= 0; --run) {
      append_utf8(text, first + static_cast<int32_t>(random() % (last - first + 1)));
    }
  }
  return text;
}

}  // namespace

TEST_CASE("every stage of a tokenizer.json splits as the tokenizers library does") {
  const Json cases = fixture("stages.json");
  REQUIRE(cases.size() > 40);
  for (const Json& each : cases) {
    CAPTURE(each[0].dump());
    PipelineReader reader;
    PreTokenizer pre_tokenizer;
    reader.read_pre_tokenizer(each[0], pre_tokenizer);
    for (const Json& sample : each[1]) {
      CAPTURE(sample[0].dump());
      CHECK(split(pre_tokenizer, sample[0].get<std::string>()) == sample[1].get<std::vector<std::string>>());
    }
  }
}

TEST_CASE("every normalizer of a tokenizer.json gives what the tokenizers library gives") {
  const Json cases = fixture("normalizers.json");
  REQUIRE(cases.size() > 10);
  for (const Json& each : cases) {
    CAPTURE(each[0].dump());
    PipelineReader reader;
    Normalizer normalizer;
    reader.read_normalizer(each[0], normalizer);
    for (const Json& sample : each[1])
      CHECK(normalizer.apply(sample[0].get<std::string>()) == sample[1].get<std::string>());
  }
}

TEST_CASE("hand-written scanners and their regexes agree on random text") {
  const std::vector<std::pair<const char*, PieceScanner>> kPairs = {{kGpt2Regex, scan_gpt2},
                                                                    {kLlama3Regex, scan_llama3},
                                                                    {kQwen2Regex, scan_qwen2},
                                                                    {kQwen35Regex, scan_qwen35}};
  for (const auto& [regex, scanner] : kPairs) {
    CHECK((find_scanner(regex) == scanner));
    const PreTokenizer fast = one_stage(scanner_stage(scanner));
    const PreTokenizer general = one_stage(regex_stage(regex, SplitBehavior::Isolated, false, true));
    std::mt19937 random(11);
    for (int i = 0; i < 4000; ++i) {
      const std::string text = random_text(random);
      CAPTURE(Json(text).dump(-1, ' ', true));
      REQUIRE(split(fast, text) == split(general, text));
    }
  }
  CHECK((find_scanner("\\p{L}+") == nullptr));
}

TEST_CASE("named pre-tokenizers: all stages by scanner and by regex agree, nothing is lost") {
  std::set<std::string> names;
  for (const std::string& name : pre_tokenizer_names()) {
    CAPTURE(name);
    CHECK(names.insert(name).second);
    const NamedPreTokenizer fast = named_pre_tokenizer(name), general = named_pre_tokenizer(name, true);
    std::mt19937 random(12);
    for (int i = 0; i < 300; ++i) {
      const std::string text = random_text(random);
      const auto pieces = split(fast.pre_tokenizer, text);
      REQUIRE(pieces == split(general.pre_tokenizer, text));
      std::string joined;
      for (const std::string& piece : pieces) joined += piece;
      REQUIRE(joined == text);
    }
  }
  for (const char* name : {"llama-bpe", "qwen2", "qwen35", "gpt-2", "smollm", "tekken", "gpt-4o", "llama4",
                           "deepseek-v3", "default", "deepseek-r1-qwen", "starcoder", "dbrx"}) {
    CHECK(names.contains(name));
  }
  CHECK(message_of(Status::ModelLoad, [] { named_pre_tokenizer("llama-bpe2"); }).find("'llama-bpe2'") !=
        std::string::npos);
  CHECK(message_of(Status::ModelLoad, [] { named_pre_tokenizer(""); }) != "");
}

TEST_CASE("regex syntax whose meaning would change is refused by name") {
  for (const char* bad : {"(", "[a", "a{2,1}", "\\h+", "[a&&b]", "[a[b]]", "(?m:a.)", "\\p{Nope}", "a{1,2}+",
                          "[\\S]", "(*ACCEPT)", "\\"}) {
    CAPTURE(bad);
    CHECK(message_of(Status::ModelLoad, [&] { Regex regex(bad); }).find("regex") != std::string::npos);
  }
  CHECK(message_of(Status::ModelLoad, [] { Regex regex(std::string(20000, 'a')); }) != "");
  CHECK(message_of(Status::ModelLoad, [] { Regex regex(std::string(5000, '(') + std::string(5000, ')')); }) !=
        "");
  // U+180E is no white space, marks belong to words.
  CHECK(Regex("\\s").find_all("\xe1\xa0\x8e").empty());
  CHECK(Regex("[\\s]").find_all("\xe1\xa0\x8e\xe2\x80\xa8").size() == 1);
  CHECK(Regex("^\\w+$").find_all("e\xcc\x81").size() == 1);
  CHECK(Regex("x*").find_all("axa").size() == 3);
}

TEST_CASE("a regex that backtracks without end is stopped") {
  const Regex regex("(a|aa)+[bc]");
  const std::string message =
      message_of(Status::InvalidArgument, [&] { regex.find_all(std::string(3000, 'a')); });
  CHECK(message.find("steps") != std::string::npos);
}

TEST_CASE("normal forms of long runs of marks take little more than linear time") {
  std::string text = "a";
  for (int i = 0; i < 200000; ++i) text += i % 2 ? "\xcc\xa3" : "\xcc\x81";  // below, above
  const std::string composed = to_normal_form(text, NormalForm::NFC);
  CHECK(composed.starts_with("\xe1\xba\xa1"));  // a with dot below
  CHECK(to_normal_form(composed, NormalForm::NFC) == composed);
}

TEST_CASE("unknown or malformed parts of a pipeline are refused by name") {
  const auto refused = [](const char* part, const char* json) {
    return message_of(Status::ModelLoad, [&] {
      PipelineReader reader;
      reader.source = "tokenizer.json";
      const Json value = parse_json(json, "test", Status::Runtime);
      Normalizer normalizer;
      PreTokenizer pre_tokenizer;
      const std::string name = part;
      if (name == "normalizer") reader.read_normalizer(value, normalizer);
      if (name == "pre_tokenizer") reader.read_pre_tokenizer(value, pre_tokenizer);
      if (name == "decoder") reader.read_decoder(value);
      if (name == "post_processor") reader.read_post_processor(value);
    });
  };
  CHECK(refused("normalizer", R"({"type": "Lowercase"})").find("Lowercase") != std::string::npos);
  CHECK(refused("normalizer", R"({"type": "Sequence", "normalizers": [{"type": "Nmt"}]})").find("Nmt") !=
        std::string::npos);
  CHECK(refused("pre_tokenizer", R"({"type": "UnicodeScripts"})").find("UnicodeScripts") !=
        std::string::npos);
  CHECK(refused("decoder", R"({"type": "WordPiece"})").find("WordPiece") != std::string::npos);
  CHECK(refused("post_processor", R"({"type": "BertProcessing"})").find("BertProcessing") !=
        std::string::npos);
  for (const char* part : {"normalizer", "pre_tokenizer", "decoder", "post_processor"}) {
    for (const char* json : {"[]", "1", "\"x\"", "{}", R"({"type": 1})", R"({"type": "Sequence"})"}) {
      CAPTURE(part);
      CAPTURE(json);
      CHECK(refused(part, json).find("tokenizer.json") != std::string::npos);
    }
  }
  for (const char* json :
       {R"({"type": "Split"})", R"({"type": "Split", "behavior": "Isolated"})",
        R"({"type": "Split", "behavior": "Isolated", "pattern": {"String": ""}})",
        R"({"type": "Split", "behavior": "No", "pattern": {"String": "x"}})",
        R"({"type": "Split", "behavior": "Isolated", "pattern": {"Regex": "("}})",
        R"({"type": "Split", "behavior": "Isolated", "pattern": {"String": "x"}, "invert": 1})",
        R"({"type": "Metaspace"})", R"({"type": "Metaspace", "replacement": ""})",
        R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "x"})",
        R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "Digits"}]})"}) {
    CAPTURE(json);
    CHECK(refused("pre_tokenizer", json) != "");
  }
  for (const char* json :
       {R"({"type": "TemplateProcessing"})", R"({"type": "TemplateProcessing", "single": [1]})",
        R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}]})",
        R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}],
                               "special_tokens": {"x": {"ids": [1, 2]}}})",
        R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}],
                               "special_tokens": {"x": {"ids": ["a"]}}})"}) {
    CAPTURE(json);
    CHECK(refused("post_processor", json) != "");
  }
}

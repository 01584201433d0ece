// Malformed and hostile tokenizer files: each is refused with the file and the thing at fault, none ends the
// process.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "text/json_scanner.h"
#include "tokenizer_files.h"

using namespace vllm;

namespace {

Json qwen() {
  return byte_level_json(fixture("byte_level.json"), fixture("byte_level_families.json")["qwen2"]);
}

std::string refused(const Json& json, const std::string& config = "") {
  return message_of(Status::ModelLoad, [&] { load_folder(json.dump(), config); });
}

std::string refused(const FakeCheckpoint& gguf) {
  return message_of(Status::ModelLoad, [&] { load_tokenizer(gguf); });
}

bool names(const std::string& message, std::string_view what) {
  INFO(message);
  CHECK(message.find(what) != std::string::npos);
  return message.find(what) != std::string::npos;
}

FakeCheckpoint good_gguf() { return byte_level_gguf(fixture("byte_level.json"), "qwen2"); }

FakeCheckpoint good_spm() {
  FakeCheckpoint gguf;
  gguf.set("model", "llama");
  gguf.tokens() = {"<unk>",
                   "<s>",
                   "</s>",
                   "\xe2\x96\x81",
                   "a",
                   "b",
                   "ab",
                   "\xe2\x96\x81"
                   "ab"};
  gguf.scores() = {0, 0, 0, -5, -6, -7, -1, -2};
  gguf.types() = {2, 3, 3, 1, 1, 1, 1, 1};
  return gguf;
}

}  // namespace

TEST_CASE("a good file loads, with any order of its members") {
  const Json good = qwen();
  CHECK(refused(good) == "");
  Json reversed = Json::object();
  for (auto item = good.rbegin(); item != good.rend(); ++item) reversed[item.key()] = item.value();
  CHECK(load_folder(reversed.dump())->encode("the end", true, false) ==
        load_folder(good.dump(2))->encode("the end", true, false));
  // Merges as "a b" instead of pairs.
  Json strings = good;
  for (Json& merge : strings["model"]["merges"]) {
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
  CHECK(load_folder(strings.dump())->encode("the end of it", true, false) ==
        load_folder(good.dump())->encode("the end of it", true, false));
}

TEST_CASE("a tokenizer.json cut off anywhere is refused") {
  const std::string text = qwen().dump();
  for (size_t size = 1; size < text.size(); size += 1 + size / 40) {
    CAPTURE(size);
    const std::string message = message_of(Status::ModelLoad, [&] { load_folder(text.substr(0, size)); });
    CHECK(message.find("tokenizer.json") != std::string::npos);
  }
  CHECK(names(message_of(Status::ModelLoad, [] { load_tokenizer(FakeCheckpoint("/nonexistent", false)); }),
              "/nonexistent/tokenizer.json"));
}

TEST_CASE("a byte changed anywhere in a tokenizer.json never ends the process") {
  Json json = qwen();
  json["model"]["merges"].erase(json["model"]["merges"].begin() + 30, json["model"]["merges"].end());
  const std::string good = json.dump();
  uint32_t random = 1;
  for (int round = 0; round < 800; ++round) {
    std::string text = good;
    for (int changes = 0; changes < 2; ++changes) {
      random = random * 1664525 + 1013904223;
      text[(random >> 4) % text.size()] = "{}[]\",:\\0-\xff\x01 tn"[(random >> 28) % 16];
    }
    message_of(Status::ModelLoad, [&] { load_folder(text)->encode("the end <think> of 123", true, true); });
  }
}

TEST_CASE("wrong types and missing members are named") {
  for (const char* path : {"/model", "/model/vocab", "/model/merges", "/added_tokens", "/normalizer",
                           "/pre_tokenizer", "/decoder", "/model/type", "/model/ignore_merges"}) {
    for (const Json& bad :
         {Json(1), Json("x"), Json::array({1}), Json::array({"a"}), Json{{"a", "b"}}, Json(-1.5)}) {
      CAPTURE(path);
      CAPTURE(bad.dump());
      Json json = qwen();
      json[Json::json_pointer(path)] = bad;
      CHECK(names(refused(json), "tokenizer.json"));
    }
  }
  for (const char* key : {"vocab", "merges"}) {
    Json json = qwen();
    json["model"].erase(key);
    CHECK(names(refused(json), key));
  }
  Json json = qwen();
  json["model"]["type"] = "Unigram";
  CHECK(names(refused(json), "Unigram"));
  json = qwen();
  json["model"]["dropout"] = 0.1;
  CHECK(names(refused(json), "dropout"));
  json = qwen();
  json["model"]["end_of_word_suffix"] = "</w>";
  CHECK(names(refused(json), "end_of_word_suffix"));
  json = qwen();
  json["model"]["unk_token"] = "no such";
  CHECK(names(refused(json), "no such"));
  json = qwen();
  json["model"]["vocab"] = Json::object();
  CHECK(names(refused(json), "empty"));
}

TEST_CASE("ids that are out of range, shared or contradict each other are named") {
  const auto with_vocab = [](const char* text, int64_t id) {
    Json json = qwen();
    json["model"]["vocab"][text] = id;
    return refused(json);
  };
  CHECK(names(with_vocab("zzz", -1), "'zzz'"));
  CHECK(names(with_vocab("zzz", 4000000000), "'zzz'"));
  CHECK(names(with_vocab("zzz", 100000000), "out of range"));
  CHECK(names(with_vocab("zzz", 7), "share the id 7"));
  const auto with_added = [](const Json& token) {
    Json json = qwen();
    json["added_tokens"].push_back(token);
    return refused(json);
  };
  CHECK(names(with_added({{"id", 7}, {"content", "<new>"}}), "<new>"));
  CHECK(names(with_added({{"id", 2000}, {"content", "<think>"}}), "<think>"));
  CHECK(names(with_added({{"id", -4}, {"content", "<new>"}}), "<new>"));
  CHECK(names(with_added({{"id", 100000000}, {"content", "<new>"}}), "<new>"));
  CHECK(names(with_added({{"id", 1e30}, {"content", "<new>"}}), "added_tokens"));
  CHECK(names(with_added({{"content", "<new>"}}), "added_tokens"));
  CHECK(names(with_added({{"id", 2000}}), "added_tokens"));
  CHECK(names(with_added({{"id", 2000}, {"content", std::string(5000, 'x')}}), "5000"));
  CHECK(names(with_added({{"id", 2000}, {"content", "<new>"}, {"special", "yes"}}), "added_tokens"));
  CHECK(names(with_added(qwen()["added_tokens"][0]), "twice"));
  // A gap is no fault.
  Json json = qwen();
  json["added_tokens"].push_back({{"id", 2000}, {"content", "<new>"}});
  const auto tokenizer = load_folder(json.dump());
  CHECK(tokenizer->vocab_size() == 2001);
  CHECK(tokenizer->bytes(1999).empty());
  CHECK(tokenizer->encode("<new>", true, false) == std::vector<int32_t>{2000});
}

TEST_CASE("the same text twice in a vocabulary is refused") {
  std::string text = qwen().dump();
  const size_t at = text.find("\"vocab\":{") + 9;
  CHECK(
      names(message_of(Status::ModelLoad, [&] { load_folder(std::string(text).insert(at, "\"a\":1500,")); }),
            "'a'"));
  CHECK(names(message_of(Status::ModelLoad, [&] { load_folder("{\"model\":1," + text.substr(1)); }),
              "'model'"));
}

TEST_CASE("merges must be two known tokens that make a known one") {
  for (const Json& bad : {Json::array({"a"}), Json::array({"a", "b", "c"}), Json::array({"zzzz", "a"}),
                          Json::array({"a", "\x7f"}), Json("ab"), Json("a b c"), Json("a"), Json(""),
                          Json(" "), Json::array({1, 2}), Json(3)}) {
    CAPTURE(bad.dump());
    Json json = qwen();
    json["model"]["merges"].push_back(bad);
    CHECK(names(refused(json), "merge"));
  }
}

TEST_CASE("tokenizer_config.json is checked too") {
  CHECK(names(refused(qwen(), R"({"eos_token": "<nope>"})"), "<nope>"));
  CHECK(names(refused(qwen(), R"({"bos_token": "<nope>"})"), "<nope>"));
  CHECK(names(refused(qwen(), R"({"eos_token": 5})"), "eos_token"));
  CHECK(names(refused(qwen(), R"({"add_bos_token": "yes"})"), "add_bos_token"));
  CHECK(names(refused(qwen(), "[]"), "tokenizer_config.json"));
  CHECK(names(refused(qwen(), "{"), "tokenizer_config.json"));
  CHECK(refused(qwen(),
                R"({"eos_token": null, "bos_token": null, "add_bos_token": null, "x": [1, {"a": "}"}]})") ==
        "");
}

TEST_CASE("JSON that is no JSON, nested without end or not UTF-8 is refused") {
  for (const std::string& text :
       {std::string("nul"), std::string("[]"), std::string("\"model\""), std::string(1, '\0'),
        "{\"model\":" + std::string(100000, '['), "{\"a\":\"\xff\"}" + std::string(),
        "{\"model\":{\"vocab\":{\"\\ud800\":0},\"merges\":[]}}" + std::string(),
        "{\"model\":{\"vocab\":{\"a\xc3\":0},\"merges\":[]}}" + std::string(),
        "{\"model\":{\"vocab\":{\"a\nb\":0},\"merges\":[]}}" + std::string(),
        "{\"model\":{\"vocab\":{\"a\":01},\"merges\":[]}}" + std::string(),
        "{\"model\":{\"vocab\":{\"a\":1.5},\"merges\":[]}}" + std::string(),
        "{\"model\":{\"vocab\":{\"a\":0,},\"merges\":[]}}" + std::string()}) {
    CAPTURE(text.substr(0, 60));
    CHECK(names(message_of(Status::ModelLoad, [&] { load_folder(text); }), "tokenizer.json"));
  }
  JsonScanner scanner(R"("\u00e9\ud83d\ude00\n\"\\\/")", "test");
  CHECK(scanner.string() == "\xc3\xa9\xf0\x9f\x98\x80\n\"\\/");
}

TEST_CASE("a vocabulary without single bytes is refused, a missing byte only when a text needs it") {
  Json json = qwen();
  json["model"]["vocab"] = {{"abc", 0}};
  json["model"]["merges"] = Json::array();
  json["added_tokens"] = Json::array();
  CHECK(names(refused(json), "single byte"));
  json["model"]["vocab"] = {{"a", 0}, {"b", 1}};
  const auto tokenizer = load_folder(json.dump());
  CHECK(tokenizer->encode("ab", true, false) == std::vector<int32_t>{0, 1});
  CHECK(names(message_of(Status::InvalidArgument, [&] { tokenizer->encode("abc", true, false); }), "'c'"));
  json["model"]["unk_token"] = "b";
  CHECK(load_folder(json.dump())->encode("acb", true, false) == std::vector<int32_t>{0, 1, 1});
}

TEST_CASE("GGUF: arrays that are missing, uneven or hold nonsense are named") {
  const auto with = [](const std::function<void(FakeCheckpoint&)>& change) {
    FakeCheckpoint gguf = good_gguf();
    change(gguf);
    return refused(gguf);
  };
  CHECK(refused(good_gguf()) == "");
  CHECK(names(with([](auto& g) { g.tokens().clear(); }), "tokenizer.ggml.tokens"));
  CHECK(names(with([](auto& g) { g.merges().clear(); }), "tokenizer.ggml.merges"));
  CHECK(names(with([](auto& g) { g.types().pop_back(); }), "token_type"));
  CHECK(names(with([](auto& g) { g.types()[3] = 9; }), "type 9"));
  CHECK(names(with([](auto& g) { g.tokens()[5] = g.tokens()[6]; }), "twice"));
  CHECK(names(with([](auto& g) { g.tokens()[5] = "<think>"; }), "twice"));
  CHECK(names(with([](auto& g) { g.tokens()[5] = "\xff"; }), "UTF-8"));
  CHECK(names(with([](auto& g) { g.merges()[5] = "ab"; }), "merge 5"));
  CHECK(names(with([](auto& g) { g.merges()[5] = "zzz zzz"; }), "merge 5"));
  CHECK(names(with([](auto& g) { g.merges()[5] = "a \xff"; }), "merge 5"));
  CHECK(names(with([](auto& g) { g.set("model", "t5"); }), "'t5'"));
  CHECK(names(with([](auto& g) { g.config().clear(); }), "tokenizer.ggml.model"));
  CHECK(names(with([](auto& g) { g.set("model", 3); }), "tokenizer.ggml.model"));
  CHECK(names(with([](auto& g) { g.set("pre", true); }), "tokenizer.ggml.pre"));
  CHECK(names(with([](auto& g) { g.set("eos_token_id", 100000); }), "eos_token_id"));
  CHECK(names(with([](auto& g) { g.set("bos_token_id", "x"); }), "bos_token_id"));
  CHECK(names(with([](auto& g) { g.set("add_bos_token", 1); }), "add_bos_token"));
  CHECK(names(with([](auto& g) { g.set("add_bos_token", true); }), "bos_token_id"));
  CHECK(with([](auto& g) { g.set("bos_token_id", 4294967295u); }) == "");  // "none" of some converters
  // Empty texts are placeholders, several may be.
  FakeCheckpoint gguf = good_gguf();
  for (int i = 0; i < 3; ++i) gguf.tokens().push_back(""), gguf.types().push_back(5);
  const auto tokenizer = load_tokenizer(gguf);
  CHECK(tokenizer->bytes(tokenizer->vocab_size() - 1).empty());
  CHECK(tokenizer->is_control(tokenizer->vocab_size() - 1));
}

TEST_CASE("GGUF: SentencePiece vocabularies are checked") {
  const auto with = [](const std::function<void(FakeCheckpoint&)>& change) {
    FakeCheckpoint gguf = good_spm();
    change(gguf);
    return refused(gguf);
  };
  CHECK(refused(good_spm()) == "");
  CHECK(names(with([](auto& g) { g.scores().clear(); }), "scores"));
  CHECK(names(with([](auto& g) { g.scores().pop_back(); }), "scores"));
  CHECK(names(with([](auto& g) { g.scores()[4] = NAN; }), "score of token 4"));
  CHECK(names(with([](auto& g) { g.tokens()[4] = "b"; }), "twice"));
  CHECK(names(with([](auto& g) { g.tokens()[4] = "<s>"; }), "twice"));
  CHECK(names(with([](auto& g) { g.types()[4] = 6; }), "byte"));
  CHECK(names(with([](auto& g) { g.types()[0] = 1; }), "unknown token"));
  const auto tokenizer = load_tokenizer(good_spm());
  CHECK(tokenizer->encode("ab", true, true) == std::vector<int32_t>{1, 7});
  CHECK(tokenizer->encode("azb", true, false) == std::vector<int32_t>{3, 4, 0, 5});
  CHECK(tokenizer->end_ids() == std::vector<int32_t>{2});
}

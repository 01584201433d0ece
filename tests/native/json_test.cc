#include "base/json.h"

#include <doctest/doctest.h>

#include <chrono>
#include <string>

using namespace vllm;

namespace {

std::string message_of(std::string_view text, int max_depth = 512) {
  try {
    parse_json(text, "request", Status::InvalidArgument, max_depth);
  } catch (const Error& error) {
    CHECK(error.status() == Status::InvalidArgument);
    return error.message();
  }
  return "accepted";
}

double seconds(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

TEST_CASE("parse_json keeps values and the order of keys") {
  const Json value = parse_json(R"( {"z":[1,-2,3.5,true,null,"ü\n"],"a":{},"m":[]} )", "t", Status::Runtime);
  CHECK(dump_json(value) == R"({"z":[1,-2,3.5,true,null,"ü\n"],"a":{},"m":[]})");
  CHECK(value.at("z")[0].is_number_integer());
  CHECK(value.at("z")[2].is_number_float());
  CHECK(value.at("a").is_object());
  CHECK(value.at("m").is_array());
  CHECK(parse_json("18446744073709551615", "t", Status::Runtime).get<uint64_t>() == UINT64_MAX);
  CHECK(parse_json("\"text\"", "t", Status::Runtime) == "text");
}

TEST_CASE("what is no JSON is refused with its place") {
  CHECK(message_of("").starts_with("request is no valid JSON at byte 1: "));
  CHECK(message_of("{\"a\":1,}").starts_with("request is no valid JSON at byte 8: "));
  CHECK(message_of("[1 2]").starts_with("request is no valid JSON at byte 4: "));
  CHECK(message_of("{} x").starts_with("request is no valid JSON at byte 4: "));
  CHECK(message_of("[1e999]") == "request is no valid JSON at byte 6: number overflow parsing '1e999'.");
  CHECK(message_of("NaN").starts_with("request is no valid JSON"));
  CHECK(message_of("// note\n1").starts_with("request is no valid JSON"));
  CHECK(message_of(std::string_view("{}\0{}", 5)) == "request is no valid JSON at byte 3: a NUL byte.");
}

TEST_CASE("an error does not repeat a long input") {
  CHECK(message_of("\"" + std::string(1000000, 'a')).size() < 300);
  CHECK(message_of("[1e" + std::string(1000000, '9') + "]").size() < 300);
}

TEST_CASE("invalid UTF-8 is refused") {
  for (const char* bad : {"\"\xff\"", "\"\xc0\xaf\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"",
                          "\"\xe2\x82\"", "\"\\ud800\""}) {
    CHECK(message_of(bad).starts_with("request is no valid JSON at byte"));
  }
  CHECK(message_of("\"\\ud83d\\ude00\"") == "accepted");
}

TEST_CASE("a duplicate key is refused at any depth, in small and large objects") {
  CHECK(message_of(R"({"a":1,"b":2,"a":3})") == "request holds the key 'a' twice in one object.");
  CHECK(message_of(R"([{"x":{"k":1,"\u006b":2}}])") == "request holds the key 'k' twice in one object.");
  CHECK(message_of(R"({"a":{"a":{"a":1}},"b":{"a":1}})") == "accepted");
  std::string large = "{";
  for (int i = 0; i < 5000; ++i) large += "\"k" + std::to_string(i) + "\":0,";
  CHECK(message_of(large + "\"last\":0}") == "accepted");
  CHECK(message_of(large + "\"k2500\":0}") == "request holds the key 'k2500' twice in one object.");
}

TEST_CASE("GRAM-04 nesting is bounded: 60,000 levels are refused at once") {
  const double took = seconds([] {
    for (const char* open : {"[", "{\"a\":"}) {
      std::string text;
      for (int i = 0; i < 60000; ++i) text += open;
      CHECK(message_of(text) == "request is nested deeper than the 512 levels that are allowed.");
    }
  });
  CHECK(took < 0.5);
  CHECK(message_of(std::string(512, '[') + std::string(512, ']')) == "accepted");
  CHECK(message_of(std::string(513, '[') + std::string(513, ']')) != "accepted");
  CHECK(message_of("[[1]]", 2) == "accepted");
  CHECK(message_of("[[[1]]]", 2) == "request is nested deeper than the 2 levels that are allowed.");
  CHECK(message_of("[1]", 0) != "accepted");
  CHECK(message_of("1", 0) == "accepted");
}

TEST_CASE("parsing takes linear time") {
  std::string vocabulary = "{\"vocab\":{";
  for (int i = 0; i < 300000; ++i)
    vocabulary += (i ? ",\"token" : "\"token") + std::to_string(i) + "\":" + std::to_string(i);
  vocabulary += "}}";
  CHECK(seconds([&] {
          const Json value = parse_json(vocabulary, "tokenizer.json", Status::ModelLoad);
          CHECK(value.at("vocab").size() == 300000);
        }) < 3.0);

  // A large value far down, beside siblings on every level.
  std::string nested, tail;
  for (int i = 0; i < 500; ++i) nested += "{\"a\":", tail += ",\"b\":1,\"c\":2,\"d\":3}";
  nested += "[0";
  for (int i = 0; i < 300000; ++i) nested += ",1";
  nested += "]" + tail;
  CHECK(seconds([&] { CHECK(message_of(nested) == "accepted"); }) < 3.0);
}

TEST_CASE("dump_json replaces invalid bytes") {
  CHECK(dump_json(Json("a\xff z")) == "\"a\xef\xbf\xbd z\"");
  CHECK(dump_json(Json{{"b", 1}, {"a", "é"}}) == "{\"b\":1,\"a\":\"é\"}");
}

TEST_CASE("quote keeps a message on one valid line") {
  CHECK(quote("blk.0 é") == "'blk.0 é'");
  CHECK(quote("a\nb\x01\xff\xed\xa0\x80") == "'a\\x0ab\\x01\\xff\\xed\\xa0\\x80'");
  CHECK(quote("\xe2\x82") == "'\\xe2\\x82'");
  CHECK(quote(std::string(1000, 'x')) == "'" + std::string(100, 'x') + "...'");
  CHECK(quote("") == "''");
}

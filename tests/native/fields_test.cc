#include "weights/fields.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "file_writers.h"

using namespace vllm;
using vllm::test::load_error;

namespace {

std::string integer_error(const char* value) {
  const Json object = parse_json(std::string("{\"heads\":") + value + "}", "t", Status::Runtime);
  return load_error([&] { Fields(object, "config.json").integer("heads", 1, 65536); });
}

}  // namespace

TEST_CASE("values are read as they stand") {
  const Json object = parse_json(
      R"({"i":42,"f":4096.0,"n":1e-5,"neg":-7,"t":true,"s":"x","null":null,"one":3,"list":[1,2.0,3],
          "floats":[0.5,1],"names":["a","b"],"inner":{"factor":8.0}})",
      "t", Status::Runtime);
  const Fields fields(object, "config.json");
  CHECK(fields.source() == "config.json");
  CHECK(fields.has("i"));
  CHECK(!fields.has("null"));
  CHECK(!fields.has("absent"));
  CHECK(fields.integer("i", 42, 42) == 42);
  CHECK(fields.integer("f", 1, 1 << 20) == 4096);
  CHECK(fields.integer("neg", -7, 0) == -7);
  CHECK(fields.integer_or("i", 9, 0, 100) == 42);
  CHECK(fields.integer_or("absent", 9, 0, 100) == 9);
  CHECK(fields.integer_or("null", 9, 0, 100) == 9);
  CHECK(fields.number("n", 0, 1) == 1e-5);
  CHECK(fields.number("i", 0, 100) == 42.0);
  CHECK(fields.number_or("absent", 0.25, 0, 1) == 0.25);
  CHECK(fields.boolean_or("t", false));
  CHECK(fields.boolean_or("absent", true));
  CHECK(!fields.boolean_or("null", false));
  CHECK(fields.string("s") == "x");
  CHECK(fields.string_or("absent", "d") == "d");
  CHECK(fields.integers("one", 0, 9) == std::vector<int64_t>{3});
  CHECK(fields.integers("list", 0, 9) == std::vector<int64_t>{1, 2, 3});
  CHECK(fields.integers("absent", 0, 9).empty());
  CHECK(fields.numbers("floats") == std::vector<double>{0.5, 1.0});
  CHECK(fields.numbers("n") == std::vector<double>{1e-5});
  CHECK(fields.strings("names") == std::vector<std::string>{"a", "b"});
  CHECK(fields.strings("s") == std::vector<std::string>{"x"});
  CHECK(fields.strings("null").empty());
  REQUIRE(fields.object("inner"));
  CHECK(fields.object("inner")->number("factor", 1, 10) == 8.0);
  CHECK(!fields.object("absent"));
  CHECK(!fields.object("null"));
}

TEST_CASE("FILE-04 integers of wrong type or size are refused with key and value") {
  CHECK(integer_error("1").empty());
  CHECK(integer_error("65536").empty());
  CHECK(integer_error("0") == "config.json: heads is 0, needed is an integer from 1 to 65536.");
  const std::string need = ", needed is an integer from 1 to 65536.";
  CHECK(integer_error("-8") == "config.json: heads is -8" + need);
  CHECK(integer_error("65537") == "config.json: heads is 65537" + need);
  CHECK(integer_error("18446744073709551615") == "config.json: heads is 18446744073709551615" + need);
  CHECK(integer_error("1e300").starts_with("config.json: heads is 1.0"));
  CHECK(integer_error("2.5") == "config.json: heads is 2.5" + need);
  CHECK(integer_error("\"8\"") == "config.json: heads is '8'" + need);
  CHECK(integer_error("true") == "config.json: heads is true" + need);
  CHECK(integer_error("[8]") == "config.json: heads is [8]" + need);
  CHECK(integer_error("{\"a\":1}") == "config.json: heads is {\"a\":1}" + need);
  CHECK(integer_error("null") == "config.json: heads is missing" + need);
  CHECK(integer_error(("\"" + std::string(5000, 'x') + "\"").c_str()).size() < 300);
  CHECK(integer_error(("[" + std::string(5000, ' ') + "\"" + std::string(5000, 'y') + "\"]").c_str()).size() <
        300);
}

TEST_CASE("FILE-04 extremes of 64 bits are kept") {
  const Json object = {{"min", INT64_MIN}, {"max", INT64_MAX}};
  const Fields fields(object, "t");
  CHECK(fields.integer("min", INT64_MIN, INT64_MAX) == INT64_MIN);
  CHECK(fields.integer("max", INT64_MIN, INT64_MAX) == INT64_MAX);
}

TEST_CASE("FILE-04 values of every other kind are refused with key and value") {
  const Json object = {{"text", "abc"},
                       {"number", 3},
                       {"nan", std::nan("")},
                       {"inf", std::numeric_limits<double>::infinity()},
                       {"mixed", {1, "b"}},
                       {"wide", {1, 99}},
                       {"inner", {{"deep", {{"x", 0}}}}}};
  const Fields fields(object, "config.json");
  const auto error = [&](const auto& read) { return load_error([&] { read(fields); }); };
  CHECK(error([](const Fields& f) { f.number("text", 0, 1); }) ==
        "config.json: text is 'abc', needed is a number from 0 to 1.");
  CHECK(error([](const Fields& f) { f.number("number", 0, 1); }) ==
        "config.json: number is 3, needed is a number from 0 to 1.");
  CHECK(error([](const Fields& f) { f.number("nan", 0, 1); }) ==
        "config.json: nan is nan, needed is a number from 0 to 1.");
  CHECK(error([](const Fields& f) { f.number_or("inf", 0, 0, 1); }) ==
        "config.json: inf is inf, needed is a number from 0 to 1.");
  CHECK(error([](const Fields& f) { f.integer("inf", 0, 1); }) ==
        "config.json: inf is inf, needed is an integer from 0 to 1.");
  CHECK(error([](const Fields& f) { f.boolean_or("number", false); }) ==
        "config.json: number is 3, needed is true or false.");
  CHECK(error([](const Fields& f) { f.string("number"); }) ==
        "config.json: number is 3, needed is a string.");
  CHECK(error([](const Fields& f) { f.string("absent"); }) ==
        "config.json: absent is missing, needed is a string.");
  CHECK(error([](const Fields& f) { f.string_or("number", ""); }) ==
        "config.json: number is 3, needed is a string.");
  CHECK(error([](const Fields& f) { f.integers("wide", 0, 9); }) ==
        "config.json: wide is [1,99], needed is integers from 0 to 9.");
  CHECK(error([](const Fields& f) { f.integers("mixed", 0, 9); }) ==
        "config.json: mixed is [1,\"b\"], needed is integers from 0 to 9.");
  CHECK(error([](const Fields& f) { f.numbers("mixed"); }) ==
        "config.json: mixed is [1,\"b\"], needed is finite numbers.");
  CHECK(error([](const Fields& f) { f.numbers("nan"); }) ==
        "config.json: nan is nan, needed is finite numbers.");
  CHECK(error([](const Fields& f) { f.strings("mixed"); }) ==
        "config.json: mixed is [1,\"b\"], needed is strings.");
  CHECK(error([](const Fields& f) { f.object("number"); }) ==
        "config.json: number is 3, needed is an object.");
  CHECK(error([](const Fields& f) { f.object("inner")->object("deep")->integer("x", 1, 2); }) ==
        "config.json: inner.deep.x is 0, needed is an integer from 1 to 2.");
  CHECK(error([](const Fields& f) { f.fail("number", "something else"); }) ==
        "config.json: number is 3, needed is something else.");
  const Json array = Json::array({1});
  CHECK(load_error([&] { const Fields refused(array, "config.json"); }) ==
        "config.json is [1], needed is an object.");
}

TEST_CASE("a prefix is put before every key and shown in errors") {
  const Json object = {{"llama.block_count", 2}, {"block_count", 3}, {"llama.rope.freq_base", 0}};
  const Fields fields(object, "m.gguf", "llama.");
  CHECK(fields.integer("block_count", 0, 9) == 2);
  CHECK(!fields.has("llama.block_count"));
  CHECK(load_error([&] { fields.number("rope.freq_base", 1, 1e9); }) ==
        "m.gguf: llama.rope.freq_base is 0, needed is a number from 1 to 1e+09.");
}

#include <chrono>

#include "constrain_check.h"

namespace {

using namespace vllm;
using namespace vllm::testing;

struct Row {
  const char* schema;
  std::vector<std::string> good, bad;  // bad: complete texts that are not matched
};

void check(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    CAPTURE(row.schema);
    for (const std::string& text : row.good) CHECK_MESSAGE(matches(schema(row.schema), text), text);
    for (const std::string& text : row.bad) CHECK_FALSE_MESSAGE(matches(schema(row.schema), text), text);
  }
}

TEST_CASE("Types") {
  check({
      {R"({"type":"null"})", {"null"}, {"nul", "NULL", ""}},
      {R"({"type":"boolean"})", {"true", "false"}, {"True", "1"}},
      {R"({"type":"integer"})", {"0", "-0", "12", "-7"}, {"01", "1.0", "1e3", "+1", "-", ""}},
      {R"({"type":"number"})", {"0", "-1.5", "1e5", "1.25E-10", "-0.0"}, {"1.", ".5", "1e", "00", "NaN"}},
      {R"({"type":"string"})",
       {R"("")", R"("a\"\\\/\b\f\n\r\té")", R"("\u00e9\ud83c\udf89")", "\"\x7f\""},
       {R"(")", R"("\x")", "\"\n\"", R"("\u12")", R"("\ud83c")", R"("\udf89")", R"("\ud83cA")", "\"\xff\"",
        "\"\xc3\""}},
      {R"({"type":"array"})",
       {"[]", "[1]", R"([1, "a", [null], {"b": true}])"},
       {"[1,]", "[,]", "[1 2]", "{}"}},
      {R"({"type":"object"})",
       {"{}", R"({"a": 1, "b": {"c": []}})"},
       {R"({"a"})", R"({a: 1})", R"({"a": 1,})", "[]"}},
      {R"({"type":["integer","null"]})", {"5", "null"}, {"true", "1.5"}},
      {R"({"type":["number","integer"]})", {"5", "1.5"}, {"null"}},
      {R"({})", {"{}", "[]", "1", "null", "\"x\"", "true"}, {"", "nul"}},
      {R"(true)", {"{}", "1"}, {""}},
      {R"({"type":"string","nullable":true})", {"\"a\"", "null"}, {"1"}},
      {R"({"nullable":true,"properties":{"a":{}}})", {R"({"a": 1})", "null"}, {"1"}},
      {R"({"title":"T","description":"d","default":1,"examples":[2],"$schema":"s","$comment":"c","x-other":3,"type":"integer"})",
       {"7"},
       {"\"7\""}},
      {R"({"minLength":2})", {"\"ab\""}, {"\"a\"", "1"}},
  });
}

TEST_CASE("Objects: keys in the schema's order, optional ones with the right commas") {
  check({
      {R"({"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"integer"}},"required":["a","b"]})",
       {R"({"b":1,"a":2})", "{ \"b\" : 1 , \"a\" : 2 }", "{\n  \"b\": 1,\n  \"a\": 2\n}"},
       {R"({"a":2,"b":1})", R"({"b":1})", R"({"b":1,"a":2,"c":3})", R"({"b":1,"b":1,"a":2})"}},
      {R"({"properties":{"a":{"type":"integer"},"b":{"type":"integer"},"c":{"type":"integer"}}})",
       {"{}", R"({"a":1})", R"({"b":1})", R"({"c":1})", R"({"a":1,"c":1})", R"({"a":1,"b":1,"c":1})",
        R"({"b":1,"c":1})"},
       {R"({,"a":1})", R"({"a":1,})", R"({"c":1,"a":1})", R"({"a":1 "b":1})"}},
      {R"({"properties":{"a":{"type":"integer"},"b":{"type":"integer"},"c":{"type":"integer"}},"required":["b"]})",
       {R"({"b":1})", R"({"a":1,"b":1})", R"({"b":1,"c":1})", R"({"a":1,"b":1,"c":1})"},
       {"{}", R"({"a":1})", R"({"a":1,"c":1})", R"({"c":1})"}},
      {R"({"type":"object","properties":{}})", {"{}", "{ }"}, {R"({"a":1})"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"boolean"}})",
       {"{}", R"({"a":1})", R"({"b":true})", R"({"a":1,"b":true,"":false})", R"({"aa":true})",
        R"({"\n":true,"\u0001":true})"},
       {R"({"a":true})", R"({"b":1})", R"({"b":true,"a":1})", R"({"a":1,"a":true})", R"({"\u0061":true})",
        R"({"b":true,})"}},
      {R"({"type":"object","properties":{"a":{},"é\"":{}},"required":["a"],"additionalProperties":true})",
       {R"({"a":1,"z":[]})", R"({"a":1,"é\"":1,"é":2})", R"({"a":1,"è":2})"},
       {R"({"z":1})", R"({"a":1,"é\"":1,"é\"":2})"}},
      {R"({"type":"object","additionalProperties":{"type":"integer"}})",
       {"{}", R"({"x":1,"y":2})"},
       {R"({"x":"1"})"}},
      {R"({"type":"object","additionalProperties":false})", {"{}"}, {R"({"x":1})"}},
      {R"({"type":"object","required":["k"]})", {R"({"k":1})", R"({"k":[1]})"}, {"{}"}},
      {R"({"type":"object","properties":{"a":false,"b":{"type":"integer"}},"additionalProperties":{"type":"integer"}})",
       {R"({"b":1})", R"({"c":1})"},
       {R"({"a":1})"}},
      {R"({"type":"object","additionalProperties":{},"minProperties":1,"maxProperties":2})",
       {R"({"a":1})", R"({"a":1,"b":2})"},
       {"{}", R"({"a":1,"b":2,"c":3})"}},
  });
}

TEST_CASE("GRAM-07 Names and values in any script, raw or escaped in the schema") {
  check({
      {R"({"properties":{"schl\u00fcssel":{"enum":["\u65e5\u672c","größe"]}},"required":["schlüssel"]})",
       {R"({"schlüssel": "日本"})", R"({"schlüssel": "größe"})"},
       {R"({"schlussel": "日本"})", R"({"schlüssel": "日"})"}},
      {R"({"const":"\ud83c\udf89 \"q\" \\ \n"})", {R"("🎉 \"q\" \\ \n")"}, {R"("🎉")"}},
  });
}

TEST_CASE("Arrays") {
  check({
      {R"({"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":3})",
       {"[1,2]", "[1, 2 ,3]"},
       {"[]", "[1]", "[1,2,3,4]", "[1,\"2\"]"}},
      {R"({"items":{"type":"integer"}})", {"[]", "[1]", "[1,2,3,4,5,6]"}, {"[1,]"}},
      {R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}]})",
       {"[]", "[1]", R"([1,"a"])", R"([1,"a",null,{}])"},
       {R"(["a"])", "[1,2]"}},
      {R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":false,"minItems":1})",
       {"[1]", R"([1,"a"])"},
       {"[]", R"([1,"a",2])"}},
      {R"({"type":"array","items":[{"type":"integer"}],"additionalItems":{"type":"null"},"minItems":2})",
       {"[1,null]", "[1,null,null]"},
       {"[1]", "[1,2]"}},
      {R"({"type":"array","maxItems":0})", {"[]", "[ ]"}, {"[1]"}},
  });
}

TEST_CASE("enum and const") {
  check({
      {R"({"enum":["a",1,2.5,null,true,[1,{"k":"v"}]]})",
       {"\"a\"", "1", "2.5", "null", "true", R"([1,{"k":"v"}])", R"([1, { "k" : "v" }])"},
       {"\"b\"", "2", "[1]"}},
      {R"({"type":"string","enum":["a",1]})", {"\"a\""}, {"1"}},
      {R"({"type":"integer","enum":[1,2.5,3],"minimum":2})", {"3"}, {"1", "2.5"}},
      {R"({"enum":["abc","a"],"maxLength":2})", {"\"a\""}, {"\"abc\""}},
      {R"({"const":{}})", {"{}", "{ }"}, {"[]"}},
      {R"({"const":[]})", {"[]"}, {"{}"}},
  });
}

TEST_CASE("Unions and intersections") {
  check({
      {R"({"anyOf":[{"type":"integer"},{"type":"string","maxLength":1}]})",
       {"12", "\"a\""},
       {"\"ab\"", "null"}},
      {R"({"oneOf":[{"const":"x"},{"type":"null"}]})", {"\"x\"", "null"}, {"1"}},
      {R"({"type":"object","properties":{"k":{"type":"string"}},"required":["k"],"anyOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"b":{"type":"null"}},"required":["b"]}]})",
       {R"({"k":"","a":1})", R"({"k":"","b":null})"},
       {R"({"k":""})", R"({"k":"","a":null})", R"({"a":1})"}},
      {R"({"allOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"b":{"type":"integer"},"a":{"minimum":5}}}]})",
       {R"({"a":5})", R"({"a":7,"b":1})"},
       {R"({"a":4})", R"({"b":1})"}},
      {R"({"allOf":[{"type":["integer","null"]},{"type":["number","string"]},{"maximum":3}]})",
       {"3", "-5"},
       {"4", "null", "1.5"}},
      {R"({"allOf":[{"enum":[1,2,3]},{"enum":[2,3,4]},{"const":3}]})", {"3"}, {"2", "1"}},
      {R"({"$defs":{"b":{"properties":{"id":{"type":"integer"}},"required":["id"]}},"$ref":"#/$defs/b","properties":{"n":{"type":"null"}}})",
       {R"({"id":1})", R"({"id":1,"n":null})"},
       {R"({"n":null})"}},
      {R"({"anyOf":[false,{"type":"null"}]})", {"null"}, {"1"}},
      {R"({"allOf":[{"anyOf":[{"type":"integer"},{"type":"string"}]},{"anyOf":[{"minimum":3,"type":"integer"},{"type":"null"}]}]})",
       {"3"},
       {"2", "\"a\"", "null"}},
  });
}

TEST_CASE("GRAM-05 References") {
  check({
      {R"({"$defs":{"n":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}},"required":["v","next"]}},"$ref":"#/$defs/n"})",
       {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":{"v":3,"next":null}}})"},
       {R"({"v":1,"next":{}})"}},
      {R"({"properties":{"kids":{"type":"array","items":{"$ref":"#"}}},"required":["kids"]})",
       {R"({"kids":[]})", R"({"kids":[{"kids":[]},{"kids":[{"kids":[]}]}]})"},
       {R"({"kids":[1]})"}},
      {R"({"properties":{"a":{"type":"integer","maximum":9},"b":{"$ref":"#/properties/a"}},"required":["b"]})",
       {R"({"b":5})"},
       {R"({"b":10})"}},
      {R"({"$defs":{"x/y~z %":{"const":1}},"anyOf":[{"$ref":"#/$defs/x~1y~0z%20%25"},{"$ref":"#/$defs/list/1"}],"$defs2":0})",
       {},
       {}},
      {R"({"list":[{"const":1},{"const":2}],"$ref":"#/list/1"})", {"2"}, {"1"}},
      {R"({"$defs":{"x/y~z %":{"const":1}},"$ref":"#/$defs/x~1y~0z%20%25"})", {"1"}, {"2"}},
      {R"({"$defs":{"t":{"allOf":[{"properties":{"k":{"type":"array","items":{"$ref":"#/$defs/t"}}}},{"properties":{"v":{"type":"integer"}}}]}},"$ref":"#/$defs/t"})",
       {R"({"k":[{"v":1},{"k":[]}],"v":2})"},
       {R"({"k":[1]})"}},
  });
  CHECK(contains(refusal(schema(R"({"$ref":"#"})")), "refers to itself"));
  CHECK(contains(
      refusal(schema(R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}})")),
      "refers to itself"));
  CHECK(contains(refusal(schema(R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})")), "refers to itself"));
  CHECK(contains(refusal(schema(R"({"allOf":[{"$ref":"#"}]})")), "lead back to themselves"));
  CHECK(contains(refusal(schema(R"({"properties":{"a":{"$ref":"#"}},"required":["a"]})")), "no finite text"));
  CHECK(contains(refusal(schema(R"({"properties":{"a":{"$ref":"#/$defs/missing"}}})")), "#/properties/a"));
  CHECK(contains(refusal(schema(R"({"$ref":"https://example.org/s.json"})")), "leaves the document"));
  CHECK(contains(refusal(schema(R"({"$ref":"other.json#/a"})")), "leaves the document"));
  CHECK(contains(refusal(schema(R"({"$ref":"#anchor"})")), "no JSON pointer"));
  CHECK(contains(refusal(schema(R"({"$ref":"#/a%2"})")), "hexadecimal"));
  CHECK(contains(refusal(schema(R"({"$ref":7,"type":"null"})")), "'$ref' is no string"));
}

TEST_CASE("Numbers between bounds") {
  const auto integers = [](int64_t low, int64_t high) {
    const auto s = schema(format(R"({"type":"integer","minimum":%ld,"maximum":%ld})", static_cast<long>(low),
                                 static_cast<long>(high)));
    CAPTURE(low);
    CAPTURE(high);
    for (int64_t n = -1100; n <= 1100; ++n) REQUIRE(matches(s, std::to_string(n)) == (low <= n && n <= high));
  };
  integers(0, 9);
  integers(5, 123);
  integers(-17, 305);
  integers(-999, -10);
  integers(100, 999);
  integers(7, 7);
  integers(99, 1001);
  check({
      {R"({"type":"integer","exclusiveMinimum":3,"exclusiveMaximum":6})", {"4", "5"}, {"3", "6"}},
      {R"({"type":"integer","minimum":1.5,"maximum":3.5})", {"2", "3"}, {"1", "4"}},
      {R"({"type":"integer","minimum":100})", {"100", "12345678901234567890"}, {"99", "0100", "-100"}},
      {R"({"type":"integer","maximum":-3})", {"-3", "-100"}, {"-2", "0", "3"}},
      {R"({"type":"integer","minimum":3,"exclusiveMinimum":true})", {"4"}, {"3"}},
      {R"({"type":"number","minimum":0,"maximum":1})",
       {"0", "0.5", "1", "1.0", "0.0"},
       {"1.01", "-0.1", "2", "1e0"}},
      {R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":2})",
       {"0.001", "1", "1.999"},
       {"0", "0.0", "2", "2.0"}},
      {R"({"type":"number","minimum":-2,"maximum":3})",
       {"-2", "-2.0", "-1.5", "-0.25", "0", "2.9", "3.00"},
       {"-2.1", "3.1", "-0"}},
      {R"({"type":"number","maximum":-1})", {"-1", "-1.5", "-20"}, {"-0.5", "0", "1"}},
      {R"({"type":"integer","multipleOf":1})", {"3"}, {"1.5"}},
  });
}

TEST_CASE("Strings with bounds count characters") {
  check({
      {R"({"type":"string","minLength":2,"maxLength":3})",
       {R"("ab")", R"("日本語")", R"("🎉🎉")", R"("\u00e9\n")", R"("\ud83c\udf89a")"},
       {R"("a")", R"("abcd")", R"("🎉")", R"("\ud83c\udf89")"}},
      {R"({"type":"string","maxLength":0})", {R"("")"}, {R"("a")"}},
      {R"({"type":"string","pattern":"b+"})", {R"("b")", R"("abbc")", R"("\n\"b")"}, {R"("ac")", R"("")"}},
      {R"({"type":"string","pattern":"^a\\.b$"})", {R"("a.b")"}, {R"("axb")", R"("xa.b")"}},
      {R"({"type":"string","pattern":"^a|b$"})", {R"("ax")", R"("xb")"}, {R"("xa")", R"("bx")"}},
      {R"({"type":"string","pattern":"^[\"\\\\\\n]+$"})", {R"("\"\\\n")"}, {R"("x")", "\"\n\""}},
      {R"({"type":"string","format":"date"})",
       {R"("2024-02-29")", R"("1999-12-31")"},
       {R"("2024-02-30")", R"("2024-13-01")", R"("24-01-01")"}},
      {R"({"type":"string","format":"time"})",
       {R"("12:30:00Z")", R"("23:59:60.5+02:00")"},
       {R"("24:00:00Z")", R"("12:30")"}},
      {R"({"type":"string","format":"date-time"})", {R"("2024-01-31T00:00:00Z")"}, {R"("2024-01-31")"}},
      {R"({"type":"string","format":"uuid"})",
       {R"("123e4567-e89b-12d3-a456-426614174000")"},
       {R"("123e4567")"}},
      {R"({"type":"string","format":"ipv4"})",
       {R"("255.0.10.1")"},
       {R"("256.0.0.1")", R"("1.2.3")", R"("01.2.3.4")"}},
      {R"({"type":"string","format":"ipv6"})",
       {R"("::")", R"("::1")", R"("2001:db8::8a2e:370:7334")", R"("1:2:3:4:5:6:7:8")", R"("::ffff:1.2.3.4")"},
       {R"("1:2:3")", R"("1::2::3")", R"("12345::")"}},
      {R"({"type":"string","format":"email"})",
       {R"("a.b+c@example.org")"},
       {R"("a@")", R"("@b")", R"("a b@c")"}},
      {R"({"type":"string","format":"hostname"})", {R"("a-b.example")"}, {R"("-a")", R"("a..b")"}},
      {R"({"type":"string","format":"duration"})", {R"("P1DT2H")", R"("PT5M")"}, {R"("P")", R"("1D")"}},
      {R"({"type":"string","format":"uri"})",
       {R"("https://example.org/a?b=c#d")", R"("urn:isbn:1")"},
       {R"("no scheme")", R"("a:%zz")"}},
  });
  std::vector<std::string> warnings;
  CHECK(taken(*byte_compiler().make(schema(R"({"type":"string","format":"color-of-the-day"})"), &warnings),
              "\"any\"") == 5);
  REQUIRE(warnings.size() == 1);
  CHECK(contains(warnings[0], "'color-of-the-day' is not enforced"));
}

TEST_CASE("GRAM-09 What cannot be enforced is refused with its name and place") {
  for (const char* keyword :
       {"not", "if", "then", "else", "contains", "minContains", "maxContains", "dependentSchemas",
        "dependentRequired", "dependencies", "unevaluatedProperties", "unevaluatedItems", "propertyNames",
        "patternProperties", "$dynamicRef", "uniqueItems", "multipleOf"}) {
    const auto s =
        schema(format(R"({"properties":{"a":{"type":["array","number","object"],"%s":{"x":2}}}})", keyword));
    CHECK_MESSAGE(contains(refusal(s), "'#/properties/a/" + std::string(keyword) + "'"), refusal(s));
    CHECK(contains(refusal(s), "'" + std::string(keyword) + "' is not supported"));
  }
  struct Refused {
    const char* schema;
    const char* message;
  };
  for (const Refused& row : std::vector<Refused>{
           {R"({"type":"string","pattern":"a","minLength":2})", "'pattern' together with"},
           {R"({"type":"string","format":"date","maxLength":2})", "'format' together with"},
           {R"-({"type":"string","pattern":"(?=a)"})-", "lookaround"},
           {R"({"type":"string","pattern":5})", "no string"},
           {R"({"enum":["a"],"pattern":"a"})", "beside 'enum'"},
           {R"({"enum":[]})", "no list of values"},
           {R"({"type":"integer","enum":["a"]})", "none of the values"},
           {R"({"type":"number","minimum":0.5})", "'#/minimum'"},
           {R"({"type":"number","minimum":1e300})", "below 1e15"},
           {R"({"type":"integer","minimum":5,"maximum":4})", "no number lies"},
           {R"({"type":"integer","minimum":"5"})", "no number"},
           {R"({"type":"array","minItems":3,"maxItems":2})", "less than"},
           {R"({"type":"array","minItems":-1})", "natural number"},
           {R"({"type":"array","minItems":1.5})", "natural number"},
           {R"({"type":"array","prefixItems":[{}],"items":false,"minItems":2})", "long enough"},
           {R"({"type":"text"})", "unknown type"},
           {R"({"type":[]})", "empty"},
           {R"({"properties":[]})", "no object"},
           {R"({"required":"a"})", "no list of names"},
           {R"({"properties":{"a":{}},"required":["b"],"additionalProperties":false})", "'b' is required"},
           {R"({"properties":{"a":false},"required":["a"]})", "fits no value"},
           {R"({"properties":{"a":{}},"minProperties":1})", "'minProperties'"},
           {R"({"properties":{"a":{},"b":{}},"maxProperties":1})", "'maxProperties'"},
           {R"({"anyOf":[]})", "no list of schemas"},
           {R"({"allOf":[{"type":"string"},{"type":"null"}]})", "fit no common value"},
           {R"({"allOf":[{"pattern":"a"},{"pattern":"b"}]})", "'pattern'"},
           {R"(false)", "fits no value"},
           {R"([])", "neither an object nor a boolean"},
           {R"(5)", "neither an object nor a boolean"},
           {R"({"properties":{"a":7}})", "'#/properties/a'"},
           {R"({"type":)", "no valid JSON"},
           {"", "no valid JSON"},
           {"{\"const\":\"\xff\"}", "JSON"},
       }) {
    CHECK_MESSAGE(contains(refusal(schema(row.schema)), row.message),
                  row.schema << ": " << refusal(schema(row.schema)));
  }
}

TEST_CASE("GRAM-02 White space is bounded, ordinary indentation is allowed") {
  const auto s =
      schema(R"({"properties":{"a":{"type":"array","items":{"type":"integer"}}},"required":["a"]})");
  CHECK(matches(s, "{\n    \"a\": [\n        1,\n        2\n    ]\n}"));
  CHECK(matches(s, "{\n\t\"a\": [\n\t\t1\n\t]\n}"));
  CHECK(matches(s, "{\"a\":[1]}"));
  CHECK_FALSE(begins(s, "{  "));
  CHECK_FALSE(begins(s, "{\n\n\n"));
  CHECK(begins(s, "{\n" + std::string(40, ' ')));
  CHECK_FALSE(begins(s, "{\n" + std::string(41, ' ')));
  CHECK_FALSE(begins(s, " {"));
  CHECK_FALSE(begins(s, "{\"a\":[1]} "));
  // A model that takes a blank whenever it may.
  const auto constraint = byte_compiler().make(s);
  std::string text;
  while (!constraint->must_end() && text.size() < 2000) {
    for (const char byte : {' ', '\n', '\t', '1', ']', '}', '"', 'a', ':', '[', '{'}) {
      if (taken(*constraint, std::string_view(&byte, 1)) == 1) {
        text += byte;
        break;
      }
    }
    if (std::count(text.begin(), text.end(), '1') > 2)
      constraint->rollback(1), text.pop_back(), taken(*constraint, "]"), text += ']';
  }
  CHECK(constraint->must_end());
}

TEST_CASE("json_object") {
  ConstraintSpec s;
  s.kind = ConstraintSpec::Kind::JsonObject;
  CHECK(matches(s, R"({"a": [1, {"b": "\u00e9"}], "c": -1.5e+3})"));
  CHECK_FALSE(begins(s, "["));
  CHECK_FALSE(begins(s, "1"));
  CHECK_FALSE(begins(s, R"({"a": tru}e)"));
}

TEST_CASE("GRAM-04 GRAM-06 Hostile schemas are answered at once") {
  const auto quick = [](const std::string& text, const char* message) {
    const auto start = std::chrono::steady_clock::now();
    const std::string refused = refusal(schema(text));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    CHECK(took.count() < 1);
    CHECK_MESSAGE(contains(refused, message), refused);
  };
  const auto nested = [](int depth) {
    std::string text;
    for (int i = 0; i < depth; ++i) text += R"({"properties":{"a":)";
    text += "{}";
    for (int i = 0; i < depth; ++i) text += "}}";
    return text;
  };
  quick(nested(60000), "allowed");
  quick(nested(40000), "deeper");
  quick(nested(300), "deeper than the 256");
  quick(nested(200), "");
  CHECK(refusal(schema(nested(200))).empty());
  std::string arrays, items;
  for (int i = 0; i < 60000; ++i) items += R"({"items":)";
  quick(items, "deeper");
  quick(std::string(60000, '['), "deeper");
  quick(R"({"type":"string","maxLength":1000000})", "allowed are 2000");
  quick(R"({"type":"string","minLength":1e30})", "allowed are 2000");
  quick(R"({"type":"array","maxItems":5000})", "allowed are 2000");
  quick(R"({"type":"string","maxLength":2000})", "");
  quick(R"({"items":{"items":{"type":"string","maxLength":2000},"maxItems":2000},"maxItems":2000})", "");
  quick(R"({"type":"string","pattern":"^(a{1000}){1000}$"})", "400000 automaton states");
  quick("{\"const\":\"" + std::string(2 << 20, 'a') + "\"}", "bytes");
  std::string wide = R"({"properties":{)";
  for (int i = 0; i < 3000; ++i)
    wide += (i ? ",\"p" : "\"p") + std::to_string(i) + "\":{\"type\":\"integer\"}";
  quick(wide + "}}", "");
  CHECK(matches(schema(wide + "}}"), R"({"p7":1,"p2999":2})"));
  CHECK_FALSE(begins(schema(wide + "}}"), R"({"p7":1,"p6")"));
  std::string branches = R"({"allOf":[)";
  for (int i = 0; i < 20; ++i)
    branches += std::string(i ? "," : "") + R"({"anyOf":[{"type":"null"},{"type":"integer"}]})";
  quick(branches + "]}", "");
}

}  // namespace

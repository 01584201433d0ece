// Every dialect against tests/fixtures/tool_calls (tools/make_tool_call_fixtures.py), whole, by tokens and in
// pieces.
#include <doctest/doctest.h>

#include <filesystem>
#include <random>
#include <set>

#include "base/json.h"
#include "serve/tools/tool_dialects.h"
#include "token_cuts.h"

using namespace vllm;

namespace {

struct Call {
  std::string id, name, arguments;
};

struct Result {
  std::string content;
  std::vector<Call> calls;
};

void add(const ToolDelta& delta, Result* result) {
  result->content += delta.content;
  for (const ToolCallDelta& call : delta.calls) {
    const auto index = static_cast<size_t>(call.index);
    REQUIRE(index <= result->calls.size());
    if (index == result->calls.size()) {
      REQUIRE_FALSE(call.name.empty());
      REQUIRE_FALSE(call.id.empty());
      result->calls.push_back({call.id, call.name, ""});
    } else {
      REQUIRE(index + 1 == result->calls.size());
      CHECK(call.name.empty());
      CHECK(call.id.empty());
    }
    result->calls[index].arguments += call.arguments;
  }
}

Result parse(const ToolDialect& dialect, const Json& tools, std::string_view text,
             const std::vector<size_t>& pieces) {
  const auto parser = make_tool_parser(dialect, tools);
  Result result;
  for (const size_t piece : pieces) {
    const ToolDelta delta = parser->feed(text.substr(0, piece));
    // Whole characters only: what is valid as a whole is valid in every piece.
    CHECK_NOTHROW(Json(delta.content).dump());
    add(delta, &result);
    text.remove_prefix(piece);
  }
  REQUIRE(text.empty());
  add(parser->finish(), &result);
  return result;
}

std::vector<size_t> pieces_of(size_t size, size_t piece) {
  std::vector<size_t> pieces(size / piece, piece);
  if (size % piece) pieces.push_back(size % piece);
  return pieces;
}

std::string show(const Result& result) {
  Json calls = Json::array();
  for (const Call& call : result.calls) calls.push_back(call.name + " " + call.arguments);
  return dump_json(Json{{"content", result.content}, {"calls", calls}});
}

void check_whole(const Result& result, const Json& one) {
  CHECK(result.content == one["content"].get<std::string>());
  Json calls = Json::array();
  std::set<std::string> ids;
  for (const Call& call : result.calls) {
    const Json arguments = parse_json(call.arguments, "arguments", Status::Runtime);
    calls.push_back(Json{{"name", call.name}, {"arguments", arguments}});
    CHECK(ids.insert(call.id).second);
  }
  CHECK(dump_json(calls) == dump_json(one["calls"]));
}

/// A call whose text ends within a value: it may be there as far as it was complete, never with that value.
void check_cut(const Result& result, const Json& one) {
  const Json& cut = one["cut"];
  CHECK(result.calls.size() <= 1);
  if (result.calls.empty() && !result.content.empty()) {
    CHECK(result.content == one["content"].get<std::string>());
  }
  for (const Call& call : result.calls) {
    CHECK(result.content.empty());
    CHECK(call.name == cut["name"].get<std::string>());
    CHECK(call.arguments.find(cut["half"].get<std::string>()) == std::string::npos);
    const Json arguments = Json::parse(call.arguments, nullptr, false);
    if (!arguments.is_object()) continue;
    for (const auto& [key, value] : arguments.items()) CHECK(cut["complete"].value(key, Json()) == value);
  }
}

Json load(const std::filesystem::path& path) {
  return parse_json(read_file(path), path.c_str(), Status::Runtime);
}

}  // namespace

TEST_CASE(
    "TOOL-01 TOOL-02 TOOL-03 TOOL-04 TOOL-05 TOOL-07 TOOL-08 RPC-08 RPC-09 every dialect reads its texts, "
    "cut anywhere") {
  std::set<std::string> covered;
  std::mt19937 random(7);
  for (const auto& entry : std::filesystem::directory_iterator(FIXTURES "/tool_calls")) {
    const Json fixture = load(entry.path());
    const std::string name = fixture["dialect"];
    covered.insert(name);
    const ToolDialect& dialect = find_tool_dialect(name);
    const Json& tools = fixture["tools"];
    CHECK(fixture["cases"].size() >= 12);
    const auto markers = fixture["markers"].get<std::vector<std::string>>();
    const TokenCuts token_cuts(markers);
    for (const std::string& marker : markers) CHECK(token_cuts.is_one_token(marker));
    for (const Json& one : fixture["cases"]) {
      const std::string text = one["text"];
      CAPTURE(name);
      CAPTURE(one["name"].get<std::string>());
      CAPTURE(text);
      const Result whole = parse(dialect, tools, text, {text.size()});
      if (one.contains("cut")) {
        check_cut(whole, one);
      } else {
        check_whole(whole, one);
      }

      std::vector<std::vector<size_t>> cuts = {token_cuts(text)};
      for (const size_t piece : {1, 2, 3, 7}) cuts.push_back(pieces_of(text.size(), piece));
      for (int i = 0; i < 6; ++i) {
        std::vector<size_t> cut;
        for (size_t left = text.size(); left > 0;) {
          cut.push_back(std::min<size_t>(left, 1 + random() % (i < 3 ? 12 : 60)));
          left -= cut.back();
        }
        cuts.push_back(cut);
      }
      const std::string expected = show(whole);
      for (const auto& cut : cuts) CHECK(show(parse(dialect, tools, text, cut)) == expected);
    }
  }
  for (const std::string& name : tool_dialect_names()) {
    CHECK(covered.contains(std::string(tool_dialect_name(find_tool_dialect(name)))));
  }
}

TEST_CASE("TOOL-07 values are typed by the schema as vllm types them") {
  const Json fixture = load(FIXTURES "/tool_calls/qwen3_coder.json");
  REQUIRE(fixture["coercions"].size() > 800);
  for (const Json& one : fixture["coercions"]) {
    Json tools =
        Json::parse(R"([{"type":"function","function":{"name":"f","parameters":{"properties":{}}}}])");
    tools[0]["function"]["parameters"]["properties"]["p"] = one["schema"];
    const std::string text = one["text"];
    CAPTURE(one["schema"].dump());
    CAPTURE(text);
    const std::string wire = "<function=f>\n<parameter=p>\n" + text + "\n</parameter>\n</function>";
    const Result result = parse(find_tool_dialect("qwen3_coder"), tools, wire, {wire.size()});
    REQUIRE(result.calls.size() == 1);
    CHECK(result.calls[0].arguments == "{\"p\": " + one["json"].get<std::string>() + "}");
  }
}

TEST_CASE("Python literals are read as Python reads them; an f-string without fields is a string") {
  const std::string plain = "[f(p=f'a{{b}}')]";
  REQUIRE(parse(find_tool_dialect("pythonic"), nullptr, plain, {plain.size()}).calls.size() == 1);
  CHECK(parse(find_tool_dialect("pythonic"), nullptr, plain, {plain.size()}).calls[0].arguments ==
        "{\"p\": \"a{b}\"}");

  const Json fixture = load(FIXTURES "/tool_calls/pythonic.json");
  REQUIRE(fixture["literals"].size() > 50);
  for (const Json& one : fixture["literals"]) {
    const std::string text = one["text"];
    CAPTURE(text);
    const std::string wire = "[f(p=" + text + ")]";
    const Result result = parse(find_tool_dialect("pythonic"), nullptr, wire, {wire.size()});
    if (one["json"].is_null()) {
      CHECK(result.calls.empty());
      CHECK(result.content == wire);
    } else {
      CHECK(result.calls.size() == 1);
      if (!result.calls.empty())
        CHECK(result.calls[0].arguments == "{\"p\": " + one["json"].get<std::string>() + "}");
    }
  }
}

TEST_CASE("TOOL-07 text that a schema allows besides an object stays text") {
  const Json tools = Json::parse(R"([{"function":{"name":"f","parameters":{"properties":
      {"p":{"oneOf":[{"type":"object"},{"type":"string"}]}}}}}])");
  const auto value = [&](const std::string& text) {
    const std::string wire = "<function=f><parameter=p>" + text + "</parameter></function>";
    return parse(find_tool_dialect("qwen3_coder"), tools, wire, {wire.size()}).calls.at(0).arguments;
  };
  CHECK(value("{\"a\":1}") == "{\"p\": {\"a\": 1}}");
  for (const char* text : {"null", "5", "true", "[1]", "{oops"}) {
    CHECK(value(text) == "{\"p\": \"" + std::string(text) + "\"}");
  }
}

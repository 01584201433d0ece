// What jinja2 makes of the same templates, byte for byte (tools/make_jinja_fixtures.py).
#include <doctest/doctest.h>

#include <fstream>
#include <sstream>

#include "base/json.h"
#include "jinja_clock.h"
#include "serve/jinja/template.h"

using namespace vllm;

namespace {

Json load(const std::string& name) {
  std::ifstream file(FIXTURES "/jinja/" + name + ".json");
  std::stringstream text;
  text << file.rdbuf();
  return parse_json(text.str(), name.c_str(), Status::Runtime);
}

Json render(const std::string& source, const Json& context) {
  try {
    return {{"text", jinja::Template::parse(source)->render(context, fixture_clock())}};
  } catch (const Error& error) {
    CHECK(error.status() == Status::InvalidArgument);
    const std::string& message = error.message();
    const bool placed = message.starts_with("Chat template at ") && message.ends_with(".");
    return {{placed ? "error" : "raised", message}};
  }
}

/// `wanted` holds "text", the bare text "raised", or "error" with the type of Python's error.
void check(const std::string& source, const Json& context, const Json& wanted) {
  CAPTURE(source);
  const Json got = render(source, context);
  CAPTURE(dump_json(got));
  CAPTURE(dump_json(wanted));
  if (wanted.contains("error")) {
    CHECK(got.contains("error"));
  } else {
    const char* key = wanted.contains("raised") ? "raised" : "text";
    REQUIRE(got.contains(key));
    CHECK(got[key] == wanted[key]);
  }
}

}  // namespace

TEST_CASE("TPL-01 expressions print as in jinja2") {
  const Json fixture = load("expressions");
  CHECK(fixture["cases"].size() > 700);
  for (const Json& row : fixture["cases"]) {
    check("{{ " + row["expression"].get<std::string>() + " }}", fixture["context"], row);
  }
}

TEST_CASE("TPL-01 templates render as in jinja2") {
  const Json fixture = load("templates");
  CHECK(fixture.size() > 100);
  for (const Json& row : fixture) {
    for (const Json& one : row["cases"]) check(row["template"], one["context"], one);
  }
}

TEST_CASE("TPL-01 whole chat templates of many manners render conversations as in jinja2") {
  const Json fixture = load("chats");
  const Json& contexts = fixture["contexts"];
  CHECK(contexts.size() >= 6);
  CHECK(fixture["cases"].size() >= 8);
  for (const Json& row : fixture["cases"]) {
    REQUIRE(row["results"].size() == contexts.size());
    for (size_t i = 0; i < contexts.size(); ++i) check(row["template"], contexts[i], row["results"][i]);
  }
}

TEST_CASE("TPL-01 real templates render conversations as in jinja2") {
  for (const char* name : {"qwen3", "smollm2"}) {
    const Json fixture = load(name);
    CHECK(fixture["cases"].size() > 40);
    CHECK_FALSE(jinja::Template::parse(fixture["template"])->iterates_content());
    for (const Json& one : fixture["cases"]) check(fixture["template"], one["context"], one);
  }
}

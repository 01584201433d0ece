#include <doctest/doctest.h>

#include <chrono>
#include <thread>

#include "base/json.h"
#include "serve/jinja/template.h"

using namespace vllm;
using jinja::Template;

namespace {

std::string error_of(const std::string& source, const Json& variables = Json::object()) {
  try {
    return "rendered: " + Template::parse(source)->render(variables);
  } catch (const Error& error) {
    CHECK(error.status() == Status::InvalidArgument);
    return error.message();
  }
}

std::string render(const std::string& source, const Json& variables = Json::object()) {
  return Template::parse(source)->render(variables);
}

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

/// Refused soon (a second; sanitizers take more), with `part` in the message.
void check_refused(const char* part, const std::string& source, const Json& variables = Json::object()) {
  CAPTURE(part);
  CAPTURE(source.substr(0, 200));
  const auto start = std::chrono::steady_clock::now();
  const std::string message = error_of(source, variables).substr(0, 300);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  CAPTURE(message);
  CHECK(message.find(part) != std::string::npos);
  CHECK(message.find("rendered") == std::string::npos);
  CAPTURE(took.count());
  CHECK(took.count() < 20);
}

}  // namespace

TEST_CASE("faults name line and column") {
  CHECK(error_of("a\n\n  é {{ x.y }}") == "Chat template at 3:9: 'x' is undefined.");
  CHECK(error_of("{{ d.a.b }}", {{"d", Json::object()}}) ==
        "Chat template at 1:7: 'dict object' has no attribute 'a'.");
  CHECK(error_of("{{ l[3].b }}", {{"l", {1}}}) == "Chat template at 1:8: list object has no element 3.");
  CHECK(error_of("line\n{% if x %}") ==
        "Chat template at 2:11: the template ends, but 'endif' is still missing.");
  CHECK(error_of("{% for x in y %}\n{% endif %}") == "Chat template at 2:4: unknown tag 'endif'.");
  CHECK(error_of("{{ 1 | nope }}") == "Chat template at 1:8: no filter is named 'nope'.");
  CHECK(error_of("{{ 'abc }}") == "Chat template at 1:4: the string has no end.");
  CHECK(error_of("{% include 'x' %}") ==
        "Chat template at 1:4: the tag 'include' is not supported: a chat template stands alone.");
  CHECK(error_of("{{ none + 1 }}") == "Chat template at 1:9: '+' is not possible between NoneType and int.");
  CHECK(error_of("{{ f() }}{% macro f() %}{% endmacro %}") == "Chat template at 1:5: 'f' is undefined.");
}

TEST_CASE("TPL-04 the text of raise_exception stands alone") {
  CHECK(error_of("{{ raise_exception('Roles must alternate') }}") == "Roles must alternate");
  const auto tree = Template::parse("{% if bad %}{{ raise_exception('no') }}{% endif %}ok");
  CHECK_THROWS_AS(tree->render({{"bad", true}}), Error);
  CHECK(tree->render(Json::object()) == "ok");
}

TEST_CASE("TPL-07 a variable that nobody sets is undefined, and false is no text") {
  const auto tree = Template::parse(
      "{{ enable_thinking is undefined }} {{ enable_thinking is false }} {{ 'on' if enable_thinking else "
      "'off' }}");
  CHECK(tree->render(Json::object()) == "True False off");
  CHECK(tree->render({{"enable_thinking", false}}) == "False True off");
  CHECK(tree->render({{"enable_thinking", "false"}}) == "False False on");
}

TEST_CASE("tojson keeps the order of keys and the letters") {
  const Json tool =
      parse_json(R"({"z": 1, "a": {"y": "Ü", "b": [1.0, 2]}, "m": null})", "tool", Status::Runtime);
  CHECK(render("{{ tool | tojson }}", {{"tool", tool}}) ==
        R"({"z": 1, "a": {"y": "Ü", "b": [1.0, 2]}, "m": null})");
}

TEST_CASE("the source is kept, words in it are found whole") {
  const std::string source = "{% if role == 'developer' %}\r\n{{ tools_in_user }}{% endif %}\n";
  const auto tree = Template::parse(source);
  CHECK(tree->source() == source);
  CHECK(tree->mentions("developer"));
  CHECK(tree->mentions("tools_in_user"));
  CHECK_FALSE(tree->mentions("tools"));
  CHECK_FALSE(tree->mentions("user"));
  CHECK_FALSE(tree->mentions("system"));
  CHECK_FALSE(tree->mentions(""));
}

TEST_CASE("a template that walks the parts of the content says so") {
  const auto walks = [](const std::string& source) { return Template::parse(source)->iterates_content(); };
  const std::string loop = "{% for message in messages %}";
  CHECK(walks(loop + "{% for p in message.content %}{% endfor %}{% endfor %}"));
  CHECK(walks(loop + "{% for p in message['content'] %}{% endfor %}{% endfor %}"));
  CHECK(walks(loop + "{% set c = message.content %}{% for p in c %}{% endfor %}{% endfor %}"));
  CHECK(walks(
      loop +
      "{% for p in message.content | selectattr('type', 'equalto', 'text') %}{% endfor %}{% endfor %}"));
  CHECK(walks("{% macro show(c) %}{% for p in c %}{% endfor %}{% endmacro %}" + loop +
              "{{ show(message.content) }}{% endfor %}"));
  CHECK(walks("{% macro show(c, n=0) %}{% for p in c %}{% endfor %}{% endmacro %}" + loop +
              "{{ show(n=1, c=message.content) }}{% endfor %}"));
  CHECK(walks("{% macro show(m) %}{% for p in m.content %}{% endfor %}{% endmacro %}" + loop +
              "{{ show(message) }}{% endfor %}"));
  CHECK(walks(
      "{% set rest = messages[1:] %}{% for m in rest %}{% for p in m.content %}{% endfor %}{% endfor %}"));
  CHECK_FALSE(walks(loop + "{{ message.content }}{% endfor %}"));
  CHECK_FALSE(walks(loop + "{% for t in message.tool_calls %}{% endfor %}{% endfor %}"));
  CHECK_FALSE(walks("{% for tool in tools %}{% for p in tool.content %}{% endfor %}{% endfor %}"));
  CHECK_FALSE(walks("no tags"));
}

TEST_CASE("threads share a template") {
  const auto tree = Template::parse(
      "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + m.v %}{% endfor %}{{ ns.n "
      "}}");
  std::vector<std::string> results(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Json messages = Json::array();
      for (int i = 0; i < 50; ++i) messages.push_back({{"v", t}});
      for (int i = 0; i < 20; ++i) results[t] = tree->render({{"messages", messages}});
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < 4; ++t) CHECK(results[t] == std::to_string(50 * t));
}

TEST_CASE("GRAM-04 source nested 60,000 deep is refused, ordinary nesting works") {
  const int deep = 60000;
  check_refused("nested", "{{ " + repeated("(", deep) + "1" + repeated(")", deep) + " }}");
  check_refused("nested", "{{ " + repeated("[", deep) + repeated("]", deep) + " }}");
  check_refused("nested", "{{ " + repeated("{1:", deep) + "1" + repeated("}", deep) + " }}");
  check_refused("nested", "{{ " + repeated("not ", deep) + "1 }}");
  check_refused("nested", "{{ " + repeated("-", deep) + "1 }}");
  check_refused("nested", "{{ " + repeated("1 + ", deep) + "1 }}");
  check_refused("nested", "{{ " + repeated("1 or ", deep) + "1 }}");
  check_refused("nested", "{{ x" + repeated(".a", deep) + " }}");
  check_refused("nested", "{{ x" + repeated("[0]", deep) + " }}");
  check_refused("nested", "{{ x" + repeated("()", deep) + " }}");
  check_refused("nested", "{{ x" + repeated("|e", deep) + " }}");
  check_refused("nested", "{{ x" + repeated(" is odd()", deep) + " }}");
  check_refused("nested", "{{ " + repeated("1 if 1 else ", deep) + "1 }}");
  check_refused("nested", "{{ 1" + repeated(" if 1", deep) + " }}");
  check_refused("nested", "{{ " + repeated("f(", deep) + repeated(")", deep) + " }}");
  check_refused("nested", repeated("{% if 1 %}", deep) + repeated("{% endif %}", deep));
  check_refused("nested", repeated("{% for x in y %}", deep) + repeated("{% endfor %}", deep));
  check_refused("nested", repeated("{% set x %}", deep));
  check_refused("nested", repeated("{% macro x() %}", deep));
  CHECK(render("{{ " + repeated("(", 90) + "1" + repeated(")", 90) + " }}") == "1");
  CHECK(render(repeated("{% if 1 %}", 100) + "x" + repeated("{% endif %}", 100)) == "x");
  CHECK(render("{{ " + repeated("1 + ", 500) + "1 }}") == "501");
  CHECK(render("{{ " + repeated("'a' ~ ", 5000) + "'b' }}").size() == 5001);
  CHECK(render("{% if x == 0 %}" + repeated("{% elif x == 1 %}", 5000) + "{% else %}e{% endif %}") == "e");
}

TEST_CASE("GRAM-04 data nested 60,000 deep is refused, ordinary nesting works") {
  Json value = 1;
  for (int i = 0; i < 60000; ++i) {
    Json outer = Json::array();
    outer.push_back(std::move(value));
    value = std::move(outer);
  }
  Json variables = Json::object();
  variables["x"] = std::move(value);
  check_refused("nested", "{{ x }}", variables);

  const Json ordinary = parse_json(repeated("[", 200) + repeated("]", 200), "x", Status::Runtime);
  CHECK(render("{{ x }}{{ x | tojson }}{{ x == x }}", {{"x", ordinary}}) ==
        repeated(repeated("[", 200) + repeated("]", 200), 2) + "True");
}

TEST_CASE("values that a template nests or ties to themselves are refused when they are walked") {
  const std::string build =
      "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}";
  CHECK(render(build + "ok") == "ok");
  for (const char* use : {"{{ ns.x }}", "{{ ns.x | tojson }}", "{{ ns.x == [ns.x] }}", "{{ ns.x < [ns.x] }}",
                          "{{ {(ns.x,): 1} }}"}) {
    const std::string message = error_of(build + use);
    CAPTURE(message);
    CHECK((message.find("nested too deeply") != std::string::npos ||
           message.find("key of a dict") != std::string::npos));
  }
  check_refused("nested too deeply", "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}");
  check_refused("nested too deeply", "{% set ns = namespace() %}{% set ns.l = [ns] %}{{ ns.l }}");
  const std::string tuples =
      "{% set ns = namespace(x=()) %}{% for i in range(90000) %}{% set ns.x = (ns.x,) %}{% endfor %}";
  for (const char* use :
       {"{{ {ns.x: 1} }}", "{{ {}[ns.x] }}", "{{ ns.x in {} }}", "{{ [ns.x] | unique | list }}"}) {
    check_refused("nested too deeply", tuples + use);
  }
  const std::string twins =
      "{% set ns = namespace(x=('a',)) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}";
  for (const char* use : {"{{ {ns.x: 1} }}", "{{ ns.x == (ns.x[0], ns.x[1]) }}", "{{ ns.x < ns.x }}"}) {
    check_refused("allowed", twins + use);
  }
}

TEST_CASE("loops, calls and texts without end are refused") {
  check_refused("nested too deeply", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}");
  check_refused("nested too deeply", "{% macro f(x=f()) %}{% endmacro %}{{ f() }}");
  check_refused("nested too deeply", "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}");
  check_refused("range gives more than", "{{ range(1000000000000) | list }}");
  check_refused("steps", "{% for a in range(90000) %}{% for b in 'xy' %}{% if a ** 2 % 7 == b %}{% endif %}" +
                             repeated("{% if a > b | length and [a] %}{% endif %}", 50) +
                             "{% endfor %}{% endfor %}");
  check_refused("allowed",
                "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}");
  check_refused("MiB", "{{ 'x' * 1000000000 }}");
  check_refused("a list has more", "{{ [1] * 1000000000 }}");
  check_refused(
      "allowed",
      "{% set ns = namespace(x='x') %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}");
  check_refused(
      "allowed",
      "{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}");
  check_refused("allowed",
                "{% set ns = namespace(x=['x' * 1000]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] "
                "%}{% endfor %}{{ ns.x }}");
  check_refused("allowed", "{% set x = 'x' * 1000000 %}{% for i in range(1000) %}{{ x }}{% endfor %}");
  check_refused(
      "allowed",
      "{% set x = 'x' * 1000000 %}{% for i in range(100000) %}{% if 'y' in x %}{% endif %}{% endfor %}");
  check_refused("allowed", "{% set x = 'x' * 10000 %}{{ x | replace('', x) }}");
  check_refused("allowed", "{% set x = ['x' * 10000] * 10000 %}{{ x | join }}");
  check_refused("allowed", "{{ 'x' | center(100000000000) }}");
  check_refused("allowed", "{{ '%1000000d' % 1 * 1000 }}");
  check_refused("large", "{{ '{:99999999999999999999}'.format(1) }}");
  check_refused("precision", "{{ '%.99999f' % 1 }}");
  check_refused("64 bits", "{{ 2 ** 100 }}");
  check_refused("64 bits", "{{ 9223372036854775807 + 1 }}");
  check_refused("64 bits", "{{ 99999999999999999999 }}");
  check_refused("bytes", std::string(5000000, 'x'));
}

TEST_CASE("a long conversation that is put together piece by piece renders") {
  Json messages = Json::array();
  for (int i = 0; i < 2000; ++i)
    messages.push_back({{"role", "user"}, {"content", std::string(2000, 'a' + i % 26)}});
  const std::string out = render(
      "{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = ns.t + '<' + m.role + '>' + "
      "m.content %}{% endfor %}"
      "{{ ns.t }}",
      {{"messages", messages}});
  CHECK(out.size() == 2000 * 2006);
}

TEST_CASE("a text that grows in place leaves its earlier values alone") {
  CHECK(render("{% set a = 'x' + 'y' %}{% set b = a + '1' %}{% set c = a + '2' %}{% set d = b + '3' %}{{ [a, "
               "b, c, d] }}") == "['xy', 'xy1', 'xy2', 'xy13']");
}

TEST_CASE("bytes that are no UTF-8 are refused") {
  CHECK(error_of("a\xff") == "The chat template is no valid UTF-8 at byte 1.");
  CHECK(error_of("{{ x }}", {{"x", "a\xe4"}}).find("UTF-8") != std::string::npos);
  CHECK(error_of("{{ x }}", {{"a\xf0\x9f", 1}}).find("UTF-8") != std::string::npos);
  CHECK(error_of("{{ '\\ud83d' }}") == "Chat template at 1:5: the escape is no character of Unicode.");
}

TEST_CASE("variables must be an object") {
  CHECK_THROWS_AS(Template::parse("x")->render(Json::array()), Error);
  CHECK_THROWS_AS(Template::parse("x")->render(nullptr), Error);
}

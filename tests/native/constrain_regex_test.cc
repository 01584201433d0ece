#include <chrono>

#include "constrain_check.h"

namespace {

using namespace vllm;
using namespace vllm::testing;

TEST_CASE("Syntax") {
  struct Row {
    const char* pattern;
    std::vector<std::string> good, bad;  // bad: complete texts that are not matched
  };
  const std::vector<Row> rows = {
      {"abc", {"abc"}, {"ab", "abcd", ""}},
      {"a|b|", {"a", "b", ""}, {"ab"}},
      {"(ab|c)+d?", {"ab", "cabd"}, {"d", ""}},
      {"(?:ab){2}", {"abab"}, {"ab", "ababab"}},
      {"a{2,}b{0,1}", {"aa", "aaaab"}, {"a", "aabb"}},
      {"a*?b+?c??d*+", {"b", "abcd"}, {"a"}},
      {".", {"x", "\xc3\xa9", "\xf0\x9f\x8e\x89", "\r"}, {"\n", "", "xy"}},
      {"[a-c-]", {"a", "-"}, {"d"}},
      {"[^a-c]", {"d", "\xe2\x82\xac", "\n"}, {"b"}},
      {"[]a]", {"]", "a"}, {"[]a]"}},
      {"[^]a]", {"b"}, {"]"}},
      {"[\\d\\-x]+", {"1-x"}, {"y"}},
      {"\\d\\D\\w\\W\\s\\S", {"1a_- x"}, {"aa_- x", "1a_-xx"}},
      {"\\d", {"7"}, {"\xd9\xa3"}},
      {"\\n\\r\\t\\f\\v", {"\n\r\t\f\v"}, {"nrtfv"}},
      {"\\x41\\u00e9\\ud83c\\udf89", {"A\xc3\xa9\xf0\x9f\x8e\x89"}, {"A"}},
      {"\\.\\*\\+\\?\\(\\)\\[\\]\\{\\}\\|\\^\\$\\\\\\/", {".*+?()[]{}|^$\\/"}, {}},
      {"^a.*b$", {"ab", "axxb"}, {"a", "xab"}},
      {"^a$|^b$", {"a", "b"}, {"ab"}},
      {"(^a$)|(^b$)", {"a", "b"}, {"ab"}},
      {"(a|^b)", {"a", "b"}, {}},
      {"{x}{1", {"{x}{1"}, {}},
      {"[\xd0\xb0-\xd1\x8f]+", {"\xd0\xb6\xd1\x8f"}, {"z"}},
      {"[^\\x00-\\x7f]", {"\xc3\xa9"}, {"e"}},
      {"[.*+]", {"*"}, {"x"}},
      {"", {""}, {"a"}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.pattern);
    for (const std::string& text : row.good) CHECK_MESSAGE(matches(regex(row.pattern), text), text);
    for (const std::string& text : row.bad) CHECK_FALSE_MESSAGE(matches(regex(row.pattern), text), text);
  }
}

TEST_CASE("GRAM-03 What is not supported is refused with its place") {
  struct Row {
    std::string pattern;
    const char* message;
  };
  const std::vector<Row> rows = {
      {"(a)\\1", "1:4: backreferences"},
      {"(?=a)b", "1:1: lookaround"},
      {"(?<!a)b", "lookaround"},
      {"(?P<x>a)", "named groups"},
      {"(?<x>a)", "named groups"},
      {"a\\b", "1:2: word boundaries"},
      {"(?i)a", "inline flags"},
      {"(?(1)a|b)", "conditional"},
      {"\\p{L}", "Unicode properties"},
      {"[[:alpha:]]", "POSIX"},
      {"a^b", "'^' may stand"},
      {"a$b", "'$' may stand"},
      {"(^a)*", "anchors inside"},
      {"x(a$)y", "anchors inside"},
      {"^*a", "anchor cannot be repeated"},
      {"*a", "nothing before"},
      {"a**", "without a group"},
      {"(a", "1:1: this '(' is not closed"},
      {"a)", "1:2: this ')'"},
      {"[a", "1:1: this '['"},
      {"a\\", "not complete"},
      {"a{3,2}", "wrong order"},
      {"[z-a]", "wrong order"},
      {"[\\d-z]", "one character at each end"},
      {"\\q", "unknown escape"},
      {"\\xg1", "2 hexadecimal"},
      {"\\ud800", "surrogate"},
      {"a\nb(", "2:2"},
      {std::string("a\0b", 3), "NUL"},
      {"\\x00", "NUL"},
      {"\xff", "UTF-8"},
      {"\\Aa", "anchors"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.pattern);
    CHECK_MESSAGE(contains(refusal(regex(row.pattern)), row.message), refusal(regex(row.pattern)));
  }
}

TEST_CASE("GRAM-04 GRAM-06 Hostile patterns are answered at once") {
  const auto quick = [](const std::string& pattern, const char* limit) {
    const auto start = std::chrono::steady_clock::now();
    const std::string message = refusal(regex(pattern));
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(1));
    CHECK_MESSAGE(contains(message, limit), message);
  };
  quick(std::string(60000, '(') + "a" + std::string(60000, ')'), "deeper than the 256");
  quick("A{1000000}", "2000");
  quick("A{1,99999999999}", "2000");
  quick("((a{1000}){1000}){1000}", "400000 automaton states");
  quick(std::string(2 << 20, 'a'), "bytes");
  quick("[ab]*a[ab]{20}", "");
  CHECK(matches(regex(std::string(150, '(') + "a" + std::string(150, ')')), "a"));
}

TEST_CASE("GRAM-06 A pattern whose deterministic form explodes is followed") {
  const auto constraint = byte_compiler().make(regex("[ab]*a[ab]{20}"));
  std::string text;
  uint32_t random = 1;
  for (int i = 0; i < 3000; ++i) text += (random = random * 1664525 + 1013904223) >> 30 & 1 ? 'a' : 'b';
  const auto start = std::chrono::steady_clock::now();
  CHECK(taken(*constraint, text) == text.size());
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(2));
  CHECK(constraint->can_end() == (text[text.size() - 21] == 'a'));
}

TEST_CASE("Choices") {
  ConstraintSpec s;
  s.kind = ConstraintSpec::Kind::Choice;
  s.choices = {"yes", "yes, please", "no", "\xe6\x97\xa5\xe6\x9c\xac", "no"};
  CHECK(matches(s, "yes"));
  CHECK(matches(s, "yes, please"));
  CHECK(matches(s, "\xe6\x97\xa5\xe6\x9c\xac"));
  CHECK_FALSE(matches(s, "ye"));
  CHECK_FALSE(begins(s, "yes, n"));
  CHECK_FALSE(begins(s, "maybe"));
  s.choices = {};
  CHECK(contains(refusal(s), "empty"));
  s.choices = {"a", ""};
  CHECK(contains(refusal(s), "Entry 1"));
  s.choices = {"\xff"};
  CHECK(contains(refusal(s), "UTF-8"));
  s.choices.assign(10001, "x");
  CHECK(contains(refusal(s), "10000"));
  s.choices.clear();
  for (int i = 0; i < 10000; ++i) s.choices.push_back("entry " + std::to_string(i));
  CHECK(matches(s, "entry 9999"));
  CHECK_FALSE(begins(s, "entry 10000"));
}

}  // namespace

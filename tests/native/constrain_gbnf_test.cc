#include <chrono>

#include "constrain_check.h"

namespace {

using namespace vllm;
using namespace vllm::testing;

// What LocalAI sends for response_format json_object, in its layout: rules that begin on the line after
// `::=`, line ends and a comment inside groups, recursion for white space.
constexpr const char* kJsonGrammar = R"(
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\] |
    "\\" (["\\/bfnrt] | "u" [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F]) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]*)) ("." [0-9]+)? ([eE] [-+]? [0-9]+)? ws

ws ::= ([ \t\n] ws)?
)";

// The form of its tool grammars: rules in any order, names with hyphens, a rule that nobody uses, a
// repetition whose element may be empty, tabs.
constexpr const char* kToolGrammar =
    "arr  ::=\n  \"[\\n\"  (\n\t\trealvalue\n    (\",\\n\"  realvalue)*\n  )? \"]\"\n"
    "root-0-arguments ::= \"{\" space \"\\\"city\\\"\" space \":\" space string \"}\" space\n"
    "root-0-name ::= \"\\\"weather\\\"\"\n"
    "freestring ::= (\n\t\t\t[^\\x00] |\n\t\t\t\"\\\\\" ([\"\\\\/bfnrt] | \"u\" [0-9a-fA-F] [0-9a-fA-F] "
    "[0-9a-fA-F] "
    "[0-9a-fA-F])\n\t\t  )* space\n"
    "unused ::= \"never\"\n"
    "string ::= \"\\\"\" (\n    [^\"\\\\] |\n    \"\\\\\" ([\"\\\\/bfnrt] | \"u\" [0-9a-fA-F] [0-9a-fA-F] "
    "[0-9a-fA-F] "
    "[0-9a-fA-F])\n  )* \"\\\"\" space\n"
    "realvalue ::= root-0\n"
    "root-0 ::= \"{\" space \"\\\"arguments\\\"\" space \":\" space root-0-arguments \",\" space "
    "\"\\\"name\\\"\" space "
    "\":\" space root-0-name \"}\" space\n"
    "space ::= \" \"?\n"
    "mixedstring ::= freestring | freestring arr freestring | (freestring realvalue freestring)* | realvalue "
    "| arr\n";

double seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST_CASE("LocalAI's JSON grammar is followed") {
  const auto grammar = gbnf(kJsonGrammar);
  CHECK(matches(grammar, R"({})"));
  CHECK(matches(grammar, "{ \"a\": [1, 2.5e-3, {\"b\": null}],\n\t\"c\": \"x\\n\\u00e9 \xc3\xa9\"}  \n"));
  CHECK_FALSE(matches(grammar, R"([1])"));
  CHECK_FALSE(begins(grammar, R"({"a" 1)"));
  CHECK_FALSE(begins(grammar, R"({"a": "\x)"));
  CHECK_FALSE(begins(grammar, "{\"a\": \"\xff"));
  CHECK(begins(grammar, R"({"a": "\u00)"));
  CHECK_FALSE(matches(grammar, R"({"a": tru})"));
}

TEST_CASE("LocalAI's tool grammars are followed") {
  const std::string call = R"({"arguments": {"city": "Rome"}, "name": "weather"})";
  const auto single = gbnf(std::string(kToolGrammar) + "root ::= realvalue\n");
  CHECK(matches(single, call));
  CHECK(matches(single, R"({"arguments":{"city":"Rome"},"name":"weather"})"));
  CHECK_FALSE(begins(single, R"({"name")"));
  CHECK_FALSE(begins(single, R"({"arguments": {"city": "Rome"}, "name": "w_)"));
  CHECK_FALSE(begins(single, "I"));
  const auto parallel = gbnf(std::string(kToolGrammar) + "root ::= arr | realvalue\n");
  CHECK(matches(parallel, call));
  CHECK(matches(parallel, "[\n" + call + ",\n" + call + "]"));
  CHECK_FALSE(begins(parallel, "[1"));
  const auto mixed = gbnf(std::string(kToolGrammar) + "root ::= mixedstring\n");
  CHECK(matches(mixed, ""));
  CHECK(matches(mixed, "Let me look. " + call + " and " + call + " done \xf0\x9f\x8e\x89"));
  CHECK_FALSE(begins(mixed, std::string("a\0", 2)));
  const auto prefixed = gbnf(std::string(kToolGrammar) + "root ::= \"<tool> \" realvalue\n");
  CHECK(matches(prefixed, "<tool> " + call));
}

TEST_CASE("A long text through LocalAI's free text costs little") {
  const auto mixed = byte_compiler().make(gbnf(std::string(kToolGrammar) + "root ::= mixedstring\n"));
  std::string text;
  while (text.size() < 20000)
    text += "word {\"arguments\": {\"city\": \"x\"}, \"name\": \"weather\"} \"quoted\" ";
  CHECK(seconds([&] { CHECK(taken(*mixed, text) == text.size()); }) < 5);
  CHECK(mixed->can_end());
}

TEST_CASE("Line ends and comments") {
  CHECK(matches(gbnf("root ::=\n  \"a\" |\n  \"b\""), "b"));
  CHECK(matches(gbnf("# first\nroot ::= \"a\" # second\n# third\n"), "a"));
  CHECK(matches(gbnf("root ::= (\"a\"\r\n  \"b\" # c\r\n)\r\nx ::= \"y\"\r\n"), "ab"));
  CHECK(matches(gbnf("root ::= x y\nx ::= \"1\"\ny ::= \"2\""), "12"));
  CHECK(matches(gbnf("root ::= x\nx ::=\ny ::= \"2\""), ""));  // an empty rule, then the next one
  CHECK(matches(gbnf("root ::= \"#\" [#]"), "##"));
  CHECK(contains(refusal(gbnf("root ::= \"a\"\n  \"b\"")), "2:3"));
}

TEST_CASE("Empty alternatives and texts") {
  const auto grammar = gbnf("root ::= \"a\" (| \"b\") \"\"");
  CHECK(matches(grammar, "a"));
  CHECK(matches(grammar, "ab"));
  CHECK(matches(gbnf("root ::= | \"x\""), ""));
}

TEST_CASE("Repetitions, stacked and counted") {
  CHECK(matches(gbnf("root ::= \"a\"{3}"), "aaa"));
  CHECK_FALSE(begins(gbnf("root ::= \"a\"{3}"), "aaaa"));
  CHECK_FALSE(matches(gbnf("root ::= \"a\"{3}"), "aa"));
  CHECK(matches(gbnf("root ::= \"a\"{2,}"), "aaaaa"));
  CHECK(matches(gbnf("root ::= \"a\"{0,2}"), ""));
  CHECK(matches(gbnf("root ::= \"a\"{,2} \"b\""), "aab"));
  CHECK(matches(gbnf("root ::= \"a\"{0} \"b\""), "b"));
  CHECK(matches(gbnf("root ::= \"a\"+? \"b\""), "b"));
  CHECK(matches(gbnf("root ::= (\"a\"?)* \"b\""), "aab"));
  CHECK(matches(gbnf("root ::= \"ab\"*"), "abab"));
}

TEST_CASE("Repetitions that may match nothing end") {
  for (const char* text : {"root ::= (\"a\"? \"b\"?)*", "root ::= ((\"a\"*)*)*",
                           "root ::= (x* y*)+\nx ::= \"a\"?\ny ::= \"b\"?"}) {
    const auto grammar = gbnf(text);
    CHECK(matches(grammar, ""));
    CHECK(matches(grammar, "aaa"));
    CHECK_FALSE(begins(grammar, "ac"));
  }
}

TEST_CASE("Characters are matched as whole UTF-8 sequences") {
  const auto hiragana = gbnf("root ::= [\xe3\x81\x81-\xe3\x82\x9f]+");
  CHECK(matches(hiragana, "\xe3\x81\x82\xe3\x82\x9f"));
  CHECK(begins(hiragana, "\xe3\x81"));
  CHECK_FALSE(matches(hiragana, "\xe3\x81"));
  CHECK_FALSE(begins(hiragana, "\xe3\x80"));
  CHECK_FALSE(begins(hiragana, "\xe3\x82\xa1"));  // katakana
  const auto negated = gbnf("root ::= [^a]");
  CHECK(matches(negated, "b"));
  CHECK(matches(negated, "\xf0\x9f\x8e\x89"));
  CHECK_FALSE(begins(negated, "a"));
  for (const char* bad :
       {"\x80", "\xc0", "\xc1", "\xf5", "\xff", "\xe0\x80", "\xed\xa0", "\xf0\x8f", "\xf4\x90"}) {
    CHECK_FALSE(begins(negated, bad));
  }
  const auto any = gbnf("root ::= .");
  for (const char* good : {"\n", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
                           "\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    CHECK(matches(any, good));
  }
  CHECK(matches(gbnf("root ::= [\\u00e9\\U0001F389] \"\\x41\\u00e9\""),
                "\xc3\xa9"
                "A\xc3\xa9"));
}

TEST_CASE("Classes") {
  CHECK(matches(gbnf("root ::= [a-c\\n\\]\\\\\\-x]+"), "ab\n]\\-x"));
  CHECK(matches(gbnf("root ::= [-+]"), "-"));
  CHECK(matches(gbnf("root ::= [+-]"), "-"));
  CHECK_FALSE(begins(gbnf("root ::= [+\\-9]"), "5"));
}

TEST_CASE("GRAM-03 Errors are placed") {
  CHECK(contains(refusal(gbnf("")), "empty"));
  CHECK(contains(refusal(gbnf("  # nothing\n")), "empty"));
  CHECK(contains(refusal(gbnf("start ::= \"a\"")), "'root'"));
  CHECK(contains(refusal(gbnf("root ::= \"a\"\nroot ::= \"b\"")), "2:1"));
  CHECK(contains(refusal(gbnf("root ::= \"a\" other")), "1:14: rule 'other' is used but not defined"));
  CHECK(contains(refusal(gbnf("root ::= \"a")), "1:10"));
  CHECK(contains(refusal(gbnf("root ::= [a")), "1:10"));
  CHECK(contains(refusal(gbnf("root ::= (\"a\"")), "1:10"));
  CHECK(contains(refusal(gbnf("root ::= \"a\")")), "1:13"));
  CHECK(contains(refusal(gbnf("root ::= *")), "1:10"));
  CHECK(contains(refusal(gbnf("root ::= \"\\q\"")), "1:11"));
  CHECK(contains(refusal(gbnf("root ::= \"\\uD800\"")), "1:11"));
  CHECK(contains(refusal(gbnf("root ::= [z-a]")), "1:11"));
  CHECK(contains(refusal(gbnf("root ::= \"a\"{3,2}")), "1:13"));
  CHECK(contains(refusal(gbnf("root ::= \"a\"{x}")), "1:13"));
  CHECK(contains(refusal(gbnf("root = \"a\"")), "'::='"));
  CHECK(contains(refusal(gbnf("root ::= \xc3\xa9")), "1:10"));
  CHECK(contains(refusal(gbnf("root ::= \"\xff\"")), "UTF-8"));
  CHECK(contains(refusal(gbnf("9x ::= \"a\"")), "1:1"));
  CHECK(contains(refusal(gbnf("root ::= [")), "1:10"));
  CHECK(contains(refusal(gbnf("root ::= \"a\\")), "1:12"));
}

TEST_CASE("Left recursion is refused by name, also behind what may be empty") {
  CHECK(contains(refusal(gbnf("root ::= root \"a\" | \"b\"")), "'root'"));
  CHECK(contains(refusal(gbnf("root ::= x\nx ::= y \"1\"\ny ::= x | \"2\"")), "refers to itself"));
  CHECK(contains(refusal(gbnf("root ::= \"-\" expr\nexpr ::= sp expr \"+\" | \"1\"\nsp ::= \" \"?")),
                 "'expr'"));
  CHECK(refusal(gbnf("root ::= \"a\" root | \"b\"")).empty());
  CHECK(refusal(gbnf("root ::= \"b\"\nunused ::= unused \"a\"")).empty());
}

TEST_CASE("GRAM-05 A grammar without a finite text is refused") {
  CHECK(contains(refusal(gbnf("root ::= \"a\" root")), "no finite text"));
  CHECK(contains(refusal(gbnf("root ::= x\nx ::= \"a\" y\ny ::= \"b\" x")), "no finite text"));
  // What cannot be finished is not begun.
  const auto grammar = gbnf("root ::= \"ok\" | \"a\" loop\nloop ::= \"b\" loop");
  CHECK(matches(grammar, "ok"));
  CHECK_FALSE(begins(grammar, "a"));
}

TEST_CASE("GRAM-04 Deep nesting is refused at once, ordinary nesting works") {
  const std::string deep = "root ::= " + std::string(60000, '(') + "\"a\"" + std::string(60000, ')');
  CHECK(seconds([&] { CHECK(contains(refusal(gbnf(deep)), "nested deeper than the 256")); }) < 1);
  const std::string open = "root ::= " + std::string(60000, '(');
  CHECK(seconds([&] { CHECK_FALSE(refusal(gbnf(open)).empty()); }) < 1);
  CHECK(matches(gbnf("root ::= " + std::string(150, '(') + "\"a\"" + std::string(150, ')')), "a"));
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 9000; ++i)
    chain += "r" + std::to_string(i) + " ::= \"x\" r" + std::to_string(i + 1) + "\n";
  chain += "r9000 ::= \"end\"\n";
  CHECK(seconds([&] { CHECK(begins(gbnf(chain), std::string(100, 'x'))); }) < 1);
  std::string many = "root ::= \"a\"\n";
  for (int i = 0; i < 10001; ++i) many += "r" + std::to_string(i) + " ::= \"x\"\n";
  CHECK(contains(refusal(gbnf(many)), "10000 rules"));
  CHECK(contains(refusal(gbnf("root ::= \"" + std::string(2 << 20, 'a') + "\"")), "bytes"));
}

TEST_CASE("GRAM-06 Large repetitions are refused by the limit's name") {
  for (const char* text :
       {"root ::= \"A\"{1000000}", "root ::= \"A\"{99999999999999999999}", "root ::= \"A\"{2,5000}",
        "root ::= ((\"A\"{2000}){2000}){2000}", "root ::= x{2000}\nx ::= y{2000}\ny ::= [^a]{2000}"}) {
    CHECK(seconds([&] {
            const std::string message = refusal(gbnf(text));
            CHECK((contains(message, "2000 that are allowed") ||
                   contains(message, "400000 automaton states") || message.empty()));
          }) < 1);
  }
  CHECK(matches(gbnf("root ::= \"A\"{2000}"), std::string(2000, 'A')));
}

TEST_CASE("Ambiguity does not multiply states") {
  const auto grammar = gbnf("root ::= s\ns ::= \"x\" s \"y\" | \"x\" s \"z\" | \"x\" s \"y\" \"?\"? | \"\"");
  const auto constraint = byte_compiler().make(grammar);
  CHECK(seconds([&] {
          CHECK(taken(*constraint, std::string(300, 'x')) == 300);
          CHECK(taken(*constraint, std::string(300, 'y')) == 300);
        }) < 2);
  CHECK(constraint->can_end());
}

TEST_CASE("Token forms") {
  const auto tokenizer = bytes_and({"<think>", "abc"}, {"<|tool|>"});
  ConstraintCompiler compiler(tokenizer, {258});
  const int32_t think = 256, control = 259;
  const auto make = [&](const char* text) { return compiler.make(gbnf(text)); };
  auto constraint = make("root ::= <think> \"x\" <|tool|> <[257]>");
  CHECK(constraint->forced_token() == think);
  CHECK(constraint->accept(std::vector<int32_t>{think, 'x', control, 257}) == 4);
  CHECK(constraint->can_end());
  constraint = make("root ::= <think>");
  CHECK(constraint->accept(std::vector<int32_t>{'<'}) == 0);
  constraint = make("root ::= !<think>* \"!\"");
  CHECK(constraint->accept(std::vector<int32_t>{'a', 257, '!'}) == 3);
  CHECK(constraint->can_end());
  const auto mask = mask_of(*constraint, tokenizer.vocab_size());
  CHECK_FALSE(allowed(mask, think));
  CHECK_FALSE(allowed(mask, control));
  for (const char* bad : {"root ::= <nothing>", "root ::= <[99999]>", "root ::= <[-1]>", "root ::= <[1>",
                          "root ::= <a", "root ::= <end>", "root ::= <[258]>"}) {
    CHECK_THROWS_AS(make(bad), Error);
  }
}

}  // namespace

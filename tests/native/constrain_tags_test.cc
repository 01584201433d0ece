#include "constrain_check.h"

namespace {

using namespace vllm;
using namespace vllm::testing;

constexpr const char* kWeather =
    R"({"type":"object","properties":{"city":{"type":"string"}},"required":["city"]})";
constexpr const char* kNow = R"({"type":"object","properties":{}})";

StructuralTag hermes_tag(const std::string& name, const std::string& parameters) {
  StructuralTag tag;
  tag.begin = "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": ";
  tag.content.text = parameters;
  tag.end = "}\n</tool_call>";
  return tag;
}

ConstraintSpec tags_spec(StructuralTags tags) {
  ConstraintSpec s;
  s.kind = ConstraintSpec::Kind::StructuralTags;
  s.tags = std::move(tags);
  return s;
}

StructuralTags hermes(StructuralTags::Mode mode) {
  StructuralTags tags;
  tags.mode = mode;
  tags.triggers = {"<tool_call>"};
  tags.separator = "\n";
  tags.tags = {hermes_tag("weather", kWeather), hermes_tag("now", kNow)};
  return tags;
}

const std::string kCall =
    "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>";
const std::string kOther = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";

TEST_CASE("Lazy: free until the trigger, then only calls") {
  const auto s = tags_spec(hermes(StructuralTags::Mode::Lazy));
  CHECK(matches(s, ""));
  CHECK(matches(s, "Just text with < and <tool and {\"json\": 1}\n"));
  CHECK(matches(s, "Any bytes \xff too"));
  CHECK(matches(s, kCall));
  CHECK(matches(s, "I look that up.\n" + kCall + "\n" + kOther));
  CHECK_FALSE(matches(s, "text <tool_call>"));
  CHECK_FALSE(begins(s, "text <tool_call>{"));
  CHECK_FALSE(begins(s, "text <tool_call>\n{\"name\": \"unknown"));
  CHECK_FALSE(begins(s, "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"town"));
  CHECK(begins(s, "<<tool_call>\n{"));
  CHECK_FALSE(begins(s, kCall + "x"));
  StructuralTags more = hermes(StructuralTags::Mode::Lazy);
  more.text_after = true;
  CHECK(matches(tags_spec(more), kCall + " and then " + kOther + " the end"));
  CHECK_FALSE(begins(tags_spec(more), kCall + " and then <tool_call>{"));
  more.several = false;
  more.text_after = false;
  CHECK(matches(tags_spec(more), "text " + kCall));
  CHECK_FALSE(begins(tags_spec(more), kCall + "\n"));
}

TEST_CASE("GRAM-01 Tokens that straddle the trigger or the end of a call") {
  const auto tokenizer = bytes_and({"ok<tool_", "call>\n", "call>{", "<tool_call>", "<tool_call>\n{\"",
                                    "x<tool_call>[", "}}\n</tool_call>\n<tool_call>", "}}\n</tool_call> bye",
                                    "name\": \"weather\", \"arguments\": {\"city\": \""});
  ConstraintCompiler compiler(tokenizer, tokenizer.end_ids());
  const auto constraint = compiler.make(tags_spec(hermes(StructuralTags::Mode::Lazy)));
  auto mask = mask_of(*constraint, tokenizer.vocab_size());
  CHECK(allowed(mask, 256));
  CHECK(allowed(mask, 259));
  CHECK(allowed(mask, 260));
  CHECK_FALSE(allowed(mask, 261));
  CHECK(constraint->accept(std::vector<int32_t>{256}) == 1);
  mask = mask_of(*constraint, tokenizer.vocab_size());
  CHECK(allowed(mask, 257));
  CHECK_FALSE(allowed(mask, 258));
  CHECK(allowed(mask, 'x'));
  CHECK(constraint->can_end());
  CHECK(constraint->accept(std::vector<int32_t>{257, '{', '"', 264, 'R', '"'}) == 6);
  mask = mask_of(*constraint, tokenizer.vocab_size());
  CHECK(allowed(mask, 262));
  CHECK_FALSE(allowed(mask, 263));
  CHECK_FALSE(constraint->can_end());
  CHECK(constraint->accept(std::vector<int32_t>{262, '\n', '{', '"', 'n', 'a', 'm', 'e', '"', 'x'}) == 9);
  constraint->rollback(8 + 7);
  CHECK(mask_of(*constraint, tokenizer.vocab_size()) != mask);
  CHECK(constraint->can_end());
}

TEST_CASE("Required and named: calls from the first byte") {
  const auto s = tags_spec(hermes(StructuralTags::Mode::Required));
  CHECK(matches(s, kCall));
  CHECK(matches(s, kOther + "\n" + kCall + "\n" + kCall));
  CHECK_FALSE(matches(s, ""));
  CHECK_FALSE(begins(s, "I"));
  CHECK_FALSE(begins(s, kCall + "\n\n"));
  StructuralTags named = hermes(StructuralTags::Mode::Required);
  named.tags.resize(1);
  named.several = false;
  const auto constraint = byte_compiler().make(tags_spec(named));
  CHECK(taken(*constraint, kCall) == kCall.size());
  CHECK(constraint->must_end());
  CHECK_FALSE(begins(tags_spec(named), "<tool_call>\n{\"name\": \"now"));
  CHECK(byte_compiler().make(tags_spec(named))->forced_token() == '<');
}

TEST_CASE("Calls in place of what another constraint wants") {
  ConstraintSpec s;
  s.kind = ConstraintSpec::Kind::Choice;
  s.choices = {"yes", "<no>"};
  CHECK_FALSE(begins(s, kCall));
  s.or_tags = hermes(StructuralTags::Mode::Required);
  for (const std::string& text : {std::string("yes"), std::string("<no>"), kCall, kCall + "\n" + kOther})
    CHECK(matches(s, text));
  for (const std::string& text : {std::string("no"), "yes" + kCall, kCall + "yes", std::string("text ")})
    CHECK_FALSE(begins(s, text));
  CHECK_FALSE(matches(s, "<tool_call>"));
  s.or_tags->several = false;
  CHECK_FALSE(begins(s, kCall + "\n"));
  s.or_tags.reset();
  CHECK_FALSE(begins(s, kCall));
}

TEST_CASE("Sections, call counters, and markers that are control tokens") {
  const auto tokenizer =
      bytes_and({}, {"<|section|>", "<|call|>", "<|args|>", "<|end|>", "<|close|>", "<|im_start|>"});
  const int32_t section = 257, call = 258, args = 259, end = 260, close = 261, other = 262;
  ConstraintCompiler compiler(tokenizer, {256});
  StructuralTags tags;
  tags.triggers = {"<|section|>"};
  tags.section_begin = "<|section|>";
  tags.section_end = "<|close|>";
  StructuralTag tag;
  tag.begin = "<|call|>functions.now:";
  tag.after_number = "<|args|>";
  tag.content.text = kNow;
  tag.end = "<|end|>";
  tags.tags = {tag};
  const auto ids = [](std::vector<int32_t> front, std::string_view text, std::vector<int32_t> back) {
    for (const char byte : text) front.push_back(static_cast<uint8_t>(byte));
    front.insert(front.end(), back.begin(), back.end());
    return front;
  };
  const auto constraint = compiler.make(tags_spec(tags));
  auto mask = mask_of(*constraint, tokenizer.vocab_size());
  CHECK(allowed(mask, section));
  CHECK(allowed(mask, other));  // free text is free
  CHECK_FALSE(allowed(mask, call) == false);
  CHECK(constraint->accept(ids({'h', 'i', section, call}, "functions.now:12", {args, '{', '}', end})) == 24);
  mask = mask_of(*constraint, tokenizer.vocab_size());
  CHECK(allowed(mask, close));
  CHECK(allowed(mask, call));
  CHECK_FALSE(allowed(mask, other));
  CHECK_FALSE(constraint->can_end());
  CHECK(constraint->accept(std::vector<int32_t>{close}) == 1);
  CHECK(constraint->must_end());
  // The marker's text in pieces is not the marker, so it is not allowed where the token is.
  const auto spelt = compiler.make(tags_spec(tags));
  CHECK(spelt->accept(ids({}, "<|section|>", {})) == 10);
}

TEST_CASE("Parameters in the manner of XML") {
  StructuralTags tags;
  tags.mode = StructuralTags::Mode::Required;
  StructuralTag tag;
  tag.begin = "<tool_call>\n<function=add>\n";
  tag.end = "</function>\n</tool_call>";
  tag.content.kind = TagContent::Kind::Parameters;
  tag.content.text =
      R"({"type":"object","properties":{"a":{"type":"integer"},"s":{"type":"string"},"o":{"type":"object","properties":{"k":{"type":"boolean"}}},"e":{"enum":["x","y"]},"any":{}},"required":["a","s"]})";
  tag.content.before_name = "<parameter=";
  tag.content.after_name = ">\n";
  tag.content.after_value = "\n</parameter>\n";
  tags.tags = {tag};
  const auto s = tags_spec(tags);
  const auto call = [](const std::string& parameters) {
    return "<tool_call>\n<function=add>\n" + parameters + "</function>\n</tool_call>";
  };
  const auto parameter = [](const std::string& name, const std::string& value) {
    return "<parameter=" + name + ">\n" + value + "\n</parameter>\n";
  };
  const std::string a = parameter("a", "-5"),
                    text = parameter("s", "any <b> text\n\nwith {\"lines\"} </param");
  CHECK(matches(s, call(a + text)));
  CHECK(matches(
      s, call(a + text + parameter("o", "{\"k\": true}") + parameter("e", "y") + parameter("any", "free"))));
  CHECK(matches(s, call(a + text + parameter("e", "x"))));
  CHECK_FALSE(matches(s, call(a)));
  CHECK_FALSE(matches(s, call(text + a)));
  CHECK_FALSE(begins(s, "<tool_call>\n<function=add>\n<parameter=a>\nx"));
  CHECK_FALSE(begins(s, "<tool_call>\n<function=add>\n" + a + text + "<parameter=e>\nz"));
  CHECK_FALSE(begins(s, "<tool_call>\n<function=add>\n" + a + "<parameter=s>\nx</parameter>"));
}

/// One call whose parameters look like <p=NAME>VALUE</p>.
ConstraintSpec parameters_spec(const std::string& schema, bool free_values = false) {
  StructuralTags tags;
  tags.mode = StructuralTags::Mode::Required;
  tags.several = false;
  StructuralTag tag;
  tag.begin = "<f>";
  tag.end = "</f>";
  tag.content.kind = TagContent::Kind::Parameters;
  tag.content.text = schema;
  tag.content.before_name = "<p=";
  tag.content.after_name = ">";
  tag.content.after_value = "</p>";
  tag.content.free_values = free_values;
  tags.tags = {tag};
  return tags_spec(tags);
}

TEST_CASE("GRAM-09 Parameters that the schema leaves open take any name and any text") {
  for (const char* open :
       {"", "{}", "true", R"({"type":"object"})", R"({"type":"object","additionalProperties":true})",
        R"({"type":"object","properties":{},"additionalProperties":true})",
        R"({"properties":{},"patternProperties":{"^x":{}}})", R"({"$ref":"#/none"})",
        R"({"properties":[]})"}) {
    CAPTURE(open);
    const auto s = parameters_spec(open);
    CHECK(matches(s, "<f></f>"));
    CHECK(matches(s, "<f><p=key of \xc3\xa9>any <b> {text}\n</p></f>"));
    CHECK(matches(s, "<f><p=b>1</p><p=a>2</p><p=-x=y>3</p></f>"));
    for (const char* bad : {"<f><p=>", "<f><p= ", "<f><p=a<", "<f><p=\"", "<f><p=a\n", "<f><p=a>x</p> "})
      CHECK_FALSE(begins(s, bad));
    CHECK_FALSE(matches(s, "<f><p=a>1</f>"));
  }
  const auto closed = parameters_spec(kNow);
  CHECK(matches(closed, "<f></f>"));
  CHECK_FALSE(begins(closed, "<f><p"));

  const auto more = parameters_spec(
      R"({"properties":{"days":{"type":"integer"},"no":false,"day":{}},"required":["days"],"additionalProperties":{"type":"boolean"}})");
  CHECK(matches(more, "<f><p=days>3</p></f>"));
  CHECK(matches(more, "<f><p=days>3</p><p=da>true</p><p=dayss>false</p><p=other>true</p></f>"));
  CHECK(matches(more, "<f><p=days>3</p><p=day>any</p></f>"));
  CHECK_FALSE(begins(more, "<f><p=other"));
  CHECK_FALSE(begins(more, "<f><p=days>3</p><p=days>"));
  CHECK_FALSE(begins(more, "<f><p=days>3</p><p=no>"));
  CHECK_FALSE(begins(more, "<f><p=days>3</p><p=other>x"));
}

TEST_CASE("GRAM-09 Parameters with free values keep their names, in any order") {
  const char* const schema =
      R"({"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},"required":["city"]})";
  const auto s = parameters_spec(schema, true);
  CHECK(matches(s, "<f></f>"));
  CHECK(matches(s, "<f><p=days>a few</p><p=city>Rome</p></f>"));
  CHECK_FALSE(begins(s, "<f><p=town"));
  CHECK_FALSE(begins(parameters_spec(schema), "<f></"));
  CHECK_FALSE(begins(parameters_spec(schema), "<f><p=days"));
  CHECK(matches(parameters_spec(R"({"properties":{"a":{}},"additionalProperties":true})", true),
                "<f><p=b>1</p><p=a>2</p></f>"));
  CHECK(matches(parameters_spec("", true), "<f><p=b>1</p></f>"));
  CHECK_FALSE(begins(parameters_spec(kNow, true), "<f><p"));
}

TEST_CASE("GRAM-09 Branches of a tool's parameters allow what each branch allows") {
  const auto s = parameters_spec(
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"anyOf":[{"required":["a"]},{"required":["b"]}]})");
  CHECK(matches(s, "<f><p=a>1</p></f>"));
  CHECK(matches(s, "<f><p=b>1</p></f>"));
  CHECK(matches(s, "<f><p=a>1</p><p=b>1</p></f>"));
  CHECK_FALSE(begins(s, "<f></"));
  CHECK_FALSE(begins(s, "<f><p=a>x"));
  for (const char* keyword : {"anyOf", "oneOf"}) {
    const auto apart = parameters_spec(
        std::string(
            R"({"type":"object","$defs":{"two":{"properties":{"b":{"type":"boolean"}},"required":["b"]}},")") +
        keyword + R"(":[{"properties":{"a":{"type":"integer"}},"required":["a"]},{"$ref":"#/$defs/two"}]})");
    CHECK(matches(apart, "<f><p=a>1</p></f>"));
    CHECK(matches(apart, "<f><p=b>true</p></f>"));
    CHECK_FALSE(begins(apart, "<f><p=c"));
    const auto open = parameters_spec(std::string("{\"") + keyword +
                                      R"(":[{"properties":{"a":{}},"required":["a"]},{"type":"object"}]})");
    CHECK(matches(open, "<f><p=z>1</p></f>"));
  }
  // Branches that multiply or never end loosen as well.
  std::string chain = R"({"$defs":{)";
  for (int i = 0; i < 40; ++i) {
    const std::string next = "{\"$ref\":\"#/$defs/d" + std::to_string(i + 1) + "\"}";
    chain += "\"d" + std::to_string(i) + "\":{\"anyOf\":[" + next + "," + next + "]},";
  }
  chain += R"("d40":{"properties":{"a":{}}}},"$ref":"#/$defs/d0"})";
  for (const std::string& endless :
       {chain, std::string(R"({"anyOf":[{"$ref":"#"},{"properties":{"a":{}}}]})")}) {
    std::vector<std::string> warnings;
    byte_compiler().make(parameters_spec(endless), &warnings);
    REQUIRE(warnings.size() == 1);
    CHECK(contains(warnings[0], "256 branches"));
    CHECK(matches(parameters_spec(endless), "<f><p=any>1</p></f>"));
  }
  std::vector<std::string> warnings;
  byte_compiler().make(parameters_spec(R"({"properties":{"a":{"$ref":"#/none"}},"not":{"required":["a"]}})"),
                       &warnings);
  REQUIRE(warnings.size() == 2);
  CHECK(contains(warnings[0], "'#/not'"));
  CHECK(contains(warnings[1], "Any text is allowed there"));
}

TEST_CASE("GRAM-09 In a tool's parameters what cannot be enforced loosens its own place, with a warning") {
  StructuralTags tags = hermes(StructuralTags::Mode::Required);
  tags.tags = {hermes_tag(
      "f",
      R"({"properties":{"a":{"type":"array","uniqueItems":true},"b":{"type":"integer"},"c":{"$ref":"#/none"}},"required":["a","b","c"]})")};
  std::vector<std::string> warnings;
  const auto constraint = byte_compiler().make(tags_spec(tags), &warnings);
  REQUIRE(warnings.size() == 2);
  CHECK(contains(warnings[0], "'#/properties/a/uniqueItems'"));
  CHECK(contains(warnings[1], "'#/properties/c'"));
  const std::string head = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"loose\", \"b\": ";
  const std::string call = head + "1, \"c\": [null]}}\n</tool_call>";
  CHECK(taken(*constraint, call) == call.size());
  CHECK(constraint->can_end());
  CHECK_FALSE(begins(tags_spec(tags), head + "\""));
  std::vector<std::string> again;
  byte_compiler().make(tags_spec(tags), &again);  // out of the cache
  CHECK(again.empty());
  tags.tags[0].content.loose = false;
  CHECK(contains(refusal(tags_spec(tags)), "uniqueItems"));
}

TEST_CASE("Content of other kinds") {
  const auto with = [](TagContent::Kind kind, const char* text) {
    StructuralTags tags;
    tags.mode = StructuralTags::Mode::Required;
    tags.tags = {StructuralTag{"<", std::nullopt, {}, ">"}};
    tags.tags[0].content.kind = kind;
    tags.tags[0].content.text = text;
    return tags_spec(tags);
  };
  CHECK(matches(with(TagContent::Kind::Regex, "a+"), "<aa>"));
  CHECK(matches(with(TagContent::Kind::Gbnf, "root ::= \"x\" y\ny ::= \"z\""), "<xz>"));
  CHECK(matches(with(TagContent::Kind::Free, ""), "<anything <there\n>"));
  CHECK(matches(with(TagContent::Kind::Json, ""), "<[1, null]>"));
  CHECK_FALSE(begins(with(TagContent::Kind::Json, kNow), "<["));
}

TEST_CASE("Tags of a request") {
  const auto s = tags_spec(parse_structural_tag_request(
      R"({"type":"structural_tag","structures":[{"begin":"<f=now>","schema":{"type":"object","properties":{}},"end":"</f>"},{"begin":"<f=any>","end":"</f>"}],"triggers":["<f="]})"));
  CHECK(matches(s, "no call"));
  CHECK(matches(s, "a <f=now>{}</f> b <f=any>[1]</f>"));
  CHECK_FALSE(begins(s, "a <f=x"));
  CHECK_FALSE(begins(s, "a <f=now>["));
  CHECK_FALSE(matches(s, "a <f=now>{}"));
  for (const char* bad :
       {"", "[]", "{}", R"({"structures":[]})", R"({"structures":[{}],"triggers":[]})",
        R"({"structures":[{"begin":"a","end":1}],"triggers":[]})", R"({"structures":[],"triggers":[1]})",
        R"({"type":"structural_tag","format":{}})"}) {
    CHECK_THROWS_AS(parse_structural_tag_request(bad), Error);
  }
  CHECK(contains(refusal(tags_spec(parse_structural_tag_request(
                     R"({"structures":[{"begin":"a","schema":{"not":{}},"end":"b"}],"triggers":["a"]})"))),
                 "'not'"));
}

TEST_CASE("GRAM-03 Unusable tags are refused") {
  StructuralTags tags;
  CHECK(contains(refusal(tags_spec(tags)), "at least one tag"));
  tags = hermes(StructuralTags::Mode::Lazy);
  tags.triggers = {};
  CHECK(contains(refusal(tags_spec(tags)), "need one"));
  tags.triggers = {"<other>"};
  CHECK(contains(refusal(tags_spec(tags)), "'<other>' is not the beginning of any tag"));
  tags.triggers = {""};
  CHECK_FALSE(refusal(tags_spec(tags)).empty());
  tags = hermes(StructuralTags::Mode::Required);
  tags.tags[0].content.text = "{";
  CHECK(contains(refusal(tags_spec(tags)), "no valid JSON"));
  tags.tags[0].content.text = std::string(60000, '[');
  CHECK_FALSE(refusal(tags_spec(tags)).empty());
}

}  // namespace

#include <fstream>
#include <random>
#include <thread>

#include "constrain/grammar_constraint.h"
#include "constrain_check.h"

namespace {

using namespace vllm;
using namespace vllm::testing;

/// Tokens of one to four bytes over a few letters, and some that no grammar here can use.
std::vector<std::string> letter_tokens(std::mt19937& random) {
  std::vector<std::string> tokens;
  for (int i = 0; i < 60; ++i) {
    std::string token;
    const int size = 2 + static_cast<int>(random() % 4);
    for (int k = 0; k < size; ++k) token += "abc,\"\xc3\xa9"[random() % 7];
    tokens.push_back(token);
  }
  return tokens;
}

/// A random GBNF expression over the letters; references only to rules with a higher number, so that none is
/// left recursive.
std::string random_expression(std::mt19937& random, int depth, int rule, int rules) {
  switch (random() % (depth > 0 ? 9 : 4)) {
    case 0:
      return "\"" + std::string(1, "abc"[random() % 3]) + "\"";
    case 1:
      return "\"" + std::string(1 + random() % 3, "abc"[random() % 3]) + "\"";
    case 2:
      return std::vector<std::string>{"[a-b]", "[^a]",
                                      "[\xc3\xa9"
                                      "a]",
                                      "."}[random() % 4];
    case 3:
      return rule + 1 < rules ? "r" + std::to_string(rule + 1 + random() % (rules - rule - 1)) : "\",\"";
    case 4:
      return "(" + random_expression(random, depth - 1, rule, rules) + ")*";
    case 5:
      return "(" + random_expression(random, depth - 1, rule, rules) + "){1,12}";
    case 6:
      return "(" + random_expression(random, depth - 1, rule, rules) + " | " +
             random_expression(random, depth - 1, rule, rules) + ")";
    case 7:
      return "(" + random_expression(random, depth - 1, rule, rules) + ")?";
    default:
      return random_expression(random, depth - 1, rule, rules) + " " +
             random_expression(random, depth - 1, rule, rules);
  }
}

std::string random_grammar(std::mt19937& random) {
  std::string text = "root ::= " + random_expression(random, 3, 0, 4) + "\n";
  for (int rule = 1; rule < 4; ++rule) {
    // At the end of a rule any rule may be called again.
    text += "r" + std::to_string(rule) + " ::= " + random_expression(random, 2, rule, 4) +
            (random() % 3 == 0 ? " (\",\" r" + std::to_string(1 + random() % 3) + ")?" : "") + "\n";
  }
  return text;
}

TEST_CASE("The mask is what checking token by token gives, and rollback is exact") {
  std::mt19937 random(7);
  int checked = 0;
  for (int round = 0; round < 250; ++round) {
    const std::string grammar = random_grammar(random);
    CAPTURE(grammar);
    const auto tokenizer = bytes_and(letter_tokens(random), {"<a>"});
    const int32_t vocab = tokenizer.vocab_size();
    const int32_t end = tokenizer.end_ids()[0];
    ConstraintCompiler compiler(tokenizer, tokenizer.end_ids());
    const auto constraint = compiler.make(gbnf(grammar));
    std::vector<int32_t> taken_ids;
    for (int step = 0; step < 12; ++step) {
      const auto mask = mask_of(*constraint, vocab);
      std::vector<int32_t> next;
      for (int32_t id = 0; id < vocab; ++id) {
        const int count = constraint->accept(std::vector<int32_t>{id});
        if (count == 1) constraint->rollback(1);
        REQUIRE(allowed(mask, id) == (count == 1));
        if (count == 1 && id != end) next.push_back(id);
      }
      CHECK(allowed(mask, end) == constraint->can_end());
      CHECK_FALSE(allowed(mask, end + 1));
      CHECK(constraint->must_end() == (constraint->can_end() && next.empty()));
      CHECK(constraint->forced_token().has_value() == (!constraint->can_end() && next.size() == 1));
      CHECK_FALSE(constraint->is_dead());
      ++checked;
      if (next.empty()) break;
      // A detour of several tokens and back.
      std::vector<int32_t> detour;
      for (int i = 0; i < 4; ++i) detour.push_back(next[random() % next.size()]);
      constraint->rollback(constraint->accept(detour));
      REQUIRE(mask_of(*constraint, vocab) == mask);
      taken_ids.push_back(next[random() % next.size()]);
      REQUIRE(constraint->accept(std::span(taken_ids).last(1)) == 1);
      const auto fresh = ConstraintCompiler(tokenizer, tokenizer.end_ids()).make(gbnf(grammar));
      REQUIRE(fresh->accept(taken_ids) == static_cast<int>(taken_ids.size()));
      REQUIRE(mask_of(*fresh, vocab) == mask_of(*constraint, vocab));
      if (random() % 4 == 0) {
        const int back = static_cast<int>(random() % (taken_ids.size() + 1));
        constraint->rollback(back);
        taken_ids.resize(taken_ids.size() - back);
      }
    }
  }
  CHECK(checked > 800);
}

TEST_CASE(
    "SPEC-02 A draft may run past the end of a string, a comma and the next key, and is taken back exactly") {
  const auto tokenizer = bytes_and({"\",\"", "\":", "\",\"b\":", "ab", "{\"", "\"}", "\"}}"});
  ConstraintCompiler compiler(tokenizer, tokenizer.end_ids());
  auto s = schema(
      R"({"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"required":["a","b"]})");
  const auto constraint = compiler.make(s);
  const int32_t comma_key = 258, quote_colon = 257, open = 260, close = 261, too_far = 262;
  CHECK(constraint->accept(std::vector<int32_t>{open, 'a', quote_colon, '"', 'x'}) == 5);
  const auto before = mask_of(*constraint, tokenizer.vocab_size());
  CHECK(allowed(before, comma_key));
  CHECK_FALSE(allowed(before, close));
  CHECK_FALSE(allowed(before, too_far));
  const std::vector<int32_t> draft{'y', comma_key, '"', 'z', close, 'x'};
  CHECK(constraint->accept(draft) == 5);
  CHECK(constraint->must_end());
  constraint->rollback(5);
  CHECK(mask_of(*constraint, tokenizer.vocab_size()) == before);
  CHECK(constraint->accept(std::vector<int32_t>{comma_key, '"', close, tokenizer.end_ids()[0], 'a'}) == 4);
  CHECK(constraint->is_terminated());
  constraint->rollback(1);
  CHECK_FALSE(constraint->is_terminated());
  CHECK(constraint->can_end());
  constraint->rollback(100);
  CHECK(allowed(mask_of(*constraint, tokenizer.vocab_size()), open));
}

TEST_CASE("GRAM-08 Inside a string only the middle bytes of a begun character are allowed") {
  const auto tokenizer =
      bytes_and({"\xf0\x9f", "\x8e\x89", "\x8e\x89\"", "\xc3\xa9", "\xa9", "a\xf0", "\x89\xff"});
  ConstraintCompiler compiler(tokenizer, tokenizer.end_ids());
  const auto constraint = compiler.make(schema(R"({"type":"string"})"));
  CHECK(constraint->accept(std::vector<int32_t>{'"', 256}) == 2);
  const auto mask = mask_of(*constraint, tokenizer.vocab_size());
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view text = tokenizer.bytes(id);
    const bool middle = (text.size() == 1 && (text[0] & 0xc0) == 0x80) || id == 257 || id == 258;
    CHECK_MESSAGE(allowed(mask, id) == middle, id);
  }
}

TEST_CASE("End ids are masked until the text may end; control and padded tokens always are") {
  const auto tokenizer = bytes_and({"<tool_call>", ""}, {"<|im_start|>", "a"});
  const int32_t end = 258;
  ConstraintCompiler compiler(tokenizer, {end, -1, 100000});
  const auto constraint = compiler.make(gbnf("root ::= \"a\" \"<tool_call>\"? [<|a-z_>]{0,3}"));
  std::vector<uint32_t> mask(20, ~0u);  // rows of a model whose vocabulary is padded
  constraint->mask(mask);
  CHECK(allowed(mask, 'a'));
  CHECK_FALSE(allowed(mask, end));
  CHECK_FALSE(allowed(mask, 257));  // a token without bytes
  CHECK_FALSE(allowed(mask, 260));  // a control token that is called "a"
  CHECK(constraint->accept(std::vector<int32_t>{end}) == 0);
  CHECK(constraint->accept(std::vector<int32_t>{'a'}) == 1);
  constraint->mask(mask);
  CHECK(allowed(mask, 256));
  CHECK(allowed(mask, end));
  CHECK_FALSE(allowed(mask, 259));
  for (int32_t id = tokenizer.vocab_size(); id < 640; ++id) REQUIRE_FALSE(allowed(mask, id));
  for (const int32_t bad : {-1, -5, 261, 1 << 30, 259, 257})
    CHECK(constraint->accept(std::vector<int32_t>{bad}) == 0);
  CHECK(constraint->accept(std::vector<int32_t>{256, end}) == 2);
  constraint->mask(mask);
  for (int32_t id = 0; id < 640; ++id) REQUIRE(allowed(mask, id) == (id < tokenizer.vocab_size()));
  CHECK(constraint->accept(std::vector<int32_t>{'a'}) == 0);
  CHECK_FALSE(constraint->can_end());
  CHECK_FALSE(constraint->forced_token());
}

TEST_CASE("SAMP-05 A single legal token is known without sampling") {
  const auto constraint = byte_compiler().make(gbnf("root ::= \"ab\" [cd] \"e\"?"));
  CHECK(constraint->forced_token() == 'a');
  CHECK(taken(*constraint, "a") == 1);
  CHECK(constraint->forced_token() == 'b');
  CHECK(taken(*constraint, "b") == 1);
  CHECK_FALSE(constraint->forced_token());
  CHECK(taken(*constraint, "c") == 1);
  CHECK_FALSE(constraint->forced_token());  // the text may end too
  CHECK_FALSE(constraint->must_end());
  CHECK(taken(*constraint, "e") == 1);
  CHECK(constraint->must_end());
}

TEST_CASE("Tokens that a tokenizer has beyond the model's are never allowed, nor written to a mask") {
  const auto tokenizer = bytes_and(std::vector<std::string>(1000, "b"));
  const int32_t model_vocab = 100;  // with the bytes "a" to "c"
  ConstraintCompiler compiler(tokenizer, {'c', 1256}, ConstraintCompiler::kCacheBytes, model_vocab);
  std::vector<uint32_t> bits(40, 0xdeadbeef);  // the mask is its first four words
  const std::span<uint32_t> mask = std::span(bits).first(4);
  const auto check = [&](const std::vector<int32_t>& ids) {
    for (int32_t id = 0; id < 128; ++id)
      CHECK_MESSAGE(allowed({mask.begin(), mask.end()}, id) == (std::ranges::count(ids, id) > 0), id);
    for (size_t word = 4; word < bits.size(); ++word) REQUIRE(bits[word] == 0xdeadbeef);
  };
  const auto constraint = compiler.make(gbnf("root ::= [a-z]+"));
  constraint->mask(mask);
  check({'a', 'b'});
  CHECK(constraint->accept(std::vector<int32_t>{300}) == 0);
  CHECK(constraint->accept(std::vector<int32_t>{'b'}) == 1);
  constraint->mask(mask);
  check({'a', 'b', 'c'});
}

TEST_CASE("A vocabulary that cannot spell the grammar leaves a dead state with a reason") {
  const ListedTokenizer tokenizer({"a", "b", "<end>"}, {}, {2});
  ConstraintCompiler compiler(tokenizer, {2});
  const auto constraint = compiler.make(gbnf("root ::= \"a\" (\"c\" | \"ad\")"));
  CHECK_FALSE(constraint->is_dead());
  CHECK(constraint->error().empty());
  CHECK(constraint->accept(std::vector<int32_t>{0}) == 1);
  CHECK_FALSE(constraint->is_dead());
  CHECK(constraint->accept(std::vector<int32_t>{0}) == 1);
  CHECK(constraint->is_dead());
  CHECK(contains(constraint->error(), "cannot continue"));
  CHECK(mask_of(*constraint, 3) == std::vector<uint32_t>{0});
  constraint->rollback(1);
  CHECK_FALSE(constraint->is_dead());
}

TEST_CASE("A vocabulary without end ids can complete a text") {
  const ListedTokenizer tokenizer({"a"}, {}, {});
  const auto constraint = ConstraintCompiler(tokenizer, {}).make(gbnf("root ::= \"a\""));
  CHECK(constraint->accept(std::vector<int32_t>{0}) == 1);
  CHECK(constraint->must_end());
  CHECK_FALSE(constraint->is_dead());
}

TEST_CASE("Compiled grammars are kept within the cache's bytes, the least recently used one leaves") {
  ConstraintCompiler compiler(bytes_and(), {256}, 3 << 20);
  const auto use = [&](int i) {
    return compiler.make(regex("(?:x" + std::to_string(i) + "[a-z]{500}|y.{500})"));
  };
  use(0);
  use(0);
  CHECK(compiler.cached_grammars() == 1);
  for (int i = 1; i < 60; ++i) {
    use(0);
    use(i);
  }
  CHECK(compiler.cached_grammars() > 1);
  CHECK(compiler.cached_grammars() < 40);
  // Kinds and options are told apart.
  ConstraintCompiler other(bytes_and(), {256});
  other.make(regex("\"a\""));
  CHECK_THROWS_AS(other.make(gbnf("\"a\"")), Error);
  ConstraintSpec compact = schema("{}");
  compact.compact = true;
  CHECK(taken(*other.make(schema("{}")), "{ ") == 2);
  CHECK(taken(*other.make(compact), "{ ") == 1);
}

TEST_CASE("A constraint outlives its compiler and moves on when its states become many") {
  std::unique_ptr<Constraint> constraint;
  {
    ConstraintCompiler compiler(bytes_and(), {256}, 1);
    constraint = compiler.make(gbnf("root ::= \"[\" root \"]\" | \"x\""));
  }
  // Every level is a state of its own; some 40 MB of them pass the limit.
  const size_t depth = 300000;
  CHECK(taken(*constraint, std::string(depth, '[')) == depth);
  CHECK(taken(*constraint, "x") == 1);
  CHECK(taken(*constraint, std::string(depth - 1, ']')) == depth - 1);
  CHECK(constraint->forced_token() == ']');
  constraint->rollback(static_cast<int>(depth));
  CHECK(taken(*constraint, "x]") == 2);
  CHECK_FALSE(constraint->can_end());
}

TEST_CASE("Threads share compiler, grammars and masks") {
  ConstraintCompiler compiler(bytes_and({"\"a", "\":", "1,", "tr", "ue"}), {261});
  std::vector<std::thread> threads;
  std::atomic<int> complete = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int round = 0; round < 40; ++round) {
        const auto constraint =
            compiler.make(schema(R"({"type":"object","properties":{"a":{"type":"boolean"},"n)" +
                                 std::to_string(round % 5) + R"(":{"type":"integer"}},"required":["a"]})"));
        for (int step = 0; step < 200; ++step) {
          const auto mask = mask_of(*constraint, 262);
          std::vector<int32_t> ids;
          for (int32_t id = 0; id < 262; ++id) {
            if (allowed(mask, id)) ids.push_back(id);
          }
          if (ids.empty()) break;
          if (constraint->accept(std::vector<int32_t>{ids[random() % ids.size()]}) != 1) break;
          if (constraint->is_terminated()) {
            ++complete;
            break;
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(complete > 100);
}

}  // namespace

// GBNF, the grammar notation of llama.cpp.
#include <map>
#include <optional>

#include "base/error.h"
#include "constrain/front_ends.h"
#include "text/unicode.h"

namespace vllm {
namespace {

class GbnfParser {
 public:
  GbnfParser(std::string_view text, const TokenTrie& trie, Rules& rules)
      : text_(text), trie_(trie), rules_(rules) {}

  int parse() {
    if (text_.size() > GrammarLimits::kTextBytes) {
      fail_argument("The grammar has %zu bytes, allowed are %zu.", text_.size(), GrammarLimits::kTextBytes);
    }
    if (const size_t bad = find_invalid_utf8(text_); bad != std::string_view::npos) {
      fail(bad, "the grammar is no valid UTF-8 here");
    }
    skip_blanks(true);
    if (at_end()) fail_argument("The grammar is empty; a rule 'root' is needed.");
    while (!at_end()) {
      parse_rule();
      skip_blanks(true);
    }
    for (const auto& [name, rule] : names_) {
      if (!rule.defined) fail(rule.first_use, "rule " + quote(name) + " is used but not defined");
    }
    const auto root = names_.find("root");
    if (root == names_.end()) fail(text_.size(), "the grammar has no rule 'root'");
    return root->second.index;
  }

 private:
  struct Name {
    int index;
    bool defined;
    size_t first_use;
  };

  [[noreturn]] void fail(size_t at, const std::string& what) const {
    size_t line = 1, column = 1;
    for (const char c : text_.substr(0, std::min(at, text_.size()))) {
      if (c == '\n') {
        ++line;
        column = 1;
      } else if ((c & 0xc0) != 0x80) {
        ++column;
      }
    }
    fail_argument("Grammar, %zu:%zu: %s.", line, column, what.c_str());
  }

  bool at_end() const { return pos_ >= text_.size(); }
  char peek(size_t ahead = 0) const { return pos_ + ahead < text_.size() ? text_[pos_ + ahead] : '\0'; }
  bool take(std::string_view word) {
    if (text_.substr(pos_, word.size()) != word) return false;
    pos_ += word.size();
    return true;
  }

  /// Blanks and comments; line ends too where they do not end the rule.
  void skip_blanks(bool lines) {
    while (!at_end()) {
      const char c = peek();
      if (c == '#') {
        while (!at_end() && peek() != '\n' && peek() != '\r') ++pos_;
      } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
        ++pos_;
      } else {
        break;
      }
    }
  }

  static bool is_name_start(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-';
  }
  static bool is_plain_name_char(char c) { return is_name_start(c) || (c >= '0' && c <= '9'); }
  /// A dot belongs to a name when the name goes on behind it.
  bool is_name_char(size_t at) const {
    if (at >= text_.size()) return false;
    return is_plain_name_char(text_[at]) ||
           (text_[at] == '.' && at + 1 < text_.size() && is_plain_name_char(text_[at + 1]));
  }

  std::string parse_name() {
    const size_t start = pos_;
    if (!is_name_start(peek())) fail(pos_, "a rule name is needed here");
    while (is_name_char(pos_)) ++pos_;
    return std::string(text_.substr(start, pos_ - start));
  }

  Name& rule_named(const std::string& name, size_t use) {
    const auto [at, created] = names_.try_emplace(name, Name{static_cast<int>(rules_.size()), false, use});
    if (created) {
      if (names_.size() > static_cast<size_t>(GrammarLimits::kRules)) {
        fail(use, format("there are more than the %d rules that are allowed", GrammarLimits::kRules));
      }
      rules_.push_back({name, {}});
    }
    return at->second;
  }

  void parse_rule() {
    const size_t start = pos_;
    const std::string name = parse_name();
    skip_blanks(false);
    if (!take("::=")) fail(pos_, "'::=' is needed after the rule name " + quote(name));
    Name& rule = rule_named(name, start);
    if (rule.defined) fail(start, "rule " + quote(name) + " is defined twice");
    rule.defined = true;
    const int index = rule.index;
    skip_blanks(true);
    Expression body = parse_alternatives(0);
    rules_[index].body = std::move(body);
    if (!at_end() && peek() != '\n' && peek() != '\r') {
      fail(pos_, peek() == ')' ? "this ')' closes nothing" : "the end of the rule is needed here");
    }
  }

  Expression parse_alternatives(int depth) {
    std::vector<Expression> list;
    do {
      skip_blanks(true);
      list.push_back(parse_sequence(depth));
      skip_blanks(depth > 0);
    } while (take("|"));
    return alternatives(std::move(list));
  }

  Expression parse_sequence(int depth) {
    std::vector<Expression> parts;
    while (true) {
      skip_blanks(depth > 0);
      // After an empty alternative the next rule may follow on its own line.
      std::optional<Expression> part = parse_element(depth);
      if (!part) break;
      parts.push_back(std::move(*part));
    }
    return sequence_of(std::move(parts));
  }

  /// True when a rule definition begins here rather than a reference.
  bool at_definition() const {
    size_t at = pos_;
    while (is_name_char(at)) ++at;
    while (at < text_.size() && (text_[at] == ' ' || text_[at] == '\t')) ++at;
    return text_.substr(at, 3) == "::=";
  }

  std::optional<Expression> parse_element(int depth) {
    Expression element;
    const size_t start = pos_;
    const char c = peek();
    if (at_end()) return std::nullopt;
    if (c == '"') {
      element = parse_literal();
    } else if (c == '[') {
      element = chars(parse_class());
    } else if (is_name_start(c)) {
      if (at_definition()) {
        if (depth > 0) fail(pos_, "a rule begins inside parentheses");
        rewind_to_line_start();
        return std::nullopt;
      }
      const std::string name = parse_name();
      element = reference(rule_named(name, start).index);
    } else if (c == '.') {
      ++pos_;
      element = chars(CharSet::all());
    } else if (c == '(') {
      if (depth >= GrammarLimits::kDepth) {
        fail(pos_, format("parentheses are nested deeper than the %d levels that are allowed",
                          GrammarLimits::kDepth));
      }
      ++pos_;
      element = parse_alternatives(depth + 1);
      if (!take(")"))
        fail(at_end() ? start : pos_, at_end() ? "this '(' is not closed" : "')' is needed here");
    } else if (c == '<' || (c == '!' && peek(1) == '<')) {
      element = parse_token();
    } else if (c == '*' || c == '+' || c == '?' || c == '{') {
      fail(pos_, "there is nothing before this repetition");
    } else if (c == '|' || c == ')' || c == '\n' || c == '\r') {
      return std::nullopt;
    } else {
      fail(pos_, "unexpected " + quote(text_.substr(pos_, next_utf8(text_.substr(pos_)).size)));
    }
    return parse_postfixes(std::move(element), depth);
  }

  /// parse_alternatives skips line ends after `::=` and `|`; when a definition follows, the alternative was
  /// empty and the rule ended on the line before.
  void rewind_to_line_start() {
    size_t at = pos_;
    while (at > 0 && (text_[at - 1] == ' ' || text_[at - 1] == '\t')) --at;
    if (at == 0 || (text_[at - 1] != '\n' && text_[at - 1] != '\r'))
      fail(pos_, "a rule must begin on a line of its own");
    pos_ = at - 1;
  }

  Expression parse_postfixes(Expression element, int depth) {
    for (int stacked = 0;; ++stacked) {
      skip_blanks(depth > 0);
      const char c = peek();
      if (c != '*' && c != '+' && c != '?' && c != '{') return element;
      if (stacked >= 16) fail(pos_, "more than 16 repetitions are stacked on one element");
      ++pos_;
      if (c == '*') {
        element = star(std::move(element));
      } else if (c == '+') {
        element = repeat(std::move(element), 1, kUnbounded);
      } else if (c == '?') {
        element = optional(std::move(element));
      } else {
        const auto [min, max] = parse_counts();
        element = repeat(std::move(element), min, max);
      }
    }
  }

  std::pair<int, int> parse_counts() {
    const size_t start = pos_ - 1;
    const auto number = [&]() -> std::optional<int> {
      skip_blanks(true);
      if (peek() < '0' || peek() > '9') return std::nullopt;
      int value = 0;
      while (peek() >= '0' && peek() <= '9') {
        value = value * 10 + (text_[pos_++] - '0');
        if (value > GrammarLimits::kRepetitions) {
          fail(start,
               format("a repetition is larger than the %d that are allowed", GrammarLimits::kRepetitions));
        }
      }
      skip_blanks(true);
      return value;
    };
    std::optional<int> min = number();
    std::optional<int> max = min;
    if (take(",")) {
      max = number();
      if (!min && !max) fail(start, "this repetition has no number");
      if (!min) min = 0;
      if (!max) max = kUnbounded;
    }
    if (!min) fail(start, "this repetition has no number");
    if (!take("}")) fail(pos_, "'}' is needed here");
    if (*max != kUnbounded && *max < *min) fail(start, "this repetition has its numbers in the wrong order");
    return {*min, *max};
  }

  int32_t parse_hex(int digits, size_t start) {
    int32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const char c = peek();
      int digit;
      if (c >= '0' && c <= '9') {
        digit = c - '0';
      } else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) {
        digit = (c | 0x20) - 'a' + 10;
      } else {
        fail(start, format("this escape needs %d hexadecimal digits", digits));
      }
      if (value > 0x10ffff) fail(start, "this escape is no Unicode character");
      value = value * 16 + digit;
      ++pos_;
    }
    if (value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff))
      fail(start, "this escape is no Unicode character");
    return value;
  }

  int32_t parse_char() {
    const size_t start = pos_;
    if (peek() != '\\') return read_utf8(text_, pos_);
    pos_ += 2;
    if (pos_ > text_.size()) fail(start, "this escape is not complete");
    switch (text_[pos_ - 1]) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'x':
        return parse_hex(2, start);
      case 'u':
        return parse_hex(4, start);
      case 'U':
        return parse_hex(8, start);
      case '\\':
      case '"':
      case '[':
      case ']':
      case '\'':
      case '/':
      case '-':
      case '^':
        return text_[pos_ - 1];
      default:
        fail(start, "unknown escape " + quote(text_.substr(start, 2)));
    }
  }

  Expression parse_literal() {
    const size_t start = pos_++;
    std::string text;
    while (peek() != '"' || at_end()) {
      if (at_end() || peek() == '\n') fail(start, "this '\"' is not closed on its line");
      append_utf8(text, parse_char());
    }
    ++pos_;
    return literal(text);
  }

  CharSet parse_class() {
    const size_t start = pos_++;
    const bool negated = take("^");
    CharSet set;
    while (peek() != ']' || at_end()) {
      if (at_end() || peek() == '\n') fail(start, "this '[' is not closed on its line");
      const size_t first = pos_;
      const int32_t low = parse_char();
      int32_t high = low;
      if (peek() == '-' && peek(1) != ']' && pos_ + 1 < text_.size()) {
        ++pos_;
        if (peek() == '\n') fail(start, "this '[' is not closed on its line");
        high = parse_char();
        if (high < low) fail(first, "this range has its ends in the wrong order");
      }
      set.add(low, high);
    }
    ++pos_;
    if (set.empty() && !negated) fail(start, "this class is empty");
    return negated ? set.complement() : set;
  }

  /// `<text>`: the token with that text, the brackets included; `<[id]>`: the token with that id; `!`: any
  /// other token.
  Expression parse_token() {
    const size_t start = pos_;
    const bool negated = take("!");
    const size_t open = pos_++;
    std::optional<int32_t> id;
    if (take("[")) {
      int64_t value = -1;
      while (peek() >= '0' && peek() <= '9' && value < trie_.vocab_size()) {
        value = std::max<int64_t>(value, 0) * 10 + (text_[pos_++] - '0');
      }
      if (value < 0 || !take("]>")) fail(start, "a token is written <[ID]>");
      if (value >= trie_.vocab_size()) {
        fail(start, format("the token id is outside the vocabulary of %d tokens", trie_.vocab_size()));
      }
      id = static_cast<int32_t>(value);
    } else {
      while (!at_end() && peek() != '>' && peek() != '\n') ++pos_;
      if (!take(">")) fail(start, "this '<' is not closed on its line");
      const std::string_view name = text_.substr(open, pos_ - open);
      id = trie_.find(name);
      if (!id) fail(start, "the vocabulary has no token " + quote(name));
    }
    if (trie_.is_end(*id) && !negated)
      fail(start, "a token that ends the output cannot be part of a grammar");
    Expression e;
    e.kind = Expression::Kind::Tokens;
    if (!negated) {
      e.ids = {*id};
      return e;
    }
    for (int32_t other = 0; other < trie_.vocab_size(); ++other) {
      if (other != *id && trie_.is_text(other)) e.ids.push_back(other);
    }
    return e;
  }

  std::string_view text_;
  const TokenTrie& trie_;
  Rules& rules_;
  size_t pos_ = 0;
  std::map<std::string, Name> names_;
};

}  // namespace

int parse_gbnf(std::string_view text, const TokenTrie& trie, Rules& rules) {
  return GbnfParser(text, trie, rules).parse();
}

}  // namespace vllm

// Regular expressions of structured output and of JSON Schema's `pattern`.
#include <optional>

#include "base/error.h"
#include "constrain/front_ends.h"
#include "constrain/json_text.h"
#include "text/unicode.h"

namespace vllm {
namespace {

CharSet digit_chars() { return {{'0', '9'}}; }
CharSet word_chars() { return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}; }
CharSet space_chars() { return {{'\t', '\r'}, {' ', ' '}}; }

/// One alternative of the whole pattern, and whether `^` and `$` pin its ends.
struct Alternative {
  Expression body;
  bool begin = false;
  bool end = false;
};

class RegexParser {
 public:
  explicit RegexParser(std::string_view text) : text_(text) {}

  std::vector<Alternative> parse() {
    if (text_.size() > GrammarLimits::kTextBytes) {
      fail_argument("The regular expression has %zu bytes, allowed are %zu.", text_.size(),
                    GrammarLimits::kTextBytes);
    }
    if (const size_t bad = find_invalid_utf8(text_); bad != std::string_view::npos) {
      fail(bad, "it is no valid UTF-8 here");
    }
    if (const size_t nul = text_.find('\0'); nul != std::string_view::npos)
      fail(nul, "it holds a NUL character");
    std::vector<Alternative> list = parse_alternatives(0);
    if (!at_end()) fail(pos_, "this ')' closes nothing");
    return list;
  }

 private:
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
    fail_argument("Regular expression %s, %zu:%zu: %s.", quote(text_, 60).c_str(), line, column,
                  what.c_str());
  }

  bool at_end() const { return pos_ >= text_.size(); }
  char peek(size_t ahead = 0) const { return pos_ + ahead < text_.size() ? text_[pos_ + ahead] : '\0'; }
  bool take(std::string_view word) {
    if (text_.substr(pos_, word.size()) != word) return false;
    pos_ += word.size();
    return true;
  }

  std::vector<Alternative> parse_alternatives(int depth) {
    std::vector<Alternative> list;
    do {
      for (Alternative& alternative : parse_sequence(depth)) list.push_back(std::move(alternative));
    } while (take("|"));
    return list;
  }

  /// Several when the sequence is nothing but a group whose alternatives have anchors of their own.
  std::vector<Alternative> parse_sequence(int depth) {
    Alternative result;
    std::vector<Expression> parts;
    while (!at_end() && peek() != '|' && peek() != ')') {
      const size_t start = pos_;
      if (take("^")) {
        if (!parts.empty()) fail(start, "'^' may stand at the beginning only");
        refuse_repetition();
        result.begin = true;
        continue;
      }
      if (take("$")) {
        refuse_repetition();
        result.end = true;
        continue;
      }
      if (result.end) fail(start - 1, "'$' may stand at the end only");
      if (take("(")) {
        std::vector<Alternative> inner = parse_group(depth, start);
        bool anchored = false;
        for (const Alternative& alternative : inner) anchored |= alternative.begin || alternative.end;
        const bool alone = parts.empty() && !is_repetition() && (at_end() || peek() == '|' || peek() == ')');
        if (anchored) {
          if (!alone) fail(start, "anchors inside this group are not at the ends of the pattern");
          for (Alternative& alternative : inner) alternative.begin |= result.begin;
          return inner;
        }
        std::vector<Expression> bodies;
        for (Alternative& alternative : inner) bodies.push_back(std::move(alternative.body));
        parts.push_back(parse_repetition(alternatives(std::move(bodies))));
        continue;
      }
      parts.push_back(parse_repetition(parse_atom()));
    }
    result.body = sequence_of(std::move(parts));
    std::vector<Alternative> list;
    list.push_back(std::move(result));
    return list;
  }

  std::vector<Alternative> parse_group(int depth, size_t start) {
    if (depth >= GrammarLimits::kDepth) {
      fail(start,
           format("groups are nested deeper than the %d levels that are allowed", GrammarLimits::kDepth));
    }
    if (take("?")) {
      const char c = peek();
      if (c == '=' || c == '!' || (c == '<' && (peek(1) == '=' || peek(1) == '!'))) {
        fail(start, "lookaround is not supported");
      }
      if (c == 'P' || c == '<' || c == '\'') fail(start, "named groups are not supported");
      if (c == '(') fail(start, "conditional groups are not supported");
      if (c != ':') fail(start, "inline flags and this kind of group are not supported");
      ++pos_;
    }
    std::vector<Alternative> inner = parse_alternatives(depth + 1);
    if (!take(")")) fail(start, "this '(' is not closed");
    return inner;
  }

  bool is_repetition() const {
    const char c = peek();
    return !at_end() && (c == '*' || c == '+' || c == '?' || (c == '{' && is_counts()));
  }
  void refuse_repetition() const {
    if (is_repetition()) fail(pos_, "an anchor cannot be repeated");
  }
  /// `{m}`, `{m,}` or `{m,n}`; any other brace is a character.
  bool is_counts() const {
    size_t at = pos_ + 1;
    const auto digits = [&] {
      const size_t first = at;
      while (at < text_.size() && text_[at] >= '0' && text_[at] <= '9') ++at;
      return at > first;
    };
    if (!digits()) return false;
    if (at < text_.size() && text_[at] == ',') {
      ++at;
      digits();
    }
    return at < text_.size() && text_[at] == '}';
  }

  Expression parse_repetition(Expression part) {
    for (int stacked = 0; is_repetition(); ++stacked) {
      const size_t start = pos_;
      if (stacked > 0) fail(start, "a repetition cannot be repeated without a group");
      int min = 0, max = kUnbounded;
      if (take("+")) {
        min = 1;
      } else if (take("?")) {
        max = 1;
      } else if (!take("*")) {
        ++pos_;
        min = max = parse_count(start);
        if (take(",")) max = peek() == '}' ? kUnbounded : parse_count(start);
        ++pos_;
        if (max != kUnbounded && max < min) fail(start, "this repetition has its numbers in the wrong order");
      }
      part = repeat(std::move(part), min, max);
      // Lazy and possessive marks choose among matches; which texts match is the same.
      if (peek() == '?' || peek() == '+') ++pos_;
    }
    return part;
  }

  int parse_count(size_t start) {
    int value = 0;
    while (peek() >= '0' && peek() <= '9') {
      value = value * 10 + (text_[pos_++] - '0');
      if (value > GrammarLimits::kRepetitions) {
        fail(start,
             format("a repetition is larger than the %d that are allowed", GrammarLimits::kRepetitions));
      }
    }
    return value;
  }

  Expression parse_atom() {
    const size_t start = pos_;
    const char c = peek();
    if (c == '.') {
      ++pos_;
      return chars(CharSet{{'\n', '\n'}}.complement());
    }
    if (c == '[') return chars(parse_class());
    if (c == '\\') return chars(parse_escape(false));
    if (is_repetition()) fail(start, "there is nothing before this repetition");
    const int32_t character = read_utf8(text_, pos_);
    return chars({{character, character}});
  }

  CharSet parse_class() {
    const size_t start = pos_++;
    const bool negated = take("^");
    CharSet set;
    for (bool first = true; first || peek() != ']' || at_end(); first = false) {
      if (at_end()) fail(start, "this '[' is not closed");
      const size_t from = pos_;
      if (take("[:")) fail(from, "POSIX classes are not supported");
      const CharSet low = peek() == '\\' ? parse_escape(true) : one_char();
      if (peek() == '-' && peek(1) != ']' && pos_ + 1 < text_.size()) {
        ++pos_;
        const CharSet high = peek() == '\\' ? parse_escape(true) : one_char();
        const auto single = [](const CharSet& s) {
          return s.ranges().size() == 1 && s.ranges()[0].low == s.ranges()[0].high;
        };
        if (!single(low) || !single(high)) fail(from, "a range needs one character at each end");
        if (high.ranges()[0].low < low.ranges()[0].low)
          fail(from, "this range has its ends in the wrong order");
        set.add(low.ranges()[0].low, high.ranges()[0].low);
      } else {
        set.add(low);
      }
    }
    ++pos_;
    return negated ? set.complement() : set;
  }

  CharSet one_char() {
    const int32_t c = read_utf8(text_, pos_);
    return {{c, c}};
  }

  CharSet parse_escape(bool in_class) {
    const size_t start = pos_++;
    if (at_end()) fail(start, "this escape is not complete");
    const char c = text_[pos_];
    const auto single = [](int32_t character) { return CharSet{{character, character}}; };
    if ((c & 0x80) == 0) ++pos_;
    switch (c) {
      case 'd':
        return digit_chars();
      case 'D':
        return digit_chars().complement();
      case 'w':
        return word_chars();
      case 'W':
        return word_chars().complement();
      case 's':
        return space_chars();
      case 'S':
        return space_chars().complement();
      case 'n':
        return single('\n');
      case 'r':
        return single('\r');
      case 't':
        return single('\t');
      case 'f':
        return single('\f');
      case 'v':
        return single('\v');
      case 'x':
        return single(parse_hex(2, start, in_class));
      case 'u':
        return single(parse_hex(4, start, in_class));
      case 'b':
        if (in_class) return single('\b');
        [[fallthrough]];
      case 'B':
        fail(start, "word boundaries are not supported");
      case 'p':
      case 'P':
        fail(start, "Unicode properties are not supported");
      case 'A':
      case 'Z':
      case 'z':
        fail(start, "only '^' and '$' are supported as anchors");
      case 'k':
        fail(start, "backreferences are not supported");
      case '0':
        fail(start, "it holds a NUL character");
      default:
        break;
    }
    if (c >= '1' && c <= '9') fail(start, "backreferences are not supported");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
      fail(start, "unknown escape " + quote(text_.substr(start, 2)));
    if ((c & 0x80) == 0) return single(c);
    return one_char();
  }

  int32_t parse_hex(int digits, size_t start, bool nul_allowed) {
    const auto unit = [&] {
      int32_t value = 0;
      for (int i = 0; i < digits; ++i) {
        const char c = peek();
        if (c >= '0' && c <= '9') {
          value = value * 16 + (c - '0');
        } else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) {
          value = value * 16 + ((c | 0x20) - 'a' + 10);
        } else {
          fail(start, format("this escape needs %d hexadecimal digits", digits));
        }
        ++pos_;
      }
      return value;
    };
    int32_t value = unit();
    if (digits == 4 && value >= 0xd800 && value <= 0xdbff && take("\\u")) {
      const int32_t low = unit();
      if (low < 0xdc00 || low > 0xdfff) fail(start, "this escape is half of a surrogate pair");
      return 0x10000 + ((value - 0xd800) << 10) + (low - 0xdc00);
    }
    if (value >= 0xd800 && value <= 0xdfff) fail(start, "this escape is half of a surrogate pair");
    if (value == 0 && !nul_allowed) fail(start, "it holds a NUL character");
    return value;
  }

  std::string_view text_;
  size_t pos_ = 0;
};

/// The expression with every character spelt as inside a JSON string.
Expression spelt(Expression e) {
  if (e.kind == Expression::Kind::Chars) return json_spelling(e.chars);
  for (Expression& part : e.parts) part = spelt(std::move(part));
  return e;
}

}  // namespace

Expression parse_regex(std::string_view pattern) {
  std::vector<Expression> bodies;
  for (Alternative& alternative : RegexParser(pattern).parse()) bodies.push_back(std::move(alternative.body));
  return alternatives(std::move(bodies));
}

Expression parse_string_pattern(std::string_view pattern) {
  std::vector<Expression> bodies;
  for (Alternative& alternative : RegexParser(pattern).parse()) {
    std::vector<Expression> parts;
    if (!alternative.begin) parts.push_back(star(json_string_char()));
    parts.push_back(spelt(std::move(alternative.body)));
    if (!alternative.end) parts.push_back(star(json_string_char()));
    bodies.push_back(sequence_of(std::move(parts)));
  }
  return alternatives(std::move(bodies));
}

Expression parse_choice(const std::vector<std::string>& choices) {
  if (choices.empty()) fail_argument("The choice list is empty.");
  if (choices.size() > GrammarLimits::kChoices) {
    fail_argument("The choice list has %zu entries, allowed are %zu.", choices.size(),
                  GrammarLimits::kChoices);
  }
  std::vector<Expression> list;
  size_t total = 0;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i].empty()) fail_argument("Entry %zu of the choice list is empty.", i);
    if (find_invalid_utf8(choices[i]) != std::string::npos) {
      fail_argument("Entry %zu of the choice list is no valid UTF-8.", i);
    }
    total += choices[i].size();
    list.push_back(literal(choices[i]));
  }
  if (total > GrammarLimits::kTextBytes) {
    fail_argument("The choice list has %zu bytes, allowed are %zu.", total, GrammarLimits::kTextBytes);
  }
  return alternatives(std::move(list));
}

}  // namespace vllm

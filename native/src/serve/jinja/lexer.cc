#include "serve/jinja/lexer.h"

#include <charconv>
#include <cstdlib>

#include "base/error.h"
#include "serve/jinja/runtime.h"
#include "serve/jinja/unicode_text.h"
#include "text/unicode.h"

namespace vllm::jinja {

void fail_at(std::string_view source, size_t offset, const std::string& message) {
  fail_argument("Chat template at %s: %s", describe_position(source, offset).c_str(), message.c_str());
}

std::string normalize_source(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(const std::string& source) : source_(source) {}

  std::vector<Token> run() {
    while (pos_ < source_.size()) root();
    add(TokenType::End, source_.size());
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(size_t offset, const std::string& message) const {
    fail_at(source_, offset, message);
  }

  char at(size_t pos) const { return pos < source_.size() ? source_[pos] : '\0'; }
  bool has(size_t pos, std::string_view text) const { return source_.compare(pos, text.size(), text) == 0; }

  Token& add(TokenType type, size_t offset) {
    tokens_.push_back({});
    tokens_.back().type = type;
    tokens_.back().offset = static_cast<uint32_t>(offset);
    return tokens_.back();
  }

  size_t skip_space(size_t pos) const {
    while (pos < source_.size()) {
      size_t next = pos;
      if (!is_space(read_utf8(source_, next))) break;
      pos = next;
    }
    return pos;
  }

  /// The end of `[+-]?` + symbol at `pos` with the white space it takes; 0 when it is not there.
  size_t tag_end(size_t pos, std::string_view symbol, bool may_keep, bool trims) const {
    if (at(pos) == '-' && has(pos + 1, symbol)) return skip_space(pos + 1 + symbol.size());
    if (may_keep && at(pos) == '+' && has(pos + 1, symbol)) return pos + 1 + symbol.size();
    if (!has(pos, symbol)) return 0;
    const size_t end = pos + symbol.size();
    return trims && at(end) == '\n' ? end + 1 : end;
  }

  /// A text token for [begin, end), which a tag with `sign` follows.
  void add_text(size_t begin, size_t end, char sign, bool is_print) {
    std::string_view text = std::string_view(source_).substr(begin, end - begin);
    if (sign == '-') {
      text = strip_right(text);
    } else if (sign != '+' && !is_print) {
      const size_t line = text.rfind('\n') + 1;  // 0 when there is none
      const std::string_view indent = text.substr(line);
      if ((line > 0 || line_starting_) && !indent.empty() && strip_left(indent).empty())
        text = text.substr(0, line);
    }
    if (!text.empty()) add(TokenType::Text, begin).text = text;
  }

  void move_to(size_t pos) {
    line_starting_ = source_[pos - 1] == '\n';
    pos_ = pos;
  }

  void root() {
    size_t tag = source_.find('{', pos_);
    while (tag != std::string::npos && at(tag + 1) != '%' && at(tag + 1) != '{' && at(tag + 1) != '#') {
      tag = source_.find('{', tag + 1);
    }
    if (tag == std::string::npos) {
      add(TokenType::Text, pos_).text = source_.substr(pos_);
      pos_ = source_.size();
      return;
    }
    const char kind = source_[tag + 1];
    const char sign = at(tag + 2) == '-' || at(tag + 2) == '+' ? at(tag + 2) : '\0';
    add_text(pos_, tag, sign, kind == '{');
    const size_t inside = tag + (sign ? 3 : 2);
    if (kind == '#') {
      comment(tag, inside);
    } else if (kind == '{') {
      add(TokenType::PrintBegin, tag);
      expression(inside, TokenType::PrintEnd, tag);
    } else if (!raw(tag, inside)) {
      add(TokenType::BlockBegin, tag);
      expression(inside, TokenType::BlockEnd, tag);
    }
  }

  void comment(size_t tag, size_t pos) {
    if (pos == source_.size()) return move_to(pos);  // as in Jinja, a tag that ends the source may stay open
    for (; pos < source_.size(); ++pos) {
      if (const size_t end = tag_end(pos, "#}", true, true)) return move_to(end);
    }
    fail(tag, "the comment has no end '#}'.");
  }

  bool raw(size_t tag, size_t inside) {
    size_t pos = skip_space(inside);
    if (!has(pos, "raw")) return false;
    pos = skip_space(pos + 3);
    const size_t begin = tag_end(pos, "%}", false, false);
    if (begin == 0) return false;
    move_to(begin);
    if (begin == source_.size()) return true;
    for (size_t end = source_.find("{%", begin); end != std::string::npos;
         end = source_.find("{%", end + 1)) {
      const char sign = at(end + 2) == '-' || at(end + 2) == '+' ? at(end + 2) : '\0';
      size_t word = skip_space(end + (sign ? 3 : 2));
      if (!has(word, "endraw")) continue;
      const size_t after = tag_end(skip_space(word + 6), "%}", true, true);
      if (after == 0) continue;
      add_text(begin, end, sign, false);
      move_to(after);
      return true;
    }
    fail(tag, "the raw block has no end.");
  }

  void expression(size_t pos, TokenType end_type, size_t tag) {
    const std::string_view symbol = end_type == TokenType::PrintEnd ? "}}" : "%}";
    std::string open;  // brackets that wait for their partner, innermost last
    pos_ = pos;
    while (pos_ < source_.size()) {
      if (open.empty()) {
        if (const size_t end =
                tag_end(pos_, symbol, end_type == TokenType::BlockEnd, end_type == TokenType::BlockEnd)) {
          add(end_type, pos_);
          return move_to(end);
        }
      }
      const size_t after_space = skip_space(pos_);
      if (after_space != pos_) {
        pos_ = after_space;
        continue;
      }
      token(open);
    }
    fail(tag,
         end_type == TokenType::PrintEnd ? "the expression has no end '}}'." : "the tag has no end '%}'.");
  }

  void token(std::string& open) {
    const char c = source_[pos_];
    if (is_digit(c)) return number();
    if (c == '\'' || c == '"') return string();
    size_t end = pos_;
    while (end < source_.size()) {
      size_t next = end;
      const int32_t point = read_utf8(source_, next);
      if (!(point < 0x80 ? std::isalnum(point) || point == '_' : is_word_char(point))) break;
      end = next;
    }
    if (end > pos_) {
      add(TokenType::Name, pos_).text = source_.substr(pos_, end - pos_);
      pos_ = end;
      return;
    }
    static constexpr std::string_view kDouble[] = {"//", "**", "==", "!=", ">=", "<="};
    for (const std::string_view symbol : kDouble) {
      if (has(pos_, symbol)) return op(symbol.size(), open);
    }
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) != std::string_view::npos) return op(1, open);
    size_t next = pos_;
    read_utf8(source_, next);
    fail(pos_, "unexpected character " + quote(std::string_view(source_).substr(pos_, next - pos_)) + ".");
  }

  void op(size_t size, std::string& open) {
    const std::string symbol = source_.substr(pos_, size);
    const char c = symbol[0];
    if (c == '(' || c == '[' || c == '{') {
      if (open.size() >= 1000) fail(pos_, "brackets are nested too deeply.");
      open += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) fail(pos_, "unexpected '" + symbol + "'.");
      if (open.back() != c) fail(pos_, "unexpected '" + symbol + "', expected '" + open.back() + "'.");
      open.pop_back();
    }
    add(TokenType::Operator, pos_).text = symbol;
    pos_ += size;
  }

  /// End of digits with single underscores between them, from `pos` on.
  template <typename IsDigit>
  size_t digits(size_t pos, IsDigit good) const {
    while (good(at(pos)) || (at(pos) == '_' && pos > 0 && good(source_[pos - 1]) && good(at(pos + 1)))) ++pos;
    return pos;
  }

  void number() {
    const size_t begin = pos_;
    size_t end = digits(begin, is_digit);
    bool is_float = false;
    if (begin == 0 || source_[begin - 1] != '.') {
      if (at(end) == '.' && is_digit(at(end + 1))) {
        end = digits(end + 1, is_digit);
        is_float = true;
      }
      if (at(end) == 'e' || at(end) == 'E') {
        const size_t sign = at(end + 1) == '+' || at(end + 1) == '-' ? 1 : 0;
        if (is_digit(at(end + 1 + sign))) {
          end = digits(end + 1 + sign, is_digit);
          is_float = true;
        }
      }
    }
    if (is_float) {
      std::string text;
      for (size_t i = begin; i < end; ++i) {
        if (source_[i] != '_') text += source_[i];
      }
      double value = 0;
      const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
      if (result.ec == std::errc::result_out_of_range) value = std::strtod(text.c_str(), nullptr);
      add(TokenType::Float, begin).number = value;
      pos_ = end;
      return;
    }
    integer(begin);
  }

  void integer(size_t begin) {
    int base = 10;
    size_t first = begin;
    if (source_[begin] == '0') {
      const char letter = static_cast<char>(at(begin + 1) | 0x20);
      base = letter == 'b' ? 2 : letter == 'o' ? 8 : letter == 'x' ? 16 : 10;
      if (base != 10) first = begin + 2;
    }
    const auto good = [base](char c) {
      const int value = is_digit(c)                                    ? c - '0'
                        : std::isxdigit(static_cast<unsigned char>(c)) ? (c | 0x20) - 'a' + 10
                                                                       : 99;
      return value < base;
    };
    if (base != 10 && at(first) == '_' && good(at(first + 1))) ++first;
    size_t end = digits(first, good);
    if (base != 10 && end == first) {
      base = 10;
      first = begin;
      end = begin + 1;
    }
    if (base == 10 && source_[begin] == '0') end = digits(begin, [](char c) { return c == '0'; });
    std::string text;
    for (size_t i = first; i < end; ++i) {
      if (source_[i] != '_') text += source_[i];
    }
    int64_t value = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (result.ec != std::errc()) fail(begin, "the integer does not fit in 64 bits.");
    add(TokenType::Integer, begin).integer = value;
    pos_ = end;
  }

  void string() {
    const size_t begin = pos_;
    size_t end = begin + 1;
    while (end < source_.size() && source_[end] != source_[begin]) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail(begin, "the string has no end.");
    std::string text = unescape(begin + 1, end);
    add(TokenType::String, begin).text = std::move(text);
    pos_ = end + 1;
  }

  /// Escapes as in a Python literal.
  std::string unescape(size_t pos, size_t end) const {
    std::string out;
    while (pos < end) {
      if (source_[pos] != '\\') {
        out += source_[pos++];
        continue;
      }
      const size_t start = pos++;
      const char c = source_[pos];
      if (c & 0x80) {
        // Python escapes the character first, and then takes the two backslashes for one.
        const auto point = static_cast<unsigned>(read_utf8(source_, pos));
        out += '\\';
        out += format(point < 0x100 ? "x%02x" : point < 0x10000 ? "u%04x" : "U%08x", point);
        continue;
      }
      ++pos;
      static constexpr std::string_view kLetters = "abfnrtv\\'\"", kValues = "\a\b\f\n\r\t\v\\'\"";
      if (const size_t at = kLetters.find(c); at != std::string_view::npos) {
        out += kValues[at];
      } else if (c == '\n') {
        continue;
      } else if (c >= '0' && c <= '7') {
        int32_t point = c - '0';
        for (int i = 0; i < 2 && pos < end && source_[pos] >= '0' && source_[pos] <= '7'; ++i) {
          point = point * 8 + (source_[pos++] - '0');
        }
        append_utf8(out, point);
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t size = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        uint32_t point = 0;
        const char* first = source_.data() + pos;
        if (end - pos < size || std::from_chars(first, first + size, point, 16).ptr != first + size) {
          fail(start, format("the escape \\%c needs %zu hexadecimal digits.", c, size));
        }
        if (point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) {
          fail(start, "the escape is no character of Unicode.");
        }
        append_utf8(out, static_cast<int32_t>(point));
        pos += size;
      } else if (c == 'N') {
        fail(start, "characters by name (\\N) are not supported.");
      } else {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  const std::string& source_;
  std::vector<Token> tokens_;
  size_t pos_ = 0;
  bool line_starting_ = true;
};

}  // namespace

std::vector<Token> tokenize(const std::string& source) { return Lexer(source).run(); }

}  // namespace vllm::jinja

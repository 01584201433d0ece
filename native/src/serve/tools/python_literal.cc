#include "serve/tools/python_literal.h"

#include <charconv>
#include <cmath>
#include <set>

#include "base/json.h"
#include "serve/parsing/reader.h"
#include "serve/tools/tool_schemas.h"
#include "text/unicode.h"

namespace vllm {
namespace {

constexpr int kMaxDepth = 100;
constexpr size_t kMaxBrackets = 512;

bool is_name_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Literal {
 public:
  explicit Literal(std::string_view text) : text_(text) {}

  bool whole_value(std::string* json) { return value(json, 0) && at_end(); }

  bool whole_arguments(std::string* json) {
    std::set<std::string> names;
    *json = "{";
    space();
    while (at_ < text_.size()) {
      const std::string name = word();
      if (name.empty() || is_digit(name[0]) || !names.insert(name).second || !take('=')) return false;
      *json += (names.size() > 1 ? ", " : "") + json_quote(name) + ": ";
      if (!value(json, 0)) return false;
      if (!take(',')) break;
      space();
    }
    *json += "}";
    return at_end();
  }

 private:
  void space() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }
  bool at_end() {
    space();
    return at_ == text_.size();
  }
  char next() {
    space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (next() != c) return false;
    ++at_;
    return true;
  }
  std::string word() {
    space();
    const size_t from = at_;
    while (at_ < text_.size() && is_name_byte(text_[at_])) ++at_;
    return std::string(text_.substr(from, at_ - from));
  }

  bool value(std::string* json, int depth) {
    if (depth > kMaxDepth) return false;
    const char first = next();
    if (first == '[') return list(']', json, depth);
    if (first == '(') return list(')', json, depth);
    if (first == '{') return braces(json, depth);
    if (first == '"' || first == '\'') return strings(json);
    if (first == '-' || first == '+' || first == '.' || is_digit(first)) return number(json);
    const size_t from = at_;
    const std::string name = word();
    if (name == "True" || name == "true") return *json += "true", true;
    if (name == "False" || name == "false") return *json += "false", true;
    if (name == "None" || name == "null") return *json += "null", true;
    if (at_ < text_.size() && (text_[at_] == '"' || text_[at_] == '\'') && name.size() <= 2 &&
        !name.empty()) {
      at_ = from;
      return strings(json);
    }
    return false;
  }

  /// [a, b], (a, b) or {a, b}. A single value in parentheses is that value.
  bool list(char close, std::string* json, int depth) {
    ++at_;
    std::string items;
    int count = 0;
    bool comma = false;
    while (next() != close) {
      if (count > 0 && !comma) return false;
      if (count > 0) items += ", ";
      if (!value(&items, depth + 1)) return false;
      ++count;
      comma = take(',');
    }
    ++at_;
    const bool grouped = close == ')' && count == 1 && !comma;
    *json += grouped ? items : "[" + items + "]";
    return true;
  }

  bool braces(std::string* json, int depth) {
    const size_t from = at_;
    ++at_;
    if (take('}')) return *json += "{}", true;
    std::string key;
    if (!value(&key, depth + 1)) return false;
    if (next() != ':') {
      at_ = from;
      return list('}', json, depth);
    }
    std::string items;
    std::set<std::string> keys;
    for (;;) {
      if (!take(':')) return false;
      // A key that is no string becomes the string of its value, as in Python's json module.
      if (key.front() != '"') key = json_quote(key);
      if (!keys.insert(key).second) return false;
      items += (keys.size() > 1 ? ", " : "") + key + ": ";
      if (!value(&items, depth + 1)) return false;
      const bool comma = take(',');
      if (take('}')) break;
      key.clear();
      if (!comma || !value(&key, depth + 1)) return false;
    }
    *json += "{" + items + "}";
    return true;
  }

  /// Adjacent strings are one string.
  bool strings(std::string* json) {
    std::string decoded;
    for (;;) {
      const size_t from = at_;
      const std::string prefix = word();
      const bool quote = at_ < text_.size() && (text_[at_] == '"' || text_[at_] == '\'');
      if (!quote || prefix.size() > 2 || prefix.find_first_not_of("rRuUfF") != prefix.npos) {
        at_ = from;
        break;
      }
      const bool raw = prefix.find_first_of("rR") != prefix.npos;
      const bool formatted = prefix.find_first_of("fF") != prefix.npos;
      if (!string(raw, formatted, &decoded)) return false;
    }
    *json += json_quote(decoded);
    return true;
  }

  bool string(bool raw, bool formatted, std::string* out) {
    const char quote = text_[at_];
    const std::string triple(3, quote);
    const bool is_triple = text_.substr(at_).starts_with(triple);
    at_ += is_triple ? 3 : 1;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (is_triple ? text_.substr(at_).starts_with(triple) : c == quote) {
        at_ += is_triple ? 3 : 1;
        return true;
      }
      if (c == '\\' && !raw) {
        if (!escape(out)) return false;
        continue;
      }
      if (formatted && (c == '{' || c == '}')) {
        // {{ and }} are braces; a field is an expression.
        if (at_ + 1 >= text_.size() || text_[at_ + 1] != c) return false;
        ++at_;
      }
      if (c == '\\' && raw && at_ + 1 < text_.size()) *out += text_[at_++];
      *out += text_[at_++];
    }
    return false;
  }

  bool hex(int digits, int32_t* code) {
    if (at_ + static_cast<size_t>(digits) > text_.size()) return false;
    const char* from = text_.data() + at_;
    const auto [end, error] = std::from_chars(from, from + digits, *code, 16);
    at_ += static_cast<size_t>(digits);
    return error == std::errc() && end == from + digits && *code >= 0;
  }

  bool escape(std::string* out) {
    ++at_;
    if (at_ >= text_.size()) return false;
    const char c = text_[at_++];
    static constexpr std::string_view kFrom = "abfnrtv\\'\"", kTo = "\a\b\f\n\r\t\v\\'\"";
    if (const size_t i = kFrom.find(c); i != kFrom.npos) return *out += kTo[i], true;
    if (c == '\n') return true;
    if (c == 'x' || c == 'u' || c == 'U') {
      int32_t code = 0;
      if (!hex(c == 'x' ? 2 : c == 'u' ? 4 : 8, &code)) return false;
      if (code >= 0xd800 && code < 0xdc00 && text_.substr(at_).starts_with("\\u")) {
        int32_t low = 0;
        at_ += 2;
        if (!hex(4, &low) || low < 0xdc00 || low > 0xdfff) return false;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
      }
      if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return false;
      append_utf8(*out, code);
      return true;
    }
    if (c >= '0' && c <= '7') {
      int32_t code = c - '0';
      for (int i = 0; i < 2 && at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '7'; ++i) {
        code = code * 8 + (text_[at_++] - '0');
      }
      append_utf8(*out, code);
      return true;
    }
    *out += '\\';
    *out += c;
    return true;
  }

  bool number(std::string* json) {
    const size_t from = at_;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      const bool exponent_sign =
          (c == '-' || c == '+') && (text_[at_ - (at_ > from)] == 'e' || text_[at_ - (at_ > from)] == 'E');
      if (at_ > from && !is_name_byte(c) && c != '.' && !exponent_sign) break;
      ++at_;
    }
    std::string text;
    for (const char c : text_.substr(from, at_ - from)) {
      if (c != '_') text += c;
    }
    const bool negative = text[0] == '-';
    if (negative || text[0] == '+') text.erase(0, 1);
    if (text.empty()) return false;
    if (text.find_first_not_of("0123456789") == text.npos) {
      if (text[0] == '0' && text.find_first_not_of('0') != text.npos) return false;  // as in Python
      if (text[0] == '0') text = "0";
      *json += (negative && text != "0" ? "-" : "") + text;
      return true;
    }
    if (text.size() > 2 && text[0] == '0' &&
        std::string_view("xXoObB").find(text[1]) != std::string_view::npos) {
      const int base = text[1] == 'x' || text[1] == 'X' ? 16 : text[1] == 'o' || text[1] == 'O' ? 8 : 2;
      uint64_t value = 0;
      const auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), value, base);
      if (error != std::errc() || end != text.data() + text.size()) return false;
      *json += (negative ? "-" : "") + std::to_string(value);
      return true;
    }
    double value = 0;
    if (text.find_first_not_of("0123456789.eE+-") != text.npos) return false;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return false;
    *json += dump_json(Json(negative ? -value : value));
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

bool python_literal_json(std::string_view text, std::string* json) {
  json->clear();
  return Literal(text).whole_value(json);
}

bool python_arguments_json(std::string_view text, std::string* json) {
  return Literal(text).whole_arguments(json);
}

size_t BracketScanner::scan(std::string_view bytes) {
  size_t at = 0;
  for (; at < bytes.size() && state_ == State::More; ++at) {
    const char c = bytes[at];
    if (opening_) {
      // Behind one or two quotes: a string, an empty string, or a triple quote.
      if (c == quote_ && ++run_ < 3) continue;
      opening_ = false;
      if (run_ == 3) {
        triple_ = true;
        run_ = 0;
        continue;
      }
      if (run_ == 2) quote_ = '\0';
      run_ = 0;
    }
    if (quote_ != '\0') {
      if (escaped_) {
        escaped_ = false;
        run_ = 0;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c != quote_) {
        run_ = 0;
      } else if (!triple_ || ++run_ == 3) {
        quote_ = '\0';
        triple_ = false;
        run_ = 0;
      }
      continue;
    }
    if (c == '"' || c == '\'') {
      quote_ = c;
      opening_ = true;
      run_ = 1;
    } else if (c == '(' || c == '[' || c == '{') {
      if (open_.size() >= kMaxBrackets) {
        state_ = State::Invalid;
        break;
      }
      open_ += c;
    } else if (c == ')' || c == ']' || c == '}') {
      const char needed = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (open_.empty() || open_.back() != needed) {
        state_ = State::Invalid;
        break;
      }
      open_.pop_back();
      if (open_.empty()) state_ = State::Done;
    }
  }
  return at;
}

}  // namespace vllm

#include "serve/jinja/format.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "serve/jinja/access.h"
#include "serve/jinja/methods.h"
#include "serve/jinja/numbers.h"
#include "serve/jinja/operators.h"
#include "serve/jinja/print.h"
#include "serve/jinja/unicode_text.h"
#include "text/unicode.h"

namespace vllm::jinja {
namespace {

constexpr int kMaxPrecision = 10000;

struct Spec {
  std::string fill = " ";
  char align = '\0';
  char sign = '-';  // '-': only of negative numbers
  bool alternate = false;
  bool zero = false;
  char group = '\0';  // thousands separator
  int64_t width = 0;
  int precision = -1;
  char type = '\0';
};

std::string grouped(const std::string& digits, char separator, size_t every) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i != 0 && (digits.size() - i) % every == 0) out += separator;
    out += digits[i];
  }
  return out;
}

/// Sign, prefix and body put together with the padding of `spec`.
Value assemble(Runtime& rt, const Spec& spec, bool negative, const std::string& prefix, std::string body) {
  std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  sign += prefix;
  if (spec.align == '=') {
    const auto used = static_cast<int64_t>(sign.size() + count_chars(body));
    if (spec.width > used) {
      if (spec.width - used > static_cast<int64_t>(kMaxText)) rt.fail("the width of a format is too large.");
      std::string padding;
      for (int64_t i = used; i < spec.width; ++i) padding += spec.fill;
      body = padding + body;
    }
    return rt.copy_text(sign + body);
  }
  return pad_text(rt, sign + body, spec.width, spec.fill, spec.align ? spec.align : '>');
}

std::string digits_of(uint64_t value, unsigned base, bool upper) {
  std::string out;
  do {
    const unsigned digit = static_cast<unsigned>(value % base);
    out += static_cast<char>(digit < 10 ? '0' + digit : (upper ? 'A' : 'a') + digit - 10);
    value /= base;
  } while (value != 0);
  std::reverse(out.begin(), out.end());
  return out;
}

std::string float_digits(double value, char type, int precision, bool alternate) {
  const std::string fmt = std::string("%") + (alternate ? "#" : "") + ".*" + type;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  std::string out(512 + static_cast<size_t>(precision), '\0');
  const int size = std::snprintf(out.data(), out.size(), fmt.c_str(), precision, value);
#pragma GCC diagnostic pop
  out.resize(static_cast<size_t>(std::max(size, 0)));
  return out;
}

Value format_integer(Runtime& rt, Spec spec, int64_t value) {
  const uint64_t magnitude = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  unsigned base = 10;
  std::string prefix;
  switch (spec.type) {
    case 'b':
      base = 2;
      prefix = "0b";
      break;
    case 'o':
      base = 8;
      prefix = "0o";
      break;
    case 'x':
    case 'X':
      base = 16;
      prefix = spec.type == 'x' ? "0x" : "0X";
      break;
    default:
      break;
  }
  std::string body = digits_of(magnitude, base, spec.type == 'X');
  if (spec.precision > static_cast<int>(body.size()))
    body.insert(0, static_cast<size_t>(spec.precision) - body.size(), '0');
  if (spec.group) body = grouped(body, spec.group, base == 10 ? 3 : 4);
  return assemble(rt, spec, value < 0, spec.alternate ? prefix : "", body);
}

Value format_float(Runtime& rt, const Spec& spec, double value) {
  const double magnitude = std::fabs(value);
  const bool upper = spec.type == 'E' || spec.type == 'F' || spec.type == 'G';
  std::string body;
  if (std::isnan(value) || std::isinf(value)) {
    body = std::isnan(value) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf");
  } else if (spec.type == '\0' || spec.type == 'n') {
    body = spec.precision < 0 ? float_repr(magnitude)
                              : float_digits(magnitude, 'g', std::max(spec.precision, 1), false);
    if (spec.precision >= 0 && body.find_first_of(".e") == std::string::npos) body += ".0";
  } else if (spec.type == '%') {
    body = float_digits(magnitude * 100, 'f', spec.precision < 0 ? 6 : spec.precision, spec.alternate) + "%";
  } else {
    body = float_digits(magnitude, spec.type, spec.precision < 0 ? 6 : spec.precision, spec.alternate);
  }
  if (spec.group) {
    const size_t end = std::min(body.find_first_not_of("0123456789"), body.size());
    body = grouped(body.substr(0, end), spec.group, 3) + body.substr(end);
  }
  return assemble(rt, spec, std::signbit(value) && !std::isnan(value), "", body);
}

Value format_text(Runtime& rt, const Spec& spec, std::string_view text) {
  if (spec.precision >= 0) text = text.substr(0, char_offset(text, static_cast<size_t>(spec.precision)));
  return pad_text(rt, text, spec.width, spec.fill, spec.align ? spec.align : '<');
}

int read_number(Runtime& rt, std::string_view text, size_t& pos) {
  int64_t number = 0;
  while (pos < text.size() && text[pos] >= '0' && text[pos] <= '9') {
    number = number * 10 + (text[pos++] - '0');
    if (number > static_cast<int64_t>(kMaxText)) rt.fail("a number in a format is too large.");
  }
  return static_cast<int>(number);
}

void check_precision(Runtime& rt, const Spec& spec) {
  if (spec.precision > kMaxPrecision) rt.fail("the precision of a format is larger than %d.", kMaxPrecision);
}

}  // namespace

Value format_percent(Runtime& rt, const Value& format_text_value, const Value& values) {
  const std::string_view text = format_text_value.str();
  rt.charge(text.size() / 16);
  std::string out;
  uint32_t used = 0;
  const bool is_tuple = values.kind == Kind::Tuple;
  const uint32_t available = is_tuple ? values.sequence->size : 1;
  const bool is_markup = format_text_value.is_markup;
  const auto next_value = [&]() -> Value {
    if (used >= available) rt.fail("the format needs more values than it gets.");
    ++used;
    return is_tuple ? values.sequence->items[used - 1] : values;
  };
  bool named = false;
  for (size_t pos = 0; pos < text.size();) {
    const size_t percent = std::min(text.find('%', pos), text.size());
    out += text.substr(pos, percent - pos);
    pos = percent + 1;
    if (percent == text.size()) break;
    Spec spec;
    Value value;
    if (pos < text.size() && text[pos] == '(') {
      const size_t close = text.find(')', pos);
      if (close == std::string_view::npos) rt.fail("the name in a format has no end.");
      if (values.kind != Kind::Dict) rt.fail("a format with names needs a dict.");
      const std::string_view name = text.substr(pos + 1, close - pos - 1);
      const Value* found = find_value(rt, *values.dict, name);
      if (!found) rt.fail("the format needs the key %s.", quote(name).c_str());
      value = *found;
      named = true;
      pos = close + 1;
    }
    bool left = false;
    for (; pos < text.size() && std::string_view("#0- +").find(text[pos]) != std::string_view::npos; ++pos) {
      if (text[pos] == '#') spec.alternate = true;
      if (text[pos] == '0') spec.zero = true;
      if (text[pos] == '-') left = true;
      if (text[pos] == '+') spec.sign = '+';
      if (text[pos] == ' ' && spec.sign == '-') spec.sign = ' ';
    }
    const auto star_or_number = [&]() -> int64_t {
      if (pos >= text.size() || text[pos] != '*') return read_number(rt, text, pos);
      ++pos;
      const Value number = next_value();
      if (!number.is_integral()) rt.fail("'*' in a format needs an integer.");
      if (std::abs(number.as_integer()) > static_cast<int64_t>(kMaxText))
        rt.fail("a number in a format is too large.");
      return number.as_integer();
    };
    spec.width = star_or_number();
    if (spec.width < 0) {
      left = true;
      spec.width = -spec.width;
    }
    if (pos < text.size() && text[pos] == '.') {
      ++pos;
      spec.precision = static_cast<int>(std::max<int64_t>(star_or_number(), 0));
    }
    if (pos < text.size() && std::string_view("hlL").find(text[pos]) != std::string_view::npos) ++pos;
    if (pos >= text.size()) rt.fail("the format ends within a conversion.");
    const char type = text[pos++];
    if (type == '%') {
      out += '%';
      continue;
    }
    if (value.kind == Kind::Missing) value = next_value();
    spec.align = left                                                                    ? '<'
                 : spec.zero && type != 's' && type != 'r' && type != 'a' && type != 'c' ? '='
                                                                                         : '>';
    if (spec.align == '=') spec.fill = "0";
    Value piece;
    switch (type) {
      case 's':
      case 'r':
      case 'a': {
        std::string printed;
        if (type == 's') {
          append_str(rt, printed, value);
          if (is_markup && !value.is_markup) printed = html_escape(printed);
        } else {
          append_repr(rt, printed, value);
          if (is_markup) printed = html_escape(printed);
        }
        piece = format_text(rt, spec, printed);
        break;
      }
      case 'c': {
        std::string c;
        if (value.is_integral() && value.as_integer() >= 0 && value.as_integer() < 0x110000 &&
            (value.as_integer() < 0xd800 || value.as_integer() >= 0xe000)) {
          append_utf8(c, static_cast<int32_t>(value.as_integer()));
        } else if (value.is_string() && count_chars(value.str()) == 1) {
          c = value.str();
        } else {
          rt.fail("%%c in a format needs one character.");
        }
        spec.precision = -1;
        piece = format_text(rt, spec, c);
        break;
      }
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o': {
        const bool whole = type == 'd' || type == 'i' || type == 'u';
        if (!value.is_integral() &&
            !(whole && value.kind == Kind::Float && std::fabs(value.number) < 9.2e18)) {
          rt.fail("%%%c in a format needs a number, not a %s.", type, type_name(value).c_str());
        }
        check_precision(rt, spec);
        spec.type = whole ? 'd' : type;
        piece = format_integer(rt, spec,
                               value.is_integral() ? value.as_integer() : static_cast<int64_t>(value.number));
        break;
      }
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (!value.is_number())
          rt.fail("%%%c in a format needs a number, not a %s.", type, type_name(value).c_str());
        check_precision(rt, spec);
        spec.type = type;
        piece = format_float(rt, spec, value.as_double());
        break;
      default:
        rt.fail("a format has the unknown conversion '%%%c'.", type & 0x80 ? '?' : type);
    }
    out += piece.str();
    if (out.size() > kMaxText) rt.fail("a text is longer than the %zu MiB that are allowed.", kMaxText >> 20);
  }
  if (!named && used < available && values.kind != Kind::Dict) {
    const bool mapping =
        values.kind == Kind::List || values.kind == Kind::Range || values.kind == Kind::Undefined;
    if (!mapping) rt.fail("the format gets more values than it needs.");
  }
  return rt.copy_text(out, is_markup);
}

namespace {

class BraceFormat {
 public:
  BraceFormat(Runtime& rt, const CallArguments& call) : rt_(rt), call_(call) {}

  std::string run(std::string_view text, int depth) {
    if (depth > 2) rt_.fail("a format is nested too deeply.");
    rt_.charge(text.size() / 16 + 1);
    std::string out;
    for (size_t pos = 0; pos < text.size();) {
      const char c = text[pos];
      if (c != '{' && c != '}') {
        const size_t next = std::min(text.find_first_of("{}", pos), text.size());
        out += text.substr(pos, next - pos);
        pos = next;
        continue;
      }
      if (pos + 1 < text.size() && text[pos + 1] == c) {
        out += c;
        pos += 2;
        continue;
      }
      if (c == '}') rt_.fail("a format has a '}' without its '{'.");
      size_t end = pos + 1;
      for (int open = 1; open > 0; ++end) {
        if (end >= text.size()) rt_.fail("a format has a '{' without its '}'.");
        if (text[end] == '{') ++open;
        if (text[end] == '}') --open;
      }
      out += field(text.substr(pos + 1, end - pos - 2), depth);
      pos = end;
      if (out.size() > kMaxText)
        rt_.fail("a text is longer than the %zu MiB that are allowed.", kMaxText >> 20);
    }
    return out;
  }

 private:
  std::string field(std::string_view text, int depth) {
    size_t name_end = 0;
    for (int bracket = 0; name_end < text.size(); ++name_end) {
      if (text[name_end] == '[') ++bracket;
      if (text[name_end] == ']') --bracket;
      if (bracket <= 0 && (text[name_end] == '!' || text[name_end] == ':')) break;
    }
    Value value = look_up(text.substr(0, name_end));
    std::string_view rest = text.substr(name_end);
    if (!rest.empty() && rest[0] == '!') {
      if (rest.size() < 2) rt_.fail("a format ends within a conversion.");
      std::string printed;
      if (rest[1] == 's') {
        append_str(rt_, printed, value);
      } else if (rest[1] == 'r' || rest[1] == 'a') {
        append_repr(rt_, printed, value);
      } else {
        rt_.fail("a format has an unknown conversion.");
      }
      value = rt_.copy_text(printed);
      rest.remove_prefix(2);
      if (!rest.empty() && rest[0] != ':') rt_.fail("a format needs ':' after its conversion.");
    }
    if (!rest.empty()) rest.remove_prefix(1);
    const std::string spec = run(rest, depth + 1);
    return std::string(with_spec(value, spec).str());
  }

  Value look_up(std::string_view path) {
    const size_t end = std::min(path.find_first_of(".["), path.size());
    const std::string_view first = path.substr(0, end);
    Value value;
    if (first.empty() || all_are(CharTest::Digit, first)) {
      const bool automatic = first.empty();
      if (numbering_ != 0 && numbering_ != (automatic ? 1 : 2)) {
        rt_.fail("a format mixes numbered and unnumbered fields.");
      }
      numbering_ = automatic ? 1 : 2;
      const auto number = automatic ? std::optional<int64_t>(next_++) : parse_integer(first, 10);
      if (!number || *number >= static_cast<int64_t>(call_.positional.size())) {
        rt_.fail("the format needs more values than it gets.");
      }
      value = call_.positional[static_cast<size_t>(*number)];
    } else {
      const auto named = std::find_if(call_.named.begin(), call_.named.end(),
                                      [&](const NamedValue& one) { return one.name == first; });
      if (named == call_.named.end()) rt_.fail("the format needs the value %s.", quote(first).c_str());
      value = named->value;
    }
    for (std::string_view rest = path.substr(end); !rest.empty();) {
      const bool is_item = rest[0] == '[';
      const size_t stop = is_item ? rest.find(']') : std::min(rest.find_first_of(".[", 1), rest.size());
      if (stop == std::string_view::npos || stop == 1) rt_.fail("a format has an empty or open attribute.");
      const std::string_view name = rest.substr(1, stop - 1);
      if (!is_item) {
        value = get_attribute(rt_, value, name);
      } else {
        const auto number = all_are(CharTest::Digit, name) ? parse_integer(name, 10) : std::nullopt;
        value = get_item(rt_, value, number ? make_int(*number) : make_str(name));
      }
      rest.remove_prefix(is_item ? stop + 1 : stop);
      if (is_item && !rest.empty() && rest[0] != '.' && rest[0] != '[')
        rt_.fail("a format has a wrong field.");
    }
    return value;
  }

  Spec parse_spec(std::string_view text) {
    Spec spec;
    size_t pos = 0, after = 0;
    const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
    if (!text.empty()) read_utf8(text, after);
    if (after != 0 && after < text.size() && is_align(text[after])) {
      spec.fill = text.substr(0, after);
      spec.align = text[after];
      pos = after + 1;
    } else if (!text.empty() && is_align(text[0])) {
      spec.align = text[0];
      pos = 1;
    }
    const auto take = [&](char c) { return pos < text.size() && text[pos] == c && (++pos, true); };
    for (const char sign : {'+', '-', ' '}) {
      if (take(sign)) {
        spec.sign = sign;
        break;
      }
    }
    spec.alternate = take('#');
    if (take('0')) {
      spec.zero = true;
      if (!spec.align) {
        spec.align = '=';
        spec.fill = "0";
      }
    }
    spec.width = read_number(rt_, text, pos);
    if (take(',')) {
      spec.group = ',';
    } else if (take('_')) {
      spec.group = '_';
    }
    if (take('.')) {
      if (pos >= text.size() || text[pos] < '0' || text[pos] > '9')
        rt_.fail("a format has no precision behind '.'.");
      spec.precision = read_number(rt_, text, pos);
    }
    if (pos < text.size()) spec.type = text[pos++];
    if (pos < text.size()) rt_.fail("a format has the wrong specification %s.", quote(text).c_str());
    return spec;
  }

  Value with_spec(const Value& value, std::string_view text) {
    if (text.empty()) return to_str(rt_, value);
    Spec spec = parse_spec(text);
    const auto wrong = [&] {
      rt_.fail("the format specification %s does not fit a %s.", quote(text).c_str(),
               type_name(value).c_str());
    };
    if (value.is_string()) {
      if ((spec.type && spec.type != 's') || spec.sign != '-' || spec.alternate || spec.group) wrong();
      if (spec.align == '=') {
        if (!spec.zero || spec.fill != "0") wrong();
        spec.align = '<';
      }
      return format_text(rt_, spec, value.str());
    }
    if (!value.is_number()) wrong();
    const bool float_type =
        spec.type && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
    if (value.kind == Kind::Float || float_type) {
      if (spec.type && !float_type && spec.type != 'n') wrong();
      check_precision(rt_, spec);
      return format_float(rt_, spec, value.as_double());
    }
    if (value.kind == Kind::Bool && !spec.type) {
      std::string printed;
      append_str(rt_, printed, value);
      return format_text(rt_, spec, printed);
    }
    if (spec.precision >= 0) wrong();
    if (spec.type == 'c') {
      std::string c;
      const int64_t point = value.as_integer();
      if (point < 0 || point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) wrong();
      append_utf8(c, static_cast<int32_t>(point));
      return format_text(rt_, spec, c);
    }
    if (spec.type && std::string_view("bodxXn").find(spec.type) == std::string_view::npos) wrong();
    return format_integer(rt_, spec, value.as_integer());
  }

  Runtime& rt_;
  const CallArguments& call_;
  int numbering_ = 0;  // 1: automatic, 2: by number
  int64_t next_ = 0;
};

}  // namespace

Value format_braces(Runtime& rt, std::string_view text, const CallArguments& call) {
  return rt.copy_text(BraceFormat(rt, call).run(text, 0));
}

}  // namespace vllm::jinja

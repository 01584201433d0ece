// Filters that make texts and numbers.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "serve/jinja/filters.h"
#include "serve/jinja/format.h"
#include "serve/jinja/methods.h"
#include "serve/jinja/numbers.h"
#include "serve/jinja/operators.h"
#include "serve/jinja/print.h"
#include "serve/jinja/unicode_text.h"
#include "text/unicode.h"

namespace vllm::jinja {
namespace {

template <std::string (*Change)(std::string_view)>
Value change(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "the filter", call, {});
  const Value text = to_str(rt, input);
  rt.charge(text.size / 4);
  return rt.copy_text(Change(text.str()), text.is_markup);
}

/// Upper case behind the start and each of "-({[<" and white space, lower case elsewhere.
std::string title_words(std::string_view text) {
  std::string out;
  const auto is_separator = [](int32_t c) {
    return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  for (size_t pos = 0; pos < text.size();) {
    size_t start = pos, first_end = pos, next = pos;
    const bool separator = is_separator(read_utf8(text, first_end));
    while (next < text.size() && is_separator(read_utf8(text, next)) == separator) pos = next;
    if (pos == start) pos = next;
    out += to_upper(text.substr(start, first_end - start));
    out += to_lower(text.substr(first_end, pos - first_end));
  }
  return out;
}

Value title(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "title", call, {});
  return rt.copy_text(title_words(text_of(rt, input)));
}

Value trim(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "trim", call, {"chars"});
  const Value text = to_str(rt, input);
  return make_str(strip_text(rt, text.str(), args[0], true, true), text.is_markup);
}

Value string(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "string", call, {});
  return to_str(rt, input);
}

Value safe(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "safe", call, {});
  return make_str(text_of(rt, input), true);
}

Value escape(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "escape", call, {});
  const Value text = to_str(rt, input);
  return text.is_markup ? text : rt.copy_text(html_escape(text.str()), true);
}

Value force_escape(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "forceescape", call, {});
  return rt.copy_text(html_escape(text_of(rt, input)), true);
}

Value replace(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "replace", call, {"old", "new", "count"}, 2);
  const bool all = !args.has(2) || args[2].is_none();
  return replace_text(rt, text_of(rt, input), text_of(rt, args[0]), text_of(rt, args[1]),
                      all ? -1 : args.integer(2, -1));
}

Value format_filter(Runtime& rt, const Value& input, const CallArguments& call) {
  if (!call.positional.empty() && !call.named.empty()) {
    rt.fail("format takes values by position or by name, not both.");
  }
  if (call.named.empty()) {
    return format_percent(rt, to_str(rt, input), rt.tuple(call.positional.data(), call.positional.size()));
  }
  std::vector<Entry> entries;
  for (const NamedValue& named : call.named) entries.push_back({make_str(named.name), named.value});
  return format_percent(rt, to_str(rt, input), rt.dict(entries));
}

std::string_view must_be_text(Runtime& rt, const Value& input, const char* filter) {
  if (input.is_undefined()) rt.fail_undefined(input);
  if (!input.is_string()) rt.fail("%s needs a text, not a %s.", filter, type_name(input).c_str());
  return input.str();
}

Value indent(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "indent", call, {"width", "first", "blank"});
  const std::string text = std::string(must_be_text(rt, input, "indent")) + "\n";
  std::string indention;
  if (args.has(0) && args[0].is_string()) {
    indention = args[0].str();
  } else {
    const int64_t width = args.integer(0, 4);
    if (width > static_cast<int64_t>(kMaxText)) rt.fail("the width of indent is too large.");
    indention.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  std::string out = args.flag(1) ? indention : "";
  bool is_first = true;
  for (const std::string_view line : split_lines(text, false)) {
    if (!is_first) {
      out += '\n';
      if (args.flag(2) || !line.empty()) out += indention;
    }
    is_first = false;
    out += line;
    if (out.size() > kMaxText) rt.fail("a text is longer than the %zu MiB that are allowed.", kMaxText >> 20);
  }
  return rt.copy_text(out, input.is_markup);
}

Value center(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "center", call, {"width"});
  return pad_text(rt, text_of(rt, input), args.integer(0, 80), " ", '^');
}

Value truncate(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "truncate", call, {"length", "killwords", "end", "leeway"});
  const std::string_view end = args.has(2) ? args.text(2) : "...";
  const int64_t length = args.integer(0, 255),
                leeway = args.has(3) && !args[3].is_none() ? args.integer(3, 5) : 5;
  const auto end_size = static_cast<int64_t>(count_chars(end));
  if (length < end_size || leeway < 0)
    rt.fail("truncate needs a length of at least %lld.", static_cast<long long>(end_size));
  int64_t size = 0;
  if (length_of(input, size) && size - leeway <= length) return input;  // also what is no text
  const std::string_view text = must_be_text(rt, input, "truncate");
  rt.charge(text.size() / 8);
  std::string_view kept = text.substr(0, char_offset(text, static_cast<size_t>(length - end_size)));
  if (!args.flag(1)) kept = kept.substr(0, kept.rfind(' '));
  return rt.copy_text(std::string(kept) + (input.is_markup ? html_escape(end) : std::string(end)),
                      input.is_markup);
}

Value word_count(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "wordcount", call, {});
  const std::string_view text = text_of(rt, input);
  rt.charge(text.size() / 4);
  int64_t words = 0;
  bool inside = false;
  for (size_t pos = 0; pos < text.size();) {
    const bool is_word = is_word_char(read_utf8(text, pos));
    words += is_word && !inside;
    inside = is_word;
  }
  return make_int(words);
}

std::string url_quote(std::string_view text, bool in_query) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80 && (std::isalnum(byte) || std::string_view("_.-~").find(c) != std::string_view::npos)) {
      out += c;
    } else if (c == '/' && !in_query) {
      out += c;
    } else if (c == ' ' && in_query) {
      out += '+';
    } else {
      out += vllm::format("%%%02X", byte);
    }
  }
  return out;
}

Value url_encode(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "urlencode", call, {});
  if (input.is_string() || !is_iterable(input)) return rt.copy_text(url_quote(text_of(rt, input), false));
  Value pairs = input;
  if (input.kind == Kind::Dict) {
    pairs.kind = Kind::View;
    pairs.view = rt.arena.make(View{input.dict, View::What::Items});
  }
  std::string out;
  for (const Value& item : items_of(rt, pairs)) {
    const std::span<const Value> pair = items_of(rt, item);
    if (pair.size() != 2) rt.fail("urlencode needs pairs of a key and a value.");
    if (!out.empty()) out += '&';
    out += url_quote(text_of(rt, pair[0]), true) + "=" + url_quote(text_of(rt, pair[1]), true);
  }
  return rt.copy_text(out);
}

Value xml_attributes(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "xmlattr", call, {"autospace"});
  if (input.kind != Kind::Dict) rt.fail("xmlattr needs a dict, not a %s.", type_name(input).c_str());
  std::string out;
  for (uint32_t i = 0; i < input.dict->size; ++i) {
    const auto& [key, value] = input.dict->entries[i];
    if (value.is_none() || value.is_undefined()) continue;
    if (!key.is_string() || key.str().find_first_of(" \t\n\r\f\v/>=") != std::string_view::npos) {
      rt.fail("an attribute of xmlattr has a wrong name.");
    }
    if (!out.empty()) out += ' ';
    const Value text = to_str(rt, value);
    out += html_escape(key.str()) + "=\"" +
           (text.is_markup ? std::string(text.str()) : html_escape(text.str())) + "\"";
  }
  return rt.copy_text(args.flag(0, true) && !out.empty() ? " " + out : out);
}

Value to_json(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "tojson", call, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = args.flag(0);
  style.sort_keys = args.flag(3);
  if (args.has(1) && !args[1].is_none()) {
    style.pretty = true;
    style.item_separator = ",";
    if (args[1].is_string()) {
      style.indent = args[1].str();
    } else {
      const int64_t width = args.integer(1, 0);
      if (width > 1000) rt.fail("the indent of tojson is larger than 1000.");
      style.indent.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
  }
  if (args.has(2) && !args[2].is_none()) {
    const std::span<const Value> pair = items_of(rt, args[2]);
    if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
      rt.fail("the separators of tojson must be two texts.");
    }
    style.item_separator = pair[0].str();
    style.key_separator = pair[1].str();
  }
  std::string out;
  append_json(rt, out, input, style);
  return rt.copy_text(out);
}

Value to_integer(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "int", call, {"default", "base"});
  const Value otherwise = args.get(0, make_int(0));
  switch (input.kind) {
    case Kind::Undefined:
      rt.fail_undefined(input);
    case Kind::Bool:
    case Kind::Int:
      return make_int(input.as_integer());
    case Kind::BigInt:
      return input;
    case Kind::Float:
      if (std::isnan(input.number)) return otherwise;
      if (std::fabs(input.number) >= 9223372036854775807.0) rt.fail("the number does not fit in 64 bits.");
      return make_int(static_cast<int64_t>(input.number));
    case Kind::Str: {
      if (const auto number = parse_integer(input.str(), static_cast<int>(args.integer(1, 10))))
        return make_int(*number);
      const auto number = parse_float(input.str());
      if (!number || !std::isfinite(*number)) return otherwise;
      if (std::fabs(*number) >= 9223372036854775807.0) rt.fail("the number does not fit in 64 bits.");
      return make_int(static_cast<int64_t>(*number));
    }
    default:
      return otherwise;
  }
}

Value to_float(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "float", call, {"default"});
  const Value otherwise = args.get(0, make_float(0));
  if (input.is_undefined()) rt.fail_undefined(input);
  if (input.is_number()) return make_float(input.as_double());
  if (!input.is_string() && input.kind != Kind::BigInt) return otherwise;
  const auto number = parse_float(input.str());
  return number ? make_float(*number) : otherwise;
}

Value absolute(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "abs", call, {});
  if (input.is_undefined()) rt.fail_undefined(input);
  if (input.kind == Kind::Float) return make_float(std::fabs(input.number));
  if (!input.is_integral()) rt.fail("abs needs a number, not a %s.", type_name(input).c_str());
  return input.as_integer() < 0 ? negate(rt, input) : make_int(input.as_integer());
}

Value round_integer(Runtime& rt, int64_t value, int64_t digits) {
  if (digits >= 0) return make_int(value);
  if (digits < -18) return make_int(0);
  int64_t scale = 1;
  for (int64_t i = 0; i < -digits; ++i) scale *= 10;
  int64_t quotient = value / scale, rest = value % scale;
  if (rest < 0) {
    rest += scale;
    --quotient;
  }
  if (rest * 2 > scale || (rest * 2 == scale && (quotient & 1))) ++quotient;
  return binary(rt, BinaryOp::Multiply, make_int(quotient), make_int(scale));
}

Value round_filter(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "round", call, {"precision", "method"});
  const int64_t digits = args.integer(0, 0);
  const std::string_view method = args.has(1) ? args.text(1) : "common";
  if (input.is_undefined()) rt.fail_undefined(input);
  if (!input.is_number()) rt.fail("round needs a number, not a %s.", type_name(input).c_str());
  if (method == "common") {
    if (input.kind == Kind::Float) return make_float(round_float(input.number, digits));
    return round_integer(rt, input.as_integer(), digits);
  }
  if (method != "ceil" && method != "floor") rt.fail("the method of round must be common, ceil or floor.");
  const Value power = binary(rt, BinaryOp::Power, make_int(10), make_int(digits));
  const double scaled = binary(rt, BinaryOp::Multiply, input, power).as_double();
  if (!std::isfinite(scaled))
    rt.fail("round cannot take the %s of this number.", std::string(method).c_str());
  const double whole =
      (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) + 0.0;  // no -0: an int in Python
  return make_float(whole / power.as_double());
}

constexpr FilterInfo kTable[] = {
    {"abs", absolute},
    {"capitalize", change<capitalize>},
    {"center", center},
    {"e", escape},
    {"escape", escape},
    {"float", to_float},
    {"forceescape", force_escape},
    {"format", format_filter},
    {"indent", indent},
    {"int", to_integer},
    {"lower", change<to_lower>},
    {"replace", replace},
    {"round", round_filter},
    {"safe", safe},
    {"string", string},
    {"title", title},
    {"tojson", to_json},
    {"trim", trim},
    {"truncate", truncate},
    {"upper", change<to_upper>},
    {"urlencode", url_encode},
    {"wordcount", word_count},
    {"xmlattr", xml_attributes},
};

}  // namespace

std::span<const FilterInfo> text_filters() { return kTable; }

const FilterInfo* find_filter(std::string_view name) {
  for (const std::span<const FilterInfo> table : {text_filters(), sequence_filters()}) {
    for (const FilterInfo& filter : table) {
      if (filter.name == name) return &filter;
    }
  }
  return nullptr;
}

}  // namespace vllm::jinja

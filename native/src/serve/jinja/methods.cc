#include "serve/jinja/methods.h"

#include <algorithm>

#include "base/error.h"
#include "serve/jinja/format.h"
#include "serve/jinja/operators.h"
#include "serve/jinja/print.h"
#include "serve/jinja/unicode_text.h"
#include "text/unicode.h"

namespace vllm::jinja {

using Run = Value (*)(Runtime&, const Value& self, const CallArguments&);

struct MethodInfo {
  std::string_view name;
  Run run;
  bool takes_names = false;
};

std::string_view strip_text(Runtime& rt, std::string_view text, const Value& chars, bool left, bool right) {
  if (chars.kind == Kind::Missing || chars.is_none()) {
    if (left) text = strip_left(text);
    return right ? strip_right(text) : text;
  }
  if (!chars.is_string())
    rt.fail("the characters to strip must be a text, not a %s.", type_name(chars).c_str());
  rt.charge(text.size() * chars.size / 64);
  if (left) text = strip_left(text, chars.str());
  return right ? strip_right(text, chars.str()) : text;
}

Value replace_text(Runtime& rt, std::string_view text, std::string_view from, std::string_view to,
                   int64_t count) {
  rt.charge(text.size() / 16);
  std::string out;
  size_t pos = 0;
  const auto grown = [&] {
    if (out.size() > kMaxText) rt.fail("a text is longer than the %zu MiB that are allowed.", kMaxText >> 20);
    return count-- != 0;
  };
  if (from.empty()) {
    while (grown()) {
      out += to;
      if (pos == text.size()) return rt.copy_text(out);
      const size_t start = pos;
      read_utf8(text, pos);
      out += text.substr(start, pos - start);
    }
  } else {
    for (size_t at = text.find(from); at != std::string_view::npos && grown(); at = text.find(from, pos)) {
      out += text.substr(pos, at - pos);
      out += to;
      pos = at + from.size();
    }
  }
  out += text.substr(pos);
  return rt.copy_text(out);
}

Value join_text(Runtime& rt, std::string_view separator, std::span<const Value> items, bool convert) {
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i != 0) out += separator;
    if (!convert && !items[i].is_string()) {
      rt.fail("join needs texts, item %zu is a %s.", i, type_name(items[i]).c_str());
    }
    append_str(rt, out, items[i]);
    if (out.size() > kMaxText) rt.fail("a text is longer than the %zu MiB that are allowed.", kMaxText >> 20);
  }
  return rt.copy_text(out);
}

Value pad_text(Runtime& rt, std::string_view text, int64_t width, std::string_view fill, char align) {
  const auto size = static_cast<int64_t>(count_chars(text));
  if (width <= size) return rt.copy_text(text);
  const int64_t missing = width - size;
  if (missing > static_cast<int64_t>(kMaxText / fill.size())) {
    rt.fail("a text is longer than the %zu MiB that are allowed.", kMaxText >> 20);
  }
  int64_t left = align == '<' ? 0 : missing;
  if (align == '^') left = missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (int64_t i = left; i < missing; ++i) out += fill;
  return rt.copy_text(out);
}

namespace {

/// The part of `self` between the character positions of arguments 1 and 2; false when they lie behind each
/// other.
bool window(const Value& self, const Bound& args, std::string_view& text, size_t& skipped) {
  text = self.str();
  skipped = 0;
  const bool whole = (!args.has(1) || args[1].is_none()) && (!args.has(2) || args[2].is_none());
  if (whole) return true;
  const auto size = static_cast<int64_t>(count_chars(text));
  const auto clip = [&](size_t i, int64_t otherwise) {
    if (!args.has(i) || args[i].is_none()) return otherwise;
    const int64_t at = args.integer(i, 0);
    return at < 0 ? std::max<int64_t>(at + size, 0) : at;
  };
  const int64_t from = clip(1, 0), to = std::min(clip(2, size), size);
  if (from > to) return false;
  skipped = static_cast<size_t>(from);
  text = text.substr(char_offset(text, skipped));
  text = text.substr(0, char_offset(text, static_cast<size_t>(to - from)));
  return true;
}

Value find_in(Runtime& rt, const Value& self, const CallArguments& call, const char* name, bool last,
              bool must) {
  const Bound args(rt, name, call, {"sub", "start", "end"}, 1);
  const std::string_view sub = args.text(0);
  std::string_view text;
  size_t skipped;
  rt.charge(self.size / 16);
  if (window(self, args, text, skipped)) {
    const size_t at = last ? text.rfind(sub) : text.find(sub);
    if (at != std::string_view::npos)
      return make_int(static_cast<int64_t>(skipped + count_chars(text.substr(0, at))));
  }
  if (must) rt.fail("the text %s was not found.", quote(sub).c_str());
  return make_int(-1);
}

Value str_find(Runtime& rt, const Value& s, const CallArguments& c) {
  return find_in(rt, s, c, "find", false, false);
}
Value str_rfind(Runtime& rt, const Value& s, const CallArguments& c) {
  return find_in(rt, s, c, "rfind", true, false);
}
Value str_index(Runtime& rt, const Value& s, const CallArguments& c) {
  return find_in(rt, s, c, "index", false, true);
}
Value str_rindex(Runtime& rt, const Value& s, const CallArguments& c) {
  return find_in(rt, s, c, "rindex", true, true);
}

Value str_count(Runtime& rt, const Value& self, const CallArguments& call) {
  const Bound args(rt, "count", call, {"sub", "start", "end"}, 1);
  const std::string_view sub = args.text(0);
  std::string_view text;
  size_t skipped;
  rt.charge(self.size / 16);
  if (!window(self, args, text, skipped)) return make_int(0);
  if (sub.empty()) return make_int(static_cast<int64_t>(count_chars(text)) + 1);
  int64_t n = 0;
  for (size_t at = text.find(sub); at != std::string_view::npos; at = text.find(sub, at + sub.size())) ++n;
  return make_int(n);
}

Value touches(Runtime& rt, const Value& self, const CallArguments& call, const char* name, bool end) {
  const Bound args(rt, name, call, {"prefix", "start", "end"}, 1);
  std::string_view text;
  size_t skipped;
  const bool valid = window(self, args, text, skipped);
  const auto one = [&](const Value& affix) {
    if (!affix.is_string())
      rt.fail("%s needs a text or a tuple of texts, not a %s.", name, type_name(affix).c_str());
    return valid && (end ? text.ends_with(affix.str()) : text.starts_with(affix.str()));
  };
  if (args[0].kind != Kind::Tuple) return make_bool(one(args[0]));
  const Sequence& options = *args[0].sequence;
  for (uint32_t i = 0; i < options.size; ++i) {
    if (one(options.items[i])) return make_bool(true);
  }
  return make_bool(false);
}

Value str_startswith(Runtime& rt, const Value& s, const CallArguments& c) {
  return touches(rt, s, c, "startswith", false);
}
Value str_endswith(Runtime& rt, const Value& s, const CallArguments& c) {
  return touches(rt, s, c, "endswith", true);
}

Value strip_method(Runtime& rt, const Value& self, const CallArguments& call, const char* name, bool left,
                   bool right) {
  const Bound args(rt, name, call, {"chars"});
  return make_str(strip_text(rt, self.str(), args[0], left, right), self.is_markup);
}
Value str_strip(Runtime& rt, const Value& s, const CallArguments& c) {
  return strip_method(rt, s, c, "strip", true, true);
}
Value str_lstrip(Runtime& rt, const Value& s, const CallArguments& c) {
  return strip_method(rt, s, c, "lstrip", true, false);
}
Value str_rstrip(Runtime& rt, const Value& s, const CallArguments& c) {
  return strip_method(rt, s, c, "rstrip", false, true);
}

/// Words between white space, at most `most` cuts.
std::vector<std::string_view> split_words(std::string_view text, int64_t most, bool from_right) {
  std::vector<std::string_view> out;
  const auto word_end = [&](size_t pos, bool space) {
    while (pos < text.size()) {
      size_t next = pos;
      if (is_space(read_utf8(text, next)) != space) break;
      pos = next;
    }
    return pos;
  };
  if (!from_right) {
    for (text = strip_left(text); !text.empty(); text = strip_left(text)) {
      if (most-- == 0) {
        out.push_back(text);
        break;
      }
      const size_t end = word_end(0, false);
      out.push_back(text.substr(0, end));
      text.remove_prefix(end);
    }
    return out;
  }
  for (text = strip_right(text); !text.empty(); text = strip_right(text)) {
    if (most-- == 0) {
      out.push_back(text);
      break;
    }
    size_t start = text.size();
    while (start > 0) {
      size_t before = start - 1;
      while (before > 0 && (text[before] & 0xc0) == 0x80) --before;
      size_t next = before;
      if (is_space(read_utf8(text, next))) break;
      start = before;
    }
    out.push_back(text.substr(start));
    text = text.substr(0, start);
  }
  std::reverse(out.begin(), out.end());
  return out;
}

Value split(Runtime& rt, const Value& self, const CallArguments& call, bool from_right) {
  const Bound args(rt, from_right ? "rsplit" : "split", call, {"sep", "maxsplit"});
  int64_t most = args.integer(1, -1);
  std::string_view text = self.str();
  rt.charge(text.size() / 16);
  std::vector<std::string_view> parts;
  if (!args.has(0) || args[0].is_none()) {
    parts = split_words(text, most, from_right);
  } else {
    const std::string_view separator = args.text(0);
    if (separator.empty()) rt.fail("split needs a separator that is not empty.");
    while (most-- != 0) {
      const size_t at = from_right ? text.rfind(separator) : text.find(separator);
      if (at == std::string_view::npos) break;
      if (from_right) {
        parts.push_back(text.substr(at + separator.size()));
        text = text.substr(0, at);
      } else {
        parts.push_back(text.substr(0, at));
        text.remove_prefix(at + separator.size());
      }
    }
    parts.push_back(text);
    if (from_right) std::reverse(parts.begin(), parts.end());
  }
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) items.push_back(make_str(part, self.is_markup));
  return rt.list(items);
}
Value str_split(Runtime& rt, const Value& s, const CallArguments& c) { return split(rt, s, c, false); }
Value str_rsplit(Runtime& rt, const Value& s, const CallArguments& c) { return split(rt, s, c, true); }

Value str_splitlines(Runtime& rt, const Value& self, const CallArguments& call) {
  const Bound args(rt, "splitlines", call, {"keepends"});
  rt.charge(self.size / 8);
  std::vector<Value> items;
  for (const std::string_view line : split_lines(self.str(), args.flag(0)))
    items.push_back(make_str(line, self.is_markup));
  return rt.list(items);
}

Value partition(Runtime& rt, const Value& self, const CallArguments& call, bool last) {
  const Bound args(rt, last ? "rpartition" : "partition", call, {"sep"}, 1);
  const std::string_view text = self.str(), separator = args.text(0);
  if (separator.empty()) rt.fail("partition needs a separator that is not empty.");
  rt.charge(text.size() / 16);
  const size_t at = last ? text.rfind(separator) : text.find(separator);
  Value parts[3] = {self, make_str("", self.is_markup), make_str("", self.is_markup)};
  if (at == std::string_view::npos) {
    if (last) std::swap(parts[0], parts[2]);
  } else {
    parts[0] = make_str(text.substr(0, at), self.is_markup);
    parts[1] = make_str(separator, self.is_markup);
    parts[2] = make_str(text.substr(at + separator.size()), self.is_markup);
  }
  return rt.tuple(parts, 3);
}
Value str_partition(Runtime& rt, const Value& s, const CallArguments& c) {
  return partition(rt, s, c, false);
}
Value str_rpartition(Runtime& rt, const Value& s, const CallArguments& c) {
  return partition(rt, s, c, true);
}

Value str_replace(Runtime& rt, const Value& self, const CallArguments& call) {
  const Bound args(rt, "replace", call, {"old", "new", "count"}, 2);
  const std::string_view to = args.text(1);
  const bool escapes = self.is_markup && !args[1].is_markup;
  return replace_text(rt, self.str(), args.text(0), escapes ? rt.copy_text(html_escape(to)).str() : to,
                      args.integer(2, -1));
}

Value str_removeprefix(Runtime& rt, const Value& self, const CallArguments& call) {
  const std::string_view prefix = Bound(rt, "removeprefix", call, {"prefix"}, 1).text(0);
  return self.str().starts_with(prefix) ? make_str(self.str().substr(prefix.size()), self.is_markup) : self;
}
Value str_removesuffix(Runtime& rt, const Value& self, const CallArguments& call) {
  const std::string_view suffix = Bound(rt, "removesuffix", call, {"suffix"}, 1).text(0);
  if (!self.str().ends_with(suffix)) return self;
  return make_str(self.str().substr(0, self.size - suffix.size()), self.is_markup);
}

template <std::string (*Change)(std::string_view)>
Value str_change(Runtime& rt, const Value& self, const CallArguments& call) {
  const Bound args(rt, "the method", call, {});
  rt.charge(self.size / 4);
  return rt.copy_text(Change(self.str()), self.is_markup);
}

template <CharTest Test>
Value str_is(Runtime& rt, const Value& self, const CallArguments& call) {
  const Bound args(rt, "the method", call, {});
  rt.charge(self.size / 4);
  return make_bool(all_are(Test, self.str()));
}

Value str_join(Runtime& rt, const Value& self, const CallArguments& call) {
  const Bound args(rt, "join", call, {"iterable"}, 1);
  if (self.is_markup) {
    std::vector<Value> escaped;
    for (const Value& item : items_of(rt, args[0])) {
      const Value text = to_str(rt, item);
      escaped.push_back(text.is_markup ? text : rt.copy_text(html_escape(text.str())));
    }
    return join_text(rt, self.str(), escaped, false);
  }
  return join_text(rt, self.str(), items_of(rt, args[0]), false);
}

template <char Align>
Value str_justify(Runtime& rt, const Value& self, const CallArguments& call) {
  const Bound args(rt, "the method", call, {"width", "fillchar"}, 1);
  const std::string_view fill = args.has(1) ? args.text(1) : " ";
  if (count_chars(fill) != 1) rt.fail("the fill character must be exactly one character.");
  return pad_text(rt, self.str(), args.integer(0, 0), fill, Align);
}

Value str_zfill(Runtime& rt, const Value& self, const CallArguments& call) {
  const Bound args(rt, "zfill", call, {"width"}, 1);
  std::string_view text = self.str();
  std::string_view sign = text.substr(0, !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0);
  text.remove_prefix(sign.size());
  const int64_t width = args.integer(0, 0);
  const Value padded = pad_text(rt, text, width - static_cast<int64_t>(sign.size()), "0", '>');
  return rt.copy_text(std::string(sign) + std::string(padded.str()));
}

Value str_format(Runtime& rt, const Value& self, const CallArguments& call) {
  return format_braces(rt, self.str(), call);
}

Value dict_view(Runtime& rt, const Value& self, const CallArguments& call, View::What what) {
  const Bound args(rt, "the method", call, {});
  Value out;
  out.kind = Kind::View;
  out.view = rt.arena.make(View{self.dict, what});
  return out;
}
Value dict_keys(Runtime& rt, const Value& s, const CallArguments& c) {
  return dict_view(rt, s, c, View::What::Keys);
}
Value dict_values(Runtime& rt, const Value& s, const CallArguments& c) {
  return dict_view(rt, s, c, View::What::Values);
}
Value dict_items(Runtime& rt, const Value& s, const CallArguments& c) {
  return dict_view(rt, s, c, View::What::Items);
}

Value dict_get(Runtime& rt, const Value& self, const CallArguments& call) {
  const Bound args(rt, "get", call, {"key", "default"}, 1);
  const uint32_t at = find_entry(rt, *self.dict, args[0]);
  return at < self.dict->size ? self.dict->entries[at].value : args.get(1, make_none());
}

Value copy(Runtime& rt, const Value& self, const CallArguments& call) {
  const Bound args(rt, "copy", call, {});
  return self;
}

Value list_index(Runtime& rt, const Value& self, const CallArguments& call) {
  const Bound args(rt, "index", call, {"value", "start", "stop"}, 1);
  const std::span<const Value> items = items_of(rt, self);
  const auto size = static_cast<int64_t>(items.size());
  const auto clip = [&](int64_t at) { return at < 0 ? std::max<int64_t>(at + size, 0) : at; };
  const int64_t stop = std::min(clip(args.integer(2, size)), size);
  for (int64_t i = clip(args.integer(1, 0)); i < stop; ++i) {
    if (equals(rt, items[static_cast<size_t>(i)], args[0])) return make_int(i);
  }
  rt.fail("the value is not in the list.");
}

Value list_count(Runtime& rt, const Value& self, const CallArguments& call) {
  const Bound args(rt, "count", call, {"value"}, 1);
  int64_t n = 0;
  for (const Value& item : items_of(rt, self)) n += equals(rt, item, args[0]);
  return make_int(n);
}

constexpr MethodInfo kStrMethods[] = {
    {"strip", str_strip},
    {"lstrip", str_lstrip},
    {"rstrip", str_rstrip},
    {"split", str_split, true},
    {"rsplit", str_rsplit, true},
    {"splitlines", str_splitlines, true},
    {"partition", str_partition},
    {"rpartition", str_rpartition},
    {"startswith", str_startswith},
    {"endswith", str_endswith},
    {"removeprefix", str_removeprefix},
    {"removesuffix", str_removesuffix},
    {"replace", str_replace},
    {"upper", str_change<to_upper>},
    {"lower", str_change<to_lower>},
    {"title", str_change<to_title>},
    {"capitalize", str_change<capitalize>},
    {"swapcase", str_change<swap_case>},
    {"find", str_find},
    {"rfind", str_rfind},
    {"index", str_index},
    {"rindex", str_rindex},
    {"count", str_count},
    {"join", str_join},
    {"format", str_format, true},
    {"center", str_justify<'^'>},
    {"ljust", str_justify<'<'>},
    {"rjust", str_justify<'>'>},
    {"zfill", str_zfill},
    {"isalpha", str_is<CharTest::Alpha>},
    {"isalnum", str_is<CharTest::Alnum>},
    {"isdigit", str_is<CharTest::Digit>},
    {"isdecimal", str_is<CharTest::Decimal>},
    {"isnumeric", str_is<CharTest::Numeric>},
    {"isspace", str_is<CharTest::Space>},
    {"islower", str_is<CharTest::Lower>},
    {"isupper", str_is<CharTest::Upper>},
    {"istitle", str_is<CharTest::Title>},
    {"isascii", str_is<CharTest::Ascii>},
    {"isidentifier", str_is<CharTest::Identifier>},
    {"isprintable", str_is<CharTest::Printable>},
};
constexpr MethodInfo kDictMethods[] = {
    {"items", dict_items}, {"keys", dict_keys}, {"values", dict_values}, {"get", dict_get}, {"copy", copy},
};
constexpr MethodInfo kListMethods[] = {{"index", list_index}, {"count", list_count}, {"copy", copy}};
constexpr MethodInfo kTupleMethods[] = {{"index", list_index}, {"count", list_count}};

std::span<const MethodInfo> methods_of(Kind kind) {
  switch (kind) {
    case Kind::Str:
      return kStrMethods;
    case Kind::Dict:
      return kDictMethods;
    case Kind::List:
      return kListMethods;
    case Kind::Tuple:
    case Kind::Range:
      return kTupleMethods;
    default:
      return {};
  }
}

}  // namespace

const MethodInfo* find_method(Kind kind, std::string_view name) {
  for (const MethodInfo& method : methods_of(kind)) {
    if (method.name == name) return &method;
  }
  return nullptr;
}

bool is_mutating_method(Kind kind, std::string_view name) {
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  static constexpr std::string_view kList[] = {"append", "clear", "pop",    "reverse",
                                               "insert", "sort",  "extend", "remove"};
  if (kind == Kind::Dict) return std::find(std::begin(kDict), std::end(kDict), name) != std::end(kDict);
  if (kind == Kind::List) return std::find(std::begin(kList), std::end(kList), name) != std::end(kList);
  return false;
}

const char* method_name(const MethodInfo& method) { return method.name.data(); }

Value call_method(Runtime& rt, const Method& method, const CallArguments& call) {
  if (!call.named.empty() && !method.info->takes_names) {
    rt.fail("the method %s takes no arguments by name.", method_name(*method.info));
  }
  Value out = method.info->run(rt, method.self, call);
  if (method.self.is_string() && out.is_string()) out.is_markup = method.self.is_markup;
  return out;
}

}  // namespace vllm::jinja

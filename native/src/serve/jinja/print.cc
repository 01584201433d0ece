#include "serve/jinja/print.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "serve/jinja/ast.h"
#include "serve/jinja/loop.h"
#include "serve/jinja/methods.h"
#include "serve/jinja/numbers.h"
#include "serve/jinja/operators.h"
#include "serve/jinja/unicode_text.h"
#include "text/unicode.h"

namespace vllm::jinja {

namespace {

void check_size(Runtime& rt, const std::string& out) {
  if (out.size() > kMaxText) rt.fail("a text is longer than the %zu MiB that are allowed.", kMaxText >> 20);
}

template <typename Items, typename Append>
void append_joined(Runtime& rt, std::string& out, const Items& items, Append append) {
  bool first = true;
  for (const auto& item : items) {
    if (!first) out += ", ";
    first = false;
    append(item);
    check_size(rt, out);
  }
}

void append_entries(Runtime& rt, std::string& out, const Entry* entries, uint32_t size) {
  out += '{';
  append_joined(rt, out, std::span<const Entry>(entries, size), [&](const Entry& entry) {
    append_repr(rt, out, entry.key);
    out += ": ";
    append_repr(rt, out, entry.value);
  });
  out += '}';
}

}  // namespace

void append_repr(Runtime& rt, std::string& out, const Value& value) {
  rt.charge(1);
  switch (value.kind) {
    case Kind::Missing:
    case Kind::Undefined:
      out += "Undefined";
      return;
    case Kind::None:
      out += "None";
      return;
    case Kind::Bool:
      out += value.boolean ? "True" : "False";
      return;
    case Kind::Int:
      out += std::to_string(value.integer);
      return;
    case Kind::BigInt:
      out += value.str();
      return;
    case Kind::Float:
      out += float_repr(value.number);
      return;
    case Kind::Str:
      rt.charge(value.size / 16);
      if (value.is_markup) out += "Markup(";
      append_repr(out, value.str());
      if (value.is_markup) out += ')';
      return;
    case Kind::List:
    case Kind::Tuple: {
      rt.check_stack();
      out += value.kind == Kind::List ? '[' : '(';
      append_joined(rt, out, std::span<const Value>(value.sequence->items, value.sequence->size),
                    [&](const Value& item) { append_repr(rt, out, item); });
      if (value.kind == Kind::Tuple && value.sequence->size == 1) out += ',';
      out += value.kind == Kind::List ? ']' : ')';
      return;
    }
    case Kind::Dict:
      rt.check_stack();
      append_entries(rt, out, value.dict->entries, value.dict->size);
      return;
    case Kind::Range:
      out += format("range(%lld, %lld", static_cast<long long>(value.range->start),
                    static_cast<long long>(value.range->stop));
      if (value.range->step != 1) out += format(", %lld", static_cast<long long>(value.range->step));
      out += ')';
      return;
    case Kind::View:
      rt.check_stack();
      out += type_name(value) + "([";
      append_joined(rt, out, items_of(rt, value), [&](const Value& item) { append_repr(rt, out, item); });
      out += "])";
      return;
    case Kind::Namespace:
      rt.check_stack();
      out += "<Namespace ";
      append_entries(rt, out, value.ns->entries, value.ns->size);
      out += '>';
      return;
    case Kind::Loop:
      out += format("<LoopContext %lld/%lld>", static_cast<long long>(value.loop->index0() + 1),
                    static_cast<long long>(value.loop->length()));
      return;
    case Kind::Macro:
      out += "<Macro ";
      if (value.macro->node->text.empty()) {
        out += "anonymous";
      } else {
        append_repr(out, value.macro->node->text);
      }
      out += '>';
      return;
    case Kind::Method:
      out += format("<built-in method %s of %s object>", method_name(*value.method->info),
                    type_name(value.method->self).c_str());
      return;
    default:
      out += "<" + type_name(value) + " object>";
  }
}

void append_str(Runtime& rt, std::string& out, const Value& value) {
  if (value.is_string()) {
    rt.charge(value.size / 64);
    out += value.str();
  } else if (!value.is_undefined()) {
    append_repr(rt, out, value);
  }
}

Value to_str(Runtime& rt, const Value& value) {
  if (value.is_string()) return value;
  std::string out;
  append_str(rt, out, value);
  return rt.copy_text(out);
}

std::string_view text_of(Runtime& rt, const Value& value) { return to_str(rt, value).str(); }

namespace {

void append_json_text(std::string& out, std::string_view text, bool ensure_ascii) {
  out += '"';
  size_t plain = 0;
  for (size_t pos = 0; pos < text.size();) {
    const size_t start = pos;
    const auto byte = static_cast<unsigned char>(text[pos]);
    if (byte >= 0x20 && byte != '"' && byte != '\\' && (!ensure_ascii || byte < 0x7f)) {
      ++pos;
      continue;
    }
    out += text.substr(plain, start - plain);
    const int32_t c = read_utf8(text, pos);
    plain = pos;
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (c >= 0x10000) {
          out += format("\\u%04x\\u%04x", static_cast<unsigned>(0xd7c0 + (c >> 10)),
                        static_cast<unsigned>(0xdc00 + (c & 0x3ff)));
        } else {
          out += format("\\u%04x", static_cast<unsigned>(c));
        }
    }
  }
  out += text.substr(plain);
  out += '"';
}

std::string json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return float_repr(value);
}

void append_json_key(Runtime& rt, std::string& out, const Value& key, const JsonStyle& style) {
  switch (key.kind) {
    case Kind::Str:
      append_json_text(out, key.str(), style.ensure_ascii);
      return;
    case Kind::None:
    case Kind::Bool:
    case Kind::Int:
    case Kind::BigInt:
    case Kind::Float:
      out += '"';
      append_json(rt, out, key, style);
      out += '"';
      return;
    default:
      rt.fail("a %s cannot be a key in JSON.", type_name(key).c_str());
  }
}

void append_line(std::string& out, const JsonStyle& style, int level) {
  if (!style.pretty) return;
  out += '\n';
  for (int i = 0; i < level; ++i) out += style.indent;
}

}  // namespace

void append_json(Runtime& rt, std::string& out, const Value& value, const JsonStyle& style, int level) {
  rt.charge(1);
  check_size(rt, out);
  switch (value.kind) {
    case Kind::None:
      out += "null";
      return;
    case Kind::Bool:
      out += value.boolean ? "true" : "false";
      return;
    case Kind::Int:
      out += std::to_string(value.integer);
      return;
    case Kind::BigInt:
      out += value.str();
      return;
    case Kind::Float:
      out += json_number(value.number);
      return;
    case Kind::Str:
      rt.charge(value.size / 16);
      append_json_text(out, value.str(), style.ensure_ascii);
      return;
    case Kind::List:
    case Kind::Tuple: {
      rt.check_stack();
      const Sequence& list = *value.sequence;
      out += '[';
      for (uint32_t i = 0; i < list.size; ++i) {
        if (i != 0) out += style.item_separator;
        append_line(out, style, level + 1);
        append_json(rt, out, list.items[i], style, level + 1);
      }
      if (list.size != 0) append_line(out, style, level);
      out += ']';
      return;
    }
    case Kind::Dict: {
      rt.check_stack();
      std::span<const Entry> entries(value.dict->entries, value.dict->size);
      std::vector<Entry> sorted;
      if (style.sort_keys) {
        sorted.assign(entries.begin(), entries.end());
        std::stable_sort(sorted.begin(), sorted.end(),
                         [&](const Entry& a, const Entry& b) { return less(rt, a.key, b.key); });
        entries = sorted;
      }
      out += '{';
      bool first = true;
      for (const Entry& entry : entries) {
        if (!first) out += style.item_separator;
        first = false;
        append_line(out, style, level + 1);
        append_json_key(rt, out, entry.key, style);
        out += style.key_separator;
        append_json(rt, out, entry.value, style, level + 1);
      }
      if (!entries.empty()) append_line(out, style, level);
      out += '}';
      return;
    }
    default:
      rt.fail("a value of type %s has no JSON form.", type_name(value).c_str());
  }
}

}  // namespace vllm::jinja

#include "serve/jinja/runtime.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "base/error.h"
#include "serve/jinja/operators.h"
#include "serve/jinja/unicode_text.h"
#include "text/unicode.h"

namespace vllm::jinja {

std::string describe_position(std::string_view source, size_t offset) {
  const std::string_view before = source.substr(0, std::min(offset, source.size()));
  const size_t newline = before.rfind('\n');
  const std::string_view line = newline == std::string_view::npos ? before : before.substr(newline + 1);
  const auto row = std::count(before.begin(), before.end(), '\n') + 1;
  const auto column = std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; }) + 1;
  return format("%td:%td", row, column);
}

Runtime::Runtime(const std::string& source, std::optional<std::tm> now)
    : source_(source), now_(now), stack_base_(static_cast<const char*>(__builtin_frame_address(0))) {}

void Runtime::fail(const char* fmt, ...) const {
  va_list args;
  va_start(args, fmt);
  va_list copy;
  va_copy(copy, args);
  const int size = std::vsnprintf(nullptr, 0, fmt, copy);
  va_end(copy);
  std::string message(size > 0 ? static_cast<size_t>(size) : 0, '\0');
  if (size > 0) std::vsnprintf(message.data(), message.size() + 1, fmt, args);
  va_end(args);
  fail_argument("Chat template at %s: %s", describe_position(source_, position_).c_str(), message.c_str());
}

void Runtime::fail_undefined(const Value& value) const {
  const UndefinedInfo& info = *value.undefined;
  if (!info.hint.empty()) fail("%s", std::string(info.hint).c_str());
  const std::string name = quote(info.name);
  const std::string type(info.object_type);
  if (type.empty()) fail("%s is undefined.", name.c_str());
  if (info.is_element) fail("%s has no element %s.", type.c_str(), std::string(info.name).c_str());
  fail("'%s' has no attribute %s.", type.c_str(), name.c_str());
}

void Runtime::too_long() const {
  fail("the template takes more than the %llu steps that are allowed.",
       static_cast<unsigned long long>(kMaxSteps));
}

void Runtime::too_deep() const { fail("calls or values are nested too deeply."); }

Value Runtime::copy_text(std::string_view text, bool is_markup) {
  if (text.size() > kMaxText) fail("a text is longer than the %zu MiB that are allowed.", kMaxText >> 20);
  charge(text.size() / 16);
  char* out = static_cast<char*>(arena.allocate(text.size()));
  if (!text.empty()) std::memcpy(out, text.data(), text.size());
  return make_str({out, text.size()}, is_markup);
}

namespace {

Value make_sequence(Runtime& rt, Kind kind, const Value* items, size_t size, bool is_group) {
  if (size > static_cast<size_t>(kMaxItems)) {
    rt.fail("a list has more than the %lld items that are allowed.", static_cast<long long>(kMaxItems));
  }
  rt.charge(size / 4);
  Value* copy = rt.arena.allocate_array<Value>(size);
  std::copy_n(items, size, copy);
  Value out;
  out.kind = kind;
  out.sequence = rt.arena.make(Sequence{copy, static_cast<uint32_t>(size), is_group});
  return out;
}

}  // namespace

Value Runtime::list(const Value* items, size_t size) {
  return make_sequence(*this, Kind::List, items, size, false);
}
Value Runtime::list(const std::vector<Value>& items) { return list(items.data(), items.size()); }
Value Runtime::tuple(const Value* items, size_t size) {
  return make_sequence(*this, Kind::Tuple, items, size, false);
}

Value Runtime::pair(const Value& first, const Value& second, bool is_group) {
  const Value items[2] = {first, second};
  return make_sequence(*this, Kind::Tuple, items, 2, is_group);
}

Value Runtime::dict(const std::vector<Entry>& entries) {
  charge(entries.size());
  Entry* kept = arena.allocate_array<Entry>(entries.size());
  Dict* dict = arena.make(Dict{kept, 0, 0, nullptr});
  uint32_t* index = nullptr;
  if (entries.size() > kUnindexedDict) {
    size_t slots = 16;
    while (slots < entries.size() * 2) slots *= 2;
    index = arena.allocate_array<uint32_t>(slots);
    std::fill_n(index, slots, 0);
    dict->index = index;
    dict->mask = static_cast<uint32_t>(slots - 1);
  }
  for (const Entry& entry : entries) {
    uint32_t slot = 0;
    const uint32_t at = find_entry(*this, *dict, entry.key, &slot);
    if (at < dict->size) {
      kept[at].value = entry.value;
      continue;
    }
    kept[dict->size++] = entry;
    if (index) index[slot] = dict->size;
  }
  Value out;
  out.kind = Kind::Dict;
  out.dict = dict;
  return out;
}

Value Runtime::iterator(const std::vector<Value>& items, std::string_view type_name) {
  charge(items.size() / 4);
  Value* copy = arena.allocate_array<Value>(items.size());
  std::copy(items.begin(), items.end(), copy);
  Value out;
  out.kind = Kind::Iterator;
  out.iterator = arena.make(Iterator{copy, static_cast<uint32_t>(items.size()), 0, type_name});
  return out;
}

Value Runtime::function(Function function, const Value& self) {
  Value out;
  out.kind = Kind::Function;
  out.function = arena.make(BoundFunction{function, self});
  return out;
}

Value Runtime::json_text(std::string_view text) {
  if (text.size() > kMaxText) fail("a text is longer than the %zu MiB that are allowed.", kMaxText >> 20);
  charge(text.size() / 64);
  if (!is_ascii(text) && find_invalid_utf8(text) != std::string_view::npos) {
    fail("a variable holds text that is no valid UTF-8.");
  }
  return make_str(text);
}

Value Runtime::from_json(const Json& json, int depth) {
  if (depth > kMaxDataDepth)
    fail("a variable is nested deeper than the %d levels that are allowed.", kMaxDataDepth);
  check_stack();
  charge(1);
  Value out;
  switch (json.type()) {
    case Json::value_t::null:
    case Json::value_t::discarded:
    case Json::value_t::binary:
      return make_none();
    case Json::value_t::boolean:
      return make_bool(json.get<bool>());
    case Json::value_t::number_integer:
      return make_int(json.get<int64_t>());
    case Json::value_t::number_unsigned: {
      const uint64_t number = json.get<uint64_t>();
      if (number <= INT64_MAX) return make_int(static_cast<int64_t>(number));
      out = copy_text(std::to_string(number));
      out.kind = Kind::BigInt;
      return out;
    }
    case Json::value_t::number_float:
      return make_float(json.get<double>());
    case Json::value_t::string:
      return json_text(json.get_ref<const std::string&>());
    case Json::value_t::array: {
      Value* items = arena.allocate_array<Value>(json.size());
      size_t n = 0;
      for (const Json& item : json) items[n++] = from_json(item, depth + 1);
      out.kind = Kind::List;
      out.sequence = arena.make(Sequence{items, static_cast<uint32_t>(n), false});
      return out;
    }
    case Json::value_t::object: {
      Entry* entries = arena.allocate_array<Entry>(json.size());
      size_t n = 0;
      for (const auto& [key, value] : json.get_ref<const Json::object_t&>()) {
        entries[n++] = {json_text(key), from_json(value, depth + 1)};
      }
      out.kind = Kind::Dict;
      out.dict = arena.make(Dict{entries, static_cast<uint32_t>(n), 0, nullptr});
      return out;
    }
  }
  return make_none();
}

}  // namespace vllm::jinja

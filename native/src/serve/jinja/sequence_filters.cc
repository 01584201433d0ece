// Filters over lists and dicts.
#include <algorithm>
#include <functional>

#include "base/error.h"
#include "serve/jinja/access.h"
#include "serve/jinja/filters.h"
#include "serve/jinja/methods.h"
#include "serve/jinja/operators.h"
#include "serve/jinja/print.h"
#include "serve/jinja/tests.h"
#include "serve/jinja/unicode_text.h"
#include "text/unicode.h"

namespace vllm::jinja {
namespace {

Value fold_case(Runtime& rt, const Value& value) {
  return value.is_string() ? rt.copy_text(to_lower(value.str())) : value;
}

/// What is sorted or grouped by: the attribute of an item, texts in lower case unless case counts.
Value key_of(Runtime& rt, const Value& item, const Value& path, bool case_sensitive) {
  const Value key = path.kind == Kind::Missing ? item : get_path(rt, item, path);
  return case_sensitive ? key : fold_case(rt, key);
}

struct Keyed {
  Value key;
  Value item;
};

void sort_by_key(Runtime& rt, std::vector<Keyed>& items, bool reverse) {
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    return reverse ? less(rt, b.key, a.key) : less(rt, a.key, b.key);
  });
}

Value list_of(Runtime& rt, const std::vector<Keyed>& items) {
  std::vector<Value> out;
  for (const Keyed& item : items) out.push_back(item.item);
  return rt.list(out);
}

Value length(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "length", call, {});
  int64_t size;
  if (!length_of(input, size)) rt.fail("a %s has no length.", type_name(input).c_str());
  if (input.is_string()) rt.charge(input.size / 16);
  return make_int(size);
}

Value list(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "list", call, {});
  const std::span<const Value> items = items_of(rt, input);
  return rt.list(items.data(), items.size());
}

Value items(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "items", call, {});
  if (input.is_undefined()) return rt.iterator({});
  if (input.kind != Kind::Dict) rt.fail("items needs a dict, not a %s.", type_name(input).c_str());
  std::vector<Value> pairs;
  for (uint32_t i = 0; i < input.dict->size; ++i) {
    pairs.push_back(rt.pair(input.dict->entries[i].key, input.dict->entries[i].value));
  }
  return rt.iterator(pairs);
}

Value default_filter(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "default", call, {"default_value", "boolean"});
  if (input.is_undefined() || (args.flag(1) && !truth(input))) return args.get(0, make_str(""));
  return input;
}

Value join(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "join", call, {"d", "attribute"});
  std::span<const Value> parts = items_of(rt, input);
  std::vector<Value> attributes;
  if (args.has(1) && !args[1].is_none()) {
    for (const Value& item : parts) attributes.push_back(get_path(rt, item, args[1]));
    parts = attributes;
  }
  return join_text(rt, args.has(0) ? text_of(rt, args[0]) : "", parts, true);
}

Value first(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "first", call, {});
  if (input.kind == Kind::Iterator) {
    Iterator& it = *input.iterator;
    return it.next < it.size ? it.items[it.next++]
                             : rt.undefined_hint("there is no first item, the sequence is empty.");
  }
  const std::span<const Value> all = items_of(rt, input);
  return all.empty() ? rt.undefined_hint("there is no first item, the sequence is empty.") : all.front();
}

Value last(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "last", call, {});
  if (input.kind == Kind::Iterator) rt.fail("last needs a list, not a %s.", type_name(input).c_str());
  const std::span<const Value> all = items_of(rt, input);
  return all.empty() ? rt.undefined_hint("there is no last item, the sequence is empty.") : all.back();
}

Value reverse(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "reverse", call, {});
  const std::span<const Value> all = items_of(rt, input);
  std::vector<Value> out(all.rbegin(), all.rend());
  if (!input.is_string()) return rt.iterator(out, "list_reverseiterator");
  std::string text;
  for (const Value& c : out) text += c.str();
  return rt.copy_text(text, input.is_markup);
}

Value sort(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "sort", call, {"reverse", "case_sensitive", "attribute"});
  std::vector<Value> paths;
  if (args.has(2) && args[2].is_string()) {
    std::string_view rest = args[2].str();
    for (size_t comma = rest.find(','); comma != std::string_view::npos; comma = rest.find(',')) {
      paths.push_back(make_str(rest.substr(0, comma)));
      rest.remove_prefix(comma + 1);
    }
    paths.push_back(make_str(rest));
  } else {
    paths.push_back(args.get(2, make_none()));
  }
  std::vector<Keyed> keyed;
  for (const Value& item : items_of(rt, input)) {
    std::vector<Value> keys;
    for (const Value& path : paths) keys.push_back(key_of(rt, item, path, args.flag(1)));
    keyed.push_back({rt.list(keys), item});
  }
  sort_by_key(rt, keyed, args.flag(0));
  return list_of(rt, keyed);
}

Value dict_sort(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "dictsort", call, {"case_sensitive", "by", "reverse"});
  if (input.is_undefined()) rt.fail_undefined(input);
  if (input.kind != Kind::Dict) rt.fail("dictsort needs a dict, not a %s.", type_name(input).c_str());
  const std::string_view by = args.has(1) ? args.text(1) : "key";
  if (by != "key" && by != "value") rt.fail("dictsort can sort by 'key' or by 'value' only.");
  std::vector<Keyed> keyed;
  for (uint32_t i = 0; i < input.dict->size; ++i) {
    const Entry& entry = input.dict->entries[i];
    keyed.push_back({key_of(rt, by == "key" ? entry.key : entry.value, Value(), args.flag(0)),
                     rt.pair(entry.key, entry.value)});
  }
  sort_by_key(rt, keyed, args.flag(2));
  return list_of(rt, keyed);
}

Value unique(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "unique", call, {"case_sensitive", "attribute"});
  const std::span<const Value> all = items_of(rt, input);
  std::vector<Entry> keys;
  for (const Value& item : all)
    keys.push_back({key_of(rt, item, args.get(1, make_none()), args.flag(0)), item});
  const Dict& seen = *rt.dict(keys).dict;
  std::vector<Value> out(seen.size);
  for (size_t i = all.size(); i-- > 0;) out[find_entry(rt, seen, keys[i].key)] = all[i];
  return rt.iterator(out);
}

Value extreme(Runtime& rt, const Value& input, const CallArguments& call, bool largest) {
  const Bound args(rt, largest ? "max" : "min", call, {"case_sensitive", "attribute"});
  const std::span<const Value> all = items_of(rt, input);
  if (all.empty()) return rt.undefined_hint("there is no smallest or largest item, the sequence is empty.");
  Value best = all[0], best_key = key_of(rt, all[0], args.get(1, make_none()), args.flag(0));
  for (const Value& item : all.subspan(1)) {
    const Value key = key_of(rt, item, args.get(1, make_none()), args.flag(0));
    if (largest ? compare(rt, CompareOp::Greater, key, best_key) : less(rt, key, best_key)) {
      best = item;
      best_key = key;
    }
  }
  return best;
}
Value min_filter(Runtime& rt, const Value& input, const CallArguments& call) {
  return extreme(rt, input, call, false);
}
Value max_filter(Runtime& rt, const Value& input, const CallArguments& call) {
  return extreme(rt, input, call, true);
}

Value sum(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "sum", call, {"attribute", "start"});
  Value total = args.get(1, make_int(0));
  if (total.is_string()) rt.fail("sum cannot add texts.");
  for (const Value& item : items_of(rt, input)) {
    const bool whole = !args.has(0) || args[0].is_none();
    total = binary(rt, BinaryOp::Add, total, whole ? item : get_path(rt, item, args[0]));
  }
  return total;
}

Value batch(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "batch", call, {"linecount", "fill_with"}, 1);
  const int64_t count = args.integer(0, 1);
  if (count < 1) rt.fail("batch needs a size of at least 1.");
  const std::span<const Value> all = items_of(rt, input);
  std::vector<Value> out;
  for (size_t at = 0; at < all.size(); at += static_cast<size_t>(count)) {
    const auto part = all.subspan(at, std::min(static_cast<size_t>(count), all.size() - at));
    std::vector<Value> row(part.begin(), part.end());
    if (args.has(1) && !args[1].is_none()) {
      if (count > kMaxItems) rt.fail("batch makes rows that are too long.");
      row.resize(static_cast<size_t>(count), args[1]);
    }
    out.push_back(rt.list(row));
    if (static_cast<size_t>(count) >= all.size()) break;
  }
  return rt.iterator(out);
}

Value slice(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "slice", call, {"slices", "fill_with"}, 1);
  const int64_t slices = args.integer(0, 1);
  if (slices == 0) rt.fail("division by zero.");
  if (slices > kMaxRange) rt.fail("slice makes more than %lld lists.", static_cast<long long>(kMaxRange));
  const std::span<const Value> all = items_of(rt, input);
  std::vector<Value> out;
  size_t at = 0;
  for (int64_t i = 0; i < slices; ++i) {
    const size_t extra = all.size() % static_cast<size_t>(slices);
    const bool longer = static_cast<size_t>(i) < extra;
    const size_t size = all.size() / static_cast<size_t>(slices) + (longer ? 1 : 0);
    std::vector<Value> row(all.begin() + at, all.begin() + at + size);
    at += size;
    if (args.has(1) && !args[1].is_none() && !longer) row.push_back(args[1]);
    out.push_back(rt.list(row));
  }
  return rt.iterator(out);
}

Value get_path_or(Runtime& rt, const Value& item, const Value& path, const Value& otherwise) {
  if (otherwise.kind == Kind::Missing || otherwise.is_none()) return get_path(rt, item, path);
  if (!path.is_string()) {
    const Value found = get_path(rt, item, path);
    return found.is_undefined() ? otherwise : found;
  }
  // The default stands in for each part that is missing, and the next part is looked up in it.
  Value at = item;
  std::string_view rest = path.str();
  while (true) {
    const size_t dot = rest.find('.');
    at = get_path(rt, at, make_str(rest.substr(0, dot)));
    if (at.is_undefined()) at = otherwise;
    if (dot == std::string_view::npos) return at;
    rest.remove_prefix(dot + 1);
  }
}

Value group_by(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "groupby", call, {"attribute", "default", "case_sensitive"}, 1);
  const bool case_sensitive = args.flag(2);
  std::vector<Keyed> keyed;
  for (const Value& item : items_of(rt, input)) {
    const Value key = get_path_or(rt, item, args[0], args[1]);
    keyed.push_back({case_sensitive ? key : fold_case(rt, key), item});
  }
  sort_by_key(rt, keyed, false);
  std::vector<Value> out;
  for (size_t begin = 0; begin < keyed.size();) {
    std::vector<Value> group;
    size_t end = begin;
    while (end < keyed.size() && equals(rt, keyed[end].key, keyed[begin].key))
      group.push_back(keyed[end++].item);
    if (end == begin) group.push_back(keyed[end++].item);  // not a number: equal to nothing
    out.push_back(rt.pair(case_sensitive ? keyed[begin].key : get_path_or(rt, group[0], args[0], args[1]),
                          rt.list(group), true));
    begin = end;
  }
  return rt.list(out);
}

Value map(Runtime& rt, const Value& input, const CallArguments& call) {
  std::vector<Value> out;
  if (call.positional.empty() && !call.named.empty()) {
    const Bound args(rt, "map", call, {"attribute", "default"}, 1);
    if (!truth(input)) return rt.iterator({});
    for (const Value& item : items_of(rt, input)) out.push_back(get_path_or(rt, item, args[0], args[1]));
    return rt.iterator(out);
  }
  if (!truth(input)) return rt.iterator({});
  if (call.positional.empty() || !call.positional[0].is_string()) rt.fail("map needs the name of a filter.");
  const std::string_view name = call.positional[0].str();
  const FilterInfo* filter = find_filter(name);
  if (!filter) rt.fail("no filter is named %s.", quote(name).c_str());
  const CallArguments rest{call.positional.subspan(1), call.named};
  for (const Value& item : items_of(rt, input)) {
    rt.charge(1);
    out.push_back(filter->run(rt, item, rest));
  }
  return rt.iterator(out);
}

Value choose(Runtime& rt, const Value& input, const CallArguments& call, const char* filter,
             bool by_attribute, bool keep) {
  if (!truth(input)) return rt.iterator({});
  std::span<const Value> rest = call.positional;
  Value path = make_none();
  if (by_attribute) {
    if (rest.empty()) rt.fail("%s needs the name of an attribute.", filter);
    path = rest[0];
    rest = rest.subspan(1);
  }
  const TestInfo* test = nullptr;
  if (!rest.empty()) {
    if (rest[0].is_string()) test = find_test(rest[0].str());
    if (!test) rt.fail("no test is named %s.", quote(text_of(rt, rest[0])).c_str());
    rest = rest.subspan(1);
  }
  std::vector<Value> out;
  for (const Value& item : items_of(rt, input)) {
    rt.charge(1);
    const Value value = by_attribute ? get_path(rt, item, path) : item;
    const bool passes = test ? test->run(rt, value, {rest, call.named}) : truth(value);
    if (passes == keep) out.push_back(item);
  }
  return rt.iterator(out);
}
Value select(Runtime& rt, const Value& v, const CallArguments& c) {
  return choose(rt, v, c, "select", false, true);
}
Value reject(Runtime& rt, const Value& v, const CallArguments& c) {
  return choose(rt, v, c, "reject", false, false);
}
Value select_attr(Runtime& rt, const Value& v, const CallArguments& c) {
  return choose(rt, v, c, "selectattr", true, true);
}
Value reject_attr(Runtime& rt, const Value& v, const CallArguments& c) {
  return choose(rt, v, c, "rejectattr", true, false);
}

Value attr(Runtime& rt, const Value& input, const CallArguments& call) {
  const Bound args(rt, "attr", call, {"name"}, 1);
  const std::string_view name = args.text(0);
  // Items do not count: a dict has its methods only.
  if (input.kind == Kind::Dict && !find_method(Kind::Dict, name) && !is_mutating_method(Kind::Dict, name)) {
    return rt.undefined({.hint = {}, .name = rt.copy_text(name).str(), .object_type = "dict object"});
  }
  return get_attribute(rt, input, name);
}

constexpr FilterInfo kTable[] = {
    {"attr", attr},
    {"batch", batch},
    {"count", length},
    {"d", default_filter},
    {"default", default_filter},
    {"dictsort", dict_sort},
    {"first", first},
    {"groupby", group_by},
    {"items", items},
    {"join", join},
    {"last", last},
    {"length", length},
    {"list", list},
    {"map", map},
    {"max", max_filter},
    {"min", min_filter},
    {"reject", reject},
    {"rejectattr", reject_attr},
    {"reverse", reverse},
    {"select", select},
    {"selectattr", select_attr},
    {"slice", slice},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique},
};

}  // namespace

std::span<const FilterInfo> sequence_filters() { return kTable; }

}  // namespace vllm::jinja

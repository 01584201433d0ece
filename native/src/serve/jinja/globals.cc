#include "serve/jinja/globals.h"

#include <algorithm>

#include "base/error.h"
#include "serve/jinja/loop.h"
#include "serve/jinja/operators.h"
#include "serve/jinja/print.h"

namespace vllm::jinja {
namespace {

Value raise_exception(Runtime& rt, const CallArguments& call) {
  const Bound args(rt, "raise_exception", call, {"message"}, 1);
  throw Error(Status::InvalidArgument, std::string(text_of(rt, args[0])));
}

Value strftime_now(Runtime& rt, const CallArguments& call) {
  const Bound args(rt, "strftime_now", call, {"format"}, 1);
  std::tm time{};
  if (rt.now()) {
    time = *rt.now();
  } else {
    const std::time_t now = std::time(nullptr);
    localtime_r(&now, &time);
  }
  // A character in front tells an empty result from one that does not fit. As Python has it for a time
  // without zone and fraction, %f is zeros, %z and %Z are nothing.
  std::string format = ".";
  const std::string_view given = args.text(0);
  for (size_t i = 0; i < given.size(); ++i) {
    const char next = given[i] == '%' && i + 1 < given.size() ? given[i + 1] : '\0';
    if (next == 'f') format += "000000";
    if (next == 'f' || next == 'z' || next == 'Z') {
      ++i;
      continue;
    }
    format += given[i];
    if (next) format += given[++i];
  }
  if (format.size() > 10000) rt.fail("the format of strftime_now is too long.");
  std::string out(format.size() * 8 + 256, '\0');
  size_t size = 0;
  while ((size = std::strftime(out.data(), out.size(), format.c_str(), &time)) == 0) {
    if (out.size() > (size_t{1} << 20)) rt.fail("the result of strftime_now is too long.");
    out.resize(out.size() * 2);
  }
  return rt.copy_text(std::string_view(out).substr(1, size - 1));
}

Value range(Runtime& rt, const CallArguments& call) {
  if (!call.named.empty()) rt.fail("range takes no arguments by name.");
  if (call.positional.empty()) rt.fail("range needs at least one argument.");
  const Bound args(rt, "range", call, {"start", "stop", "step"});
  const bool one = call.positional.size() == 1;
  const int64_t start = one ? 0 : args.integer(0, 0), stop = one ? args.integer(0, 0) : args.integer(1, 0);
  const int64_t step = args.integer(2, 1);
  if (step == 0) rt.fail("the step of range cannot be zero.");
  uint64_t size = 0;
  if (step > 0 ? start < stop : start > stop) {
    const uint64_t distance = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                       : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
    const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
    size = (distance - 1) / stride + 1;
  }
  if (size > static_cast<uint64_t>(kMaxRange)) {
    rt.fail("range gives more than the %lld numbers that are allowed.", static_cast<long long>(kMaxRange));
  }
  Value out;
  out.kind = Kind::Range;
  out.range = rt.arena.make(Range{start, stop, step, static_cast<int64_t>(size)});
  return out;
}

/// The entries of dict(...) and namespace(...): of a dict or of pairs, then those given by name.
std::vector<Entry> entries_of(Runtime& rt, const CallArguments& call, const char* function) {
  std::vector<Entry> entries;
  if (call.positional.size() > 1) rt.fail("%s takes at most one value without a name.", function);
  if (!call.positional.empty()) {
    const Value& from = call.positional[0];
    if (from.kind == Kind::Dict) {
      entries.assign(from.dict->entries, from.dict->entries + from.dict->size);
    } else {
      for (const Value& item : items_of(rt, from)) {
        const std::span<const Value> pair = items_of(rt, item);
        if (pair.size() != 2) rt.fail("%s needs pairs of a key and a value.", function);
        entries.push_back({pair[0], pair[1]});
      }
    }
  }
  for (const NamedValue& named : call.named) entries.push_back({make_str(named.name), named.value});
  return entries;
}

Value make_namespace(Runtime& rt, const CallArguments& call) {
  const Value dict = rt.dict(entries_of(rt, call, "namespace"));
  const uint32_t size = dict.dict->size;
  Entry* entries = rt.arena.allocate_array<Entry>(size + 4);
  std::copy_n(dict.dict->entries, size, entries);
  for (uint32_t i = 0; i < size; ++i) {
    const Value& key = entries[i].key;
    if (!key.is_string()) rt.fail("the attributes of a namespace must be texts.");
    if (key.str().starts_with("_"))
      rt.fail("a namespace takes no attribute %s with '_' in front.", quote(key.str()).c_str());
  }
  Value out;
  out.kind = Kind::Namespace;
  out.ns = rt.arena.make(Namespace{entries, size, size + 4});
  return out;
}

Value make_joiner(Runtime& rt, const CallArguments& call) {
  const Bound args(rt, "joiner", call, {"sep"});
  Value out;
  out.kind = Kind::Joiner;
  out.joiner = rt.arena.make(Joiner{args.get(0, make_str(", ")), false});
  return out;
}

Value make_cycler(Runtime& rt, const CallArguments& call) {
  if (call.positional.empty() || !call.named.empty())
    rt.fail("cycler needs at least one item, without names.");
  const Value items = rt.tuple(call.positional.data(), call.positional.size());
  Value out;
  out.kind = Kind::Cycler;
  out.cycler = rt.arena.make(Cycler{items.sequence->items, items.sequence->size, 0});
  return out;
}

Value loop_cycle(Runtime& rt, const Loop& loop, const CallArguments& call) {
  if (call.positional.empty() || !call.named.empty())
    rt.fail("loop.cycle needs at least one item, without names.");
  const auto size = static_cast<int64_t>(call.positional.size());
  return call.positional[static_cast<size_t>(((loop.index0() % size) + size) % size)];
}

Value loop_changed(Runtime& rt, Loop& loop, const CallArguments& call) {
  if (!call.named.empty()) rt.fail("loop.changed takes no arguments by name.");
  const Value now = rt.tuple(call.positional.data(), call.positional.size());
  if (loop.last_changed.kind != Kind::Missing && equals(rt, loop.last_changed, now)) return make_bool(false);
  loop.last_changed = now;
  return make_bool(true);
}

Value dict_from_keys(Runtime& rt, const CallArguments& call) {
  const Bound args(rt, "fromkeys", call, {"iterable", "value"}, 1);
  std::vector<Entry> entries;
  for (const Value& key : items_of(rt, args[0])) entries.push_back({key, args.get(1, make_none())});
  return rt.dict(entries);
}

}  // namespace

Value find_global(Runtime& rt, std::string_view name) {
  static constexpr std::pair<std::string_view, Function> kGlobals[] = {
      {"raise_exception", Function::RaiseException},
      {"strftime_now", Function::StrftimeNow},
      {"range", Function::Range},
      {"dict", Function::Dict},
      {"namespace", Function::Namespace},
      {"joiner", Function::Joiner},
      {"cycler", Function::Cycler},
  };
  for (const auto& [known, function] : kGlobals) {
    if (known == name) return rt.function(function);
  }
  return Value();
}

Value call_function(Runtime& rt, const BoundFunction& function, const CallArguments& call) {
  switch (function.function) {
    case Function::RaiseException:
      return raise_exception(rt, call);
    case Function::StrftimeNow:
      return strftime_now(rt, call);
    case Function::Range:
      return range(rt, call);
    case Function::Dict:
      return rt.dict(entries_of(rt, call, "dict"));
    case Function::Namespace:
      return make_namespace(rt, call);
    case Function::Joiner:
      return make_joiner(rt, call);
    case Function::Cycler:
      return make_cycler(rt, call);
    case Function::LoopCycle:
      return loop_cycle(rt, *function.self.loop, call);
    case Function::LoopChanged:
      return loop_changed(rt, *function.self.loop, call);
    case Function::CyclerNext: {
      Cycler& cycler = *function.self.cycler;
      const Value out = cycler.items[cycler.next];
      cycler.next = (cycler.next + 1) % cycler.size;
      return out;
    }
    case Function::CyclerReset:
      function.self.cycler->next = 0;
      return make_none();
    case Function::DictFromKeys:
      return dict_from_keys(rt, call);
  }
  return make_none();
}

}  // namespace vllm::jinja

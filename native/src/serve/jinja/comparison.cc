// Equality, order and membership.
#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "serve/jinja/operators.h"

namespace vllm::jinja {

bool is_hashable(Runtime& rt, const Value& value) {
  switch (value.kind) {
    case Kind::List:
    case Kind::Dict:
    case Kind::View:
      return false;
    case Kind::Tuple:
      rt.check_stack();
      for (uint32_t i = 0; i < value.sequence->size; ++i) {
        rt.charge(1);
        if (!is_hashable(rt, value.sequence->items[i])) return false;
      }
      return true;
    default:
      return true;
  }
}

namespace {

uint64_t mix(uint64_t h) {
  h ^= h >> 32;
  h *= 0x9e3779b97f4a7c15u;
  return h ^ h >> 29;
}

uint64_t hash_of(Runtime& rt, const Value& value) {
  rt.charge(1);
  switch (value.kind) {
    case Kind::Str:
      rt.charge(value.size / 16);
      return std::hash<std::string_view>()(value.str());
    case Kind::Bool:
    case Kind::Int:
      return mix(static_cast<uint64_t>(value.as_integer()));
    case Kind::Float:
      if (std::fabs(value.number) < 9e18 && value.number == std::floor(value.number)) {
        return mix(static_cast<uint64_t>(static_cast<int64_t>(value.number)));
      }
      return mix(std::hash<double>()(value.number));
    case Kind::BigInt:
      return 3;  // may equal a float
    case Kind::Tuple: {
      rt.check_stack();
      uint64_t h = value.sequence->size;
      for (uint32_t i = 0; i < value.sequence->size; ++i)
        h = mix(h * 31 + hash_of(rt, value.sequence->items[i]));
      return h;
    }
    case Kind::None:
      return 1;
    case Kind::Undefined:
    case Kind::Range:
      return 2;
    default:
      return mix(static_cast<uint64_t>(value.integer));
  }
}

bool same_items(Runtime& rt, const Sequence& a, const Sequence& b) {
  if (a.size != b.size) return false;
  for (uint32_t i = 0; i < a.size; ++i) {
    if (!equals(rt, a.items[i], b.items[i])) return false;
  }
  return true;
}

int compare_numbers(const Value& a, const Value& b, bool& unordered) {
  unordered = false;
  if (a.is_integral() && b.is_integral()) {
    const int64_t x = a.as_integer(), y = b.as_integer();
    return (x > y) - (x < y);
  }
  // At least 64 bits of mantissa hold any integer exactly.
  const long double x = a.kind == Kind::Float ? a.number : static_cast<long double>(a.as_integer());
  const long double y = b.kind == Kind::Float ? b.number : static_cast<long double>(b.as_integer());
  unordered = std::isnan(x) || std::isnan(y);
  return (x > y) - (x < y);
}

}  // namespace

bool equals(Runtime& rt, const Value& a, const Value& b) {
  rt.charge(1);
  if (a.is_number() && b.is_number()) {
    bool unordered;
    return compare_numbers(a, b, unordered) == 0 && !unordered;
  }
  if (a.kind != b.kind) {
    return false;
  }
  switch (a.kind) {
    case Kind::Str:
      rt.charge(std::min(a.size, b.size) / 64);
      return a.str() == b.str();
    case Kind::BigInt:
      return a.str() == b.str();
    case Kind::Undefined:
    case Kind::None:
      return true;
    case Kind::List:
    case Kind::Tuple:
      rt.check_stack();
      return same_items(rt, *a.sequence, *b.sequence);
    case Kind::Dict: {
      rt.check_stack();
      if (a.dict->size != b.dict->size) return false;
      for (uint32_t i = 0; i < a.dict->size; ++i) {
        const uint32_t at = find_entry(rt, *b.dict, a.dict->entries[i].key);
        if (at == b.dict->size || !equals(rt, a.dict->entries[i].value, b.dict->entries[at].value))
          return false;
      }
      return true;
    }
    case Kind::Range:
      return a.range->size == b.range->size &&
             (a.range->size == 0 ||
              (a.range->start == b.range->start && (a.range->size == 1 || a.range->step == b.range->step)));
    case Kind::Function:
      return a.function->function == b.function->function &&
             a.function->self.integer == b.function->self.integer;
    case Kind::Method:
      return a.method->info == b.method->info && equals(rt, a.method->self, b.method->self);
    default:
      return a.integer == b.integer;  // the same object
  }
}

uint32_t find_entry(Runtime& rt, const Dict& dict, const Value& key, uint32_t* slot) {
  if (!is_hashable(rt, key)) rt.fail("a %s cannot be the key of a dict.", type_name(key).c_str());
  if (!dict.index && dict.size > kUnindexedDict) {
    uint32_t slots = 16;
    while (slots < dict.size * 2) slots *= 2;
    auto* index = rt.arena.allocate_array<uint32_t>(slots);
    std::fill_n(index, slots, 0);
    for (uint32_t i = 0; i < dict.size; ++i) {
      uint32_t at = static_cast<uint32_t>(hash_of(rt, dict.entries[i].key)) & (slots - 1);
      while (index[at] != 0) at = (at + 1) & (slots - 1);
      index[at] = i + 1;
    }
    dict.index = index;
    dict.mask = slots - 1;
  }
  if (!dict.index) {
    for (uint32_t i = 0; i < dict.size; ++i) {
      const Value& other = dict.entries[i].key;
      if (key.is_string() && other.is_string() ? key.str() == other.str() : equals(rt, key, other)) return i;
    }
    return dict.size;
  }
  uint32_t at = static_cast<uint32_t>(hash_of(rt, key)) & dict.mask;
  for (; dict.index[at] != 0; at = (at + 1) & dict.mask) {
    if (equals(rt, dict.entries[dict.index[at] - 1].key, key)) return dict.index[at] - 1;
  }
  if (slot) *slot = at;
  return dict.size;
}

const Value* find_value(Runtime& rt, const Dict& dict, std::string_view key) {
  const uint32_t at = find_entry(rt, dict, make_str(key));
  return at < dict.size ? &dict.entries[at].value : nullptr;
}

namespace {

[[noreturn]] void fail_order(Runtime& rt, const char* op, const Value& a, const Value& b) {
  if (a.is_undefined()) rt.fail_undefined(a);
  if (b.is_undefined()) rt.fail_undefined(b);
  rt.fail("'%s' is not possible between %s and %s.", op, type_name(a).c_str(), type_name(b).c_str());
}

bool ordered(Runtime& rt, CompareOp op, const char* name, const Value& a, const Value& b) {
  int order = 0;
  bool unordered = false;
  if (a.is_number() && b.is_number()) {
    order = compare_numbers(a, b, unordered);
  } else if (a.is_string() && b.is_string()) {
    rt.charge(std::min(a.size, b.size) / 64);
    const int c = a.str().compare(b.str());  // order of UTF-8 bytes is order of code points
    order = (c > 0) - (c < 0);
  } else if (a.kind == b.kind && (a.kind == Kind::List || a.kind == Kind::Tuple)) {
    rt.check_stack();
    const uint32_t common = std::min(a.sequence->size, b.sequence->size);
    for (uint32_t i = 0; i < common; ++i) {
      const Value &x = a.sequence->items[i], &y = b.sequence->items[i];
      if (!equals(rt, x, y)) return ordered(rt, op, name, x, y);
    }
    order = (a.sequence->size > b.sequence->size) - (a.sequence->size < b.sequence->size);
  } else {
    fail_order(rt, name, a, b);
  }
  if (unordered) return false;
  switch (op) {
    case CompareOp::Less:
      return order < 0;
    case CompareOp::LessEqual:
      return order <= 0;
    case CompareOp::Greater:
      return order > 0;
    default:
      return order >= 0;
  }
}

}  // namespace

bool less(Runtime& rt, const Value& a, const Value& b) {
  rt.charge(1);
  return ordered(rt, CompareOp::Less, "<", a, b);
}

bool compare(Runtime& rt, CompareOp op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOp::Equal:
      return equals(rt, a, b);
    case CompareOp::NotEqual:
      return !equals(rt, a, b);
    case CompareOp::Less:
      return ordered(rt, op, "<", a, b);
    case CompareOp::LessEqual:
      return ordered(rt, op, "<=", a, b);
    case CompareOp::Greater:
      return ordered(rt, op, ">", a, b);
    case CompareOp::GreaterEqual:
      return ordered(rt, op, ">=", a, b);
    case CompareOp::In:
      return contains(rt, b, a);
    case CompareOp::NotIn:
      return !contains(rt, b, a);
  }
  return false;
}

bool contains(Runtime& rt, const Value& container, const Value& item) {
  switch (container.kind) {
    case Kind::Str:
      if (!item.is_string()) {
        rt.fail("'in' on a text needs a text at its left, not a %s.", type_name(item).c_str());
      }
      rt.charge(container.size / 16);
      return container.str().find(item.str()) != std::string_view::npos;
    case Kind::Dict:
      return find_entry(rt, *container.dict, item) < container.dict->size;
    case Kind::View:
      if (container.view->what == View::What::Keys) {
        return find_entry(rt, *container.view->dict, item) < container.view->dict->size;
      }
      break;
    default:
      break;
  }
  for (const Value& other : items_of(rt, container)) {
    if (equals(rt, other, item)) return true;
  }
  return false;
}

}  // namespace vllm::jinja

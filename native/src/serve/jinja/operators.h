// Python's operators on values. All may fail with the message that fits.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "serve/jinja/runtime.h"

namespace vllm::jinja {

enum class BinaryOp : uint8_t { Add, Subtract, Multiply, Divide, FloorDivide, Modulo, Power };
enum class CompareOp : uint8_t { Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual, In, NotIn };

/// Dicts up to this size are searched from front to back.
constexpr uint32_t kUnindexedDict = 8;

/// Name of the Python type: "str", "dict", ...
std::string type_name(const Value& value);

bool truth(const Value& value);
bool equals(Runtime& rt, const Value& a, const Value& b);
/// Order as by `<`; fails for what has none.
bool less(Runtime& rt, const Value& a, const Value& b);
bool compare(Runtime& rt, CompareOp op, const Value& a, const Value& b);
bool contains(Runtime& rt, const Value& container, const Value& item);
bool is_hashable(Runtime& rt, const Value& value);

Value binary(Runtime& rt, BinaryOp op, const Value& a, const Value& b);
Value negate(Runtime& rt, const Value& value);
Value positive(Runtime& rt, const Value& value);

/// Number of the entry with that key, the size of the dict when there is none. The key must be hashable, else
/// it fails. `slot` gets the free place in the index, if there is one.
uint32_t find_entry(Runtime& rt, const Dict& dict, const Value& key, uint32_t* slot = nullptr);
/// Null when absent.
const Value* find_value(Runtime& rt, const Dict& dict, std::string_view key);

bool is_iterable(const Value& value);
/// What a loop over the value sees; an Iterator is used up.
std::span<const Value> items_of(Runtime& rt, const Value& value);
/// len(); false when the value has none.
bool length_of(const Value& value, int64_t& length);

std::string html_escape(std::string_view text);

}  // namespace vllm::jinja

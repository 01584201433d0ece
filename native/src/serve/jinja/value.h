// Values of a template while it renders. They live in the arena of the render, or are views of the request's
// JSON, and are immutable but for Namespace, Iterator, Loop, Joiner and Cycler.
#pragma once
#include <cstdint>
#include <string_view>

namespace vllm::jinja {

enum class Kind : uint8_t {
  Missing,  // a variable that nobody set; never a result
  Undefined,
  None,
  Bool,
  Int,
  BigInt,  // an integer beyond 64 bits with sign: kept as its decimal text, no arithmetic
  Float,
  Str,
  List,
  Tuple,
  Dict,
  Range,
  View,      // dict.keys(), .values(), .items()
  Iterator,  // what filters such as map and select give: can be walked once
  Namespace,
  Loop,
  Macro,
  Function,
  Method,
  Joiner,
  Cycler,
};

struct Value;
struct Node;
struct Activation;
struct MethodInfo;
struct Loop;

/// Why a value is undefined, for the message when it is used.
struct UndefinedInfo {
  std::string_view hint;         // when not empty, the whole message
  std::string_view name;         // of the variable or attribute
  std::string_view object_type;  // of what lacks the attribute; empty for a variable
  bool is_element = false;       // `name` is the printed form of a subscript that is no string
};

struct Sequence;
struct Dict;
struct Range {
  int64_t start;
  int64_t stop;
  int64_t step;
  int64_t size;
};

enum class Function : uint8_t {
  RaiseException,
  StrftimeNow,
  Range,
  Dict,
  Namespace,
  Joiner,
  Cycler,
  LoopCycle,
  LoopChanged,
  CyclerNext,
  CyclerReset,
  DictFromKeys,
};

struct View;
struct Iterator;
struct Namespace;
struct MacroObject;
struct BoundFunction;
struct Method;
struct Joiner;
struct Cycler;

struct Value {
  Kind kind = Kind::Missing;
  bool is_markup = false;  // of a Str: it went through `safe` or `escape`
  uint32_t size = 0;       // bytes of a Str or BigInt
  union {
    bool boolean;
    int64_t integer = 0;
    double number;
    const char* text;  // UTF-8
    const Sequence* sequence;
    const Dict* dict;
    const Range* range;
    const View* view;
    Iterator* iterator;
    Namespace* ns;
    Loop* loop;
    const MacroObject* macro;
    const BoundFunction* function;
    const Method* method;
    Joiner* joiner;
    Cycler* cycler;
    const UndefinedInfo* undefined;
  };

  std::string_view str() const { return {text, size}; }
  bool is_string() const { return kind == Kind::Str; }
  bool is_undefined() const { return kind == Kind::Undefined; }
  bool is_none() const { return kind == Kind::None; }
  bool is_integral() const { return kind == Kind::Int || kind == Kind::Bool; }
  bool is_number() const { return is_integral() || kind == Kind::Float; }
  int64_t as_integer() const { return kind == Kind::Bool ? boolean : integer; }
  double as_double() const { return kind == Kind::Float ? number : static_cast<double>(as_integer()); }
};
static_assert(sizeof(Value) == 16);

struct Sequence {
  const Value* items;
  uint32_t size;
  bool is_group;  // (grouper, list) of the groupby filter, whose items have these names too
};

struct Entry {
  Value key;
  Value value;
};

/// In insertion order.
struct Dict {
  const Entry* entries;
  uint32_t size;
  mutable uint32_t mask;  // size of the index minus one
  mutable const uint32_t*
      index;  // open addressing, entry number + 1; made at the first look-up of a big dict
};

struct View {
  const Dict* dict;
  enum class What : uint8_t { Keys, Values, Items } what;
};

struct Iterator {
  const Value* items;
  uint32_t size;
  uint32_t next;
  std::string_view type_name;
};

struct Namespace {
  Entry* entries;
  uint32_t size;
  uint32_t capacity;
};

struct MacroObject {
  const Node* node;
  Activation* closure;
};

struct BoundFunction {
  Function function;
  Value self;
};

struct Method {
  const MethodInfo* info;
  Value self;
};

struct Joiner {
  Value separator;
  bool used;
};

struct Cycler {
  const Value* items;
  uint32_t size;
  uint32_t next;
};

inline Value make_none() {
  Value v;
  v.kind = Kind::None;
  return v;
}
inline Value make_bool(bool b) {
  Value v;
  v.kind = Kind::Bool;
  v.integer = 0;
  v.boolean = b;
  return v;
}
inline Value make_int(int64_t i) {
  Value v;
  v.kind = Kind::Int;
  v.integer = i;
  return v;
}
inline Value make_float(double d) {
  Value v;
  v.kind = Kind::Float;
  v.number = d;
  return v;
}
/// The text must outlive the value.
inline Value make_str(std::string_view text, bool is_markup = false) {
  Value v;
  v.kind = Kind::Str;
  v.is_markup = is_markup;
  v.size = static_cast<uint32_t>(text.size());
  v.text = text.data();
  return v;
}
inline Value make_undefined(const UndefinedInfo* info) {
  Value v;
  v.kind = Kind::Undefined;
  v.undefined = info;
  return v;
}

}  // namespace vllm::jinja

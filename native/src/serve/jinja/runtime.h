// What every operation on values needs: memory, limits and a place to complain. One per render.
#pragma once
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "serve/jinja/arena.h"
#include "serve/jinja/value.h"

namespace vllm::jinja {

constexpr size_t kMaxMemory = size_t{256} << 20;
constexpr size_t kMaxText = size_t{64} << 20;  // of the output and of any one string
constexpr int64_t kMaxRange = 100000;
constexpr int64_t kMaxItems = 4000000;           // of one list
constexpr uint64_t kMaxSteps = 50000000;         // one is about 20 ns
constexpr size_t kMaxStack = size_t{512} << 10;  // bytes of machine stack
constexpr int kMaxDataDepth = 512;               // of lists and dicts in each other

class Runtime {
 public:
  Runtime(const std::string& source, std::optional<std::tm> now);

  Arena arena{kMaxMemory};
  const std::optional<std::tm>& now() const { return now_; }

  /// Throws Error(InvalidArgument), the place in the template in front.
  [[noreturn]] __attribute__((format(printf, 2, 3))) void fail(const char* fmt, ...) const;
  [[noreturn]] void fail_undefined(const Value& value) const;

  /// Where in the source the running operation stands.
  void set_position(uint32_t offset) { position_ = offset; }
  uint32_t position() const { return position_; }

  /// Counts work: one step is one node or about 16 bytes of text.
  void charge(uint64_t steps) {
    steps_ += steps;
    if (steps_ > kMaxSteps) too_long();
  }
  void check_stack() const {
    const char* here = static_cast<const char*>(__builtin_frame_address(0));
    const ptrdiff_t used = stack_base_ - here;
    if (used > static_cast<ptrdiff_t>(kMaxStack) || used < -static_cast<ptrdiff_t>(kMaxStack)) too_deep();
  }

  Value copy_text(std::string_view text, bool is_markup = false);
  Value list(const Value* items, size_t size);
  Value list(const std::vector<Value>& items);
  Value tuple(const Value* items, size_t size);
  Value pair(const Value& first, const Value& second, bool is_group = false);
  /// Keeps the first place and the last value of equal keys; fails on a key that cannot be hashed.
  Value dict(const std::vector<Entry>& entries);
  Value iterator(const std::vector<Value>& items, std::string_view type_name = "generator");
  Value function(Function function, const Value& self = Value());
  Value undefined(const UndefinedInfo& info) { return make_undefined(arena.make(info)); }
  Value undefined_hint(std::string_view hint) {
    return undefined({.hint = hint, .name = {}, .object_type = {}});
  }

  /// Strings are views of `json`. Fails when it is nested deeper than kMaxDataDepth.
  Value from_json(const Json& json, int depth = 0);

 private:
  Value json_text(std::string_view text);
  [[noreturn]] void too_long() const;
  [[noreturn]] void too_deep() const;

  const std::string& source_;
  std::optional<std::tm> now_;
  uint32_t position_ = 0;
  uint64_t steps_ = 0;
  const char* stack_base_;
};

/// "line:column", both from 1, the column in characters.
std::string describe_position(std::string_view source, size_t offset);

}  // namespace vllm::jinja

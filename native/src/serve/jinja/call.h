// Arguments of a call of a function, method, filter or test.
#pragma once
#include <array>
#include <initializer_list>
#include <span>
#include <string_view>

#include "serve/jinja/runtime.h"

namespace vllm::jinja {

struct NamedValue {
  std::string_view name;
  Value value;
};

struct CallArguments {
  std::span<const Value> positional;
  std::span<const NamedValue> named;
};

/// Arguments sorted by parameter.
class Bound {
 public:
  static constexpr size_t kMost = 6;

  /// Fails on too many arguments, on unknown names and when one of the first `required` is missing.
  Bound(Runtime& rt, std::string_view function, const CallArguments& call,
        std::initializer_list<std::string_view> parameters, size_t required = 0);

  bool has(size_t i) const { return values_[i].kind != Kind::Missing; }
  const Value& operator[](size_t i) const { return values_[i]; }
  Value get(size_t i, const Value& otherwise) const { return has(i) ? values_[i] : otherwise; }
  bool flag(size_t i, bool otherwise = false) const;
  /// Fails when it is given and no integer.
  int64_t integer(size_t i, int64_t otherwise) const;
  /// Fails when it is no text.
  std::string_view text(size_t i) const;

 private:
  Runtime& rt_;
  std::string_view function_;
  std::array<std::string_view, kMost> names_{};
  std::array<Value, kMost> values_{};
};

}  // namespace vllm::jinja

// Attributes, subscripts and slices, as the immutable sandbox of Jinja allows them.
#pragma once
#include <string_view>

#include "serve/jinja/runtime.h"

namespace vllm::jinja {

/// `object.name`: a method or attribute, else the item with that key, else undefined.
Value get_attribute(Runtime& rt, const Value& object, std::string_view name);
/// `object[key]`: the item, else the attribute of that name, else undefined.
Value get_item(Runtime& rt, const Value& object, const Value& key);
/// `object[start:stop:step]`; None stands for a bound that was left out.
Value get_slice(Runtime& rt, const Value& object, const Value& start, const Value& stop, const Value& step);

/// `a.b.0` walked by get_item, as filters do for `attribute=`.
Value get_path(Runtime& rt, const Value& object, const Value& path);

}  // namespace vllm::jinja

#include "weights/fields.h"

#include <cmath>

#include "base/error.h"

namespace vllm {
namespace {

/// The integer that a JSON number stands for; integral floats are accepted.
std::optional<int64_t> as_integer(const Json& value) {
  if (value.is_number_unsigned()) {
    const uint64_t number = value.get<uint64_t>();
    if (number <= static_cast<uint64_t>(INT64_MAX)) return static_cast<int64_t>(number);
  } else if (value.is_number_integer()) {
    return value.get<int64_t>();
  } else if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::trunc(number) == number && std::fabs(number) <= 0x1p53) return static_cast<int64_t>(number);
  }
  return std::nullopt;
}

std::optional<double> as_number(const Json& value) {
  if (!value.is_number()) return std::nullopt;
  const double number = value.get<double>();
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

std::string integer_range(int64_t min, int64_t max) {
  return format("from %lld to %lld", static_cast<long long>(min), static_cast<long long>(max));
}

/// For messages: strings in quotes, everything short, NaN and infinity by name.
std::string shown(const Json& value) {
  if (value.is_number_float()) return format("%.17g", value.get<double>());
  if (value.is_string()) return quote(value.get_ref<const std::string&>());
  std::string text = quote(dump_json(value));
  return text.substr(1, text.size() - 2);
}

}  // namespace

Fields::Fields(const Json& object, std::string source, std::string prefix)
    : Fields(object, std::move(source), std::move(prefix), {}) {}

Fields::Fields(const Json& object, std::string source, std::string prefix, std::string path)
    : object_(object), source_(std::move(source)), prefix_(std::move(prefix)), path_(std::move(path)) {
  if (!object_.is_object())
    fail_load("%s is %s, needed is an object.", source_.c_str(), shown(object_).c_str());
}

const Json* Fields::find(std::string_view key) const {
  const auto it = object_.find(prefix_ + std::string(key));
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void Fields::fail(std::string_view key, const std::string& need) const {
  const Json* value = find(key);
  const std::string found = value ? shown(*value) : "missing";
  fail_load("%s: %s%s%.*s is %s, needed is %s.", source_.c_str(), path_.c_str(), prefix_.c_str(),
            static_cast<int>(key.size()), key.data(), found.c_str(), need.c_str());
}

bool Fields::has(std::string_view key) const { return find(key) != nullptr; }

int64_t Fields::integer(std::string_view key, int64_t min, int64_t max) const {
  const Json* value = find(key);
  const auto number = value ? as_integer(*value) : std::nullopt;
  if (!number || *number < min || *number > max) fail(key, "an integer " + integer_range(min, max));
  return *number;
}

int64_t Fields::integer_or(std::string_view key, int64_t fallback, int64_t min, int64_t max) const {
  return has(key) ? integer(key, min, max) : fallback;
}

double Fields::number(std::string_view key, double min, double max) const {
  const Json* value = find(key);
  const auto number = value ? as_number(*value) : std::nullopt;
  if (!number || *number < min || *number > max) fail(key, format("a number from %.9g to %.9g", min, max));
  return *number;
}

double Fields::number_or(std::string_view key, double fallback, double min, double max) const {
  return has(key) ? number(key, min, max) : fallback;
}

bool Fields::boolean_or(std::string_view key, bool fallback) const {
  const Json* value = find(key);
  if (!value) return fallback;
  if (!value->is_boolean()) fail(key, "true or false");
  return value->get<bool>();
}

std::string Fields::string(std::string_view key) const {
  const Json* value = find(key);
  if (!value || !value->is_string()) fail(key, "a string");
  return value->get<std::string>();
}

std::string Fields::string_or(std::string_view key, std::string fallback) const {
  return has(key) ? string(key) : fallback;
}

std::vector<int64_t> Fields::integers(std::string_view key, int64_t min, int64_t max) const {
  std::vector<int64_t> out;
  const auto add = [&](const Json& item) {
    const auto number = as_integer(item);
    if (!number || *number < min || *number > max) fail(key, "integers " + integer_range(min, max));
    out.push_back(*number);
  };
  if (const Json* value = find(key)) {
    if (value->is_array()) {
      for (const Json& item : *value) add(item);
    } else {
      add(*value);
    }
  }
  return out;
}

std::vector<double> Fields::numbers(std::string_view key) const {
  std::vector<double> out;
  const auto add = [&](const Json& item) {
    const auto number = as_number(item);
    if (!number) fail(key, "finite numbers");
    out.push_back(*number);
  };
  if (const Json* value = find(key)) {
    if (value->is_array()) {
      for (const Json& item : *value) add(item);
    } else {
      add(*value);
    }
  }
  return out;
}

std::vector<std::string> Fields::strings(std::string_view key) const {
  std::vector<std::string> out;
  const auto add = [&](const Json& item) {
    if (!item.is_string()) fail(key, "strings");
    out.push_back(item.get<std::string>());
  };
  if (const Json* value = find(key)) {
    if (value->is_array()) {
      for (const Json& item : *value) add(item);
    } else {
      add(*value);
    }
  }
  return out;
}

std::optional<Fields> Fields::object(std::string_view key) const {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  if (!value->is_object()) fail(key, "an object");
  return Fields(*value, source_, {}, path_ + prefix_ + std::string(key) + ".");
}

}  // namespace vllm

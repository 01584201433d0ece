#include "serve/json_fields.h"

#include <cmath>

namespace vllm {

std::string brief(const Json& value) {
  constexpr size_t kShown = 60;
  if (value.is_array()) return format("an array of %zu", value.size());
  if (value.is_object()) return "an object";
  std::string text = dump_json(value);
  if (text.size() > kShown) {
    size_t cut = kShown;
    while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;
    text = text.substr(0, cut) + "...";
  }
  return text;
}

namespace {

[[noreturn]] void wrong(const char* name, const Json& value, const char* need) {
  fail_argument("%s is %s, needed is %s", name, brief(value).c_str(), need);
}

}  // namespace

double number_field(const char* name, const Json& value) {
  if (!value.is_number()) wrong(name, value, "a number");
  return value.get<double>();
}

int64_t integer_field(const char* name, const Json& value) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    return static_cast<int64_t>(value.get<uint64_t>());  // a 64-bit seed keeps its bits
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (number == std::floor(number) && std::fabs(number) < 9e15) return static_cast<int64_t>(number);
  }
  wrong(name, value, "an integer");
}

bool boolean_field(const char* name, const Json& value) {
  if (!value.is_boolean()) wrong(name, value, "true or false");
  return value.get<bool>();
}

const std::string& string_field(const char* name, const Json& value) {
  if (!value.is_string()) wrong(name, value, "a string");
  return value.get_ref<const std::string&>();
}

std::vector<int32_t> token_ids_field(const char* name, const Json& value) {
  if (!value.is_array()) wrong(name, value, "an array of token ids");
  std::vector<int32_t> ids;
  ids.reserve(value.size());
  for (const Json& item : value) {
    const int64_t id = integer_field(name, item);
    if (id < 0 || id > INT32_MAX) wrong(name, item, "a token id");
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

std::vector<std::string> strings_field(const char* name, const Json& value) {
  if (value.is_string()) return {value.get<std::string>()};
  if (!value.is_array()) wrong(name, value, "a string or an array of strings");
  std::vector<std::string> out;
  for (const Json& item : value) out.push_back(string_field(name, item));
  return out;
}

}  // namespace vllm

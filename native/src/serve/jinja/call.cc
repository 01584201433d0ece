#include "serve/jinja/call.h"

#include <algorithm>

#include "base/error.h"
#include "serve/jinja/operators.h"

namespace vllm::jinja {

Bound::Bound(Runtime& rt, std::string_view function, const CallArguments& call,
             std::initializer_list<std::string_view> parameters, size_t required)
    : rt_(rt), function_(function) {
  std::copy(parameters.begin(), parameters.end(), names_.begin());
  const std::string name(function);
  if (call.positional.size() > parameters.size()) {
    rt.fail("%s takes %zu arguments, %zu were given.", name.c_str(), parameters.size(),
            call.positional.size());
  }
  std::copy(call.positional.begin(), call.positional.end(), values_.begin());
  for (const NamedValue& named : call.named) {
    const auto at = std::find(parameters.begin(), parameters.end(), named.name);
    if (at == parameters.end()) rt.fail("%s takes no argument %s.", name.c_str(), quote(named.name).c_str());
    Value& value = values_[static_cast<size_t>(at - parameters.begin())];
    if (value.kind != Kind::Missing) {
      rt.fail("%s got the argument %s twice.", name.c_str(), quote(named.name).c_str());
    }
    value = named.value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!has(i)) rt.fail("%s needs the argument %s.", name.c_str(), quote(names_[i]).c_str());
  }
}

bool Bound::flag(size_t i, bool otherwise) const { return has(i) ? truth(values_[i]) : otherwise; }

int64_t Bound::integer(size_t i, int64_t otherwise) const {
  if (!has(i)) return otherwise;
  if (values_[i].is_undefined()) rt_.fail_undefined(values_[i]);
  if (!values_[i].is_integral()) {
    rt_.fail("the argument %s of %s must be an integer, not a %s.", quote(names_[i]).c_str(),
             std::string(function_).c_str(), type_name(values_[i]).c_str());
  }
  return values_[i].as_integer();
}

std::string_view Bound::text(size_t i) const {
  if (!values_[i].is_string()) {
    rt_.fail("the argument %s of %s must be a text, not a %s.", quote(names_[i]).c_str(),
             std::string(function_).c_str(), type_name(values_[i]).c_str());
  }
  return values_[i].str();
}

}  // namespace vllm::jinja

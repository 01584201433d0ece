#include "base/json.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace vllm {
namespace {

/// What was read of an array or object that is still open. Members are collected here and moved into the
/// value when it closes: an ordered_json object looks a key up linearly and copies its members when it grows.
struct OpenValue {
  Json::array_t items;
  std::vector<std::string> keys;  // of an object, one an item
};

class JsonBuilder {
 public:
  JsonBuilder(const char* what, Status status, int max_depth)
      : what_(what), status_(status), max_depth_(max_depth) {}

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(Json::number_integer_t value) { return add(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return add(value); }
  bool number_float(Json::number_float_t value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t& value) { return add(std::move(value)); }
  bool start_object(size_t) { return open(); }
  bool start_array(size_t) { return open(); }
  bool key(std::string& value) {
    stack_.back().keys.push_back(std::move(value));
    return true;
  }

  bool end_array() {
    Json value = Json::array();
    value.get_ref<Json::array_t&>() = std::move(stack_.back().items);
    stack_.pop_back();
    return add(std::move(value));
  }

  bool end_object() {
    OpenValue& top = stack_.back();
    refuse_duplicates(top.keys);
    Json value = Json::object();
    auto& members = value.get_ref<Json::object_t&>();
    members.reserve(top.keys.size());
    for (size_t i = 0; i < top.keys.size(); ++i) {
      members.emplace_back(std::move(top.keys[i]), std::move(top.items[i]));
    }
    stack_.pop_back();
    return add(std::move(value));
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
    // "[json.exception...] parse error at line 1, column 2: DETAIL; last read: 'TEXT'". TEXT may be long and
    // is dropped.
    std::string detail = error.what();
    if (const size_t at = detail.find("; last read"); at != std::string::npos) detail.resize(at);
    if (const size_t at = detail.find(", column "); at != std::string::npos) {
      if (const size_t colon = detail.find(": ", at); colon != std::string::npos) detail.erase(0, colon + 2);
    } else if (const size_t bracket = detail.find("] "); bracket != std::string::npos) {
      detail.erase(0, bracket + 2);
    }
    if (detail.size() > 200) detail.resize(200);
    fail(format("%s is no valid JSON at byte %zu: %s.", what_, position, detail.c_str()));
  }

  [[noreturn]] void fail(std::string message) const { throw Error(status_, std::move(message)); }

  Json take() { return std::move(root_); }

 private:
  bool open() {
    if (stack_.size() >= static_cast<size_t>(std::max(max_depth_, 0))) {
      fail(format("%s is nested deeper than the %d levels that are allowed.", what_, max_depth_));
    }
    stack_.emplace_back();
    return true;
  }

  template <typename Value>
  bool add(Value&& value) {
    if (stack_.empty()) {
      root_ = std::forward<Value>(value);
    } else {
      stack_.back().items.emplace_back(std::forward<Value>(value));
    }
    return true;
  }

  void refuse_duplicates(const std::vector<std::string>& keys) const {
    if (keys.size() < 2) return;
    std::vector<std::string_view> sorted(keys.begin(), keys.end());
    std::sort(sorted.begin(), sorted.end());
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    if (twice != sorted.end()) {
      fail(format("%s holds the key %s twice in one object.", what_, quote(*twice).c_str()));
    }
  }

  const char* what_;
  Status status_;
  int max_depth_;
  Json root_;
  std::vector<OpenValue> stack_;
};

}  // namespace

Json parse_json(std::string_view text, const char* what, Status status, int max_depth) {
  JsonBuilder builder(what, status, max_depth);
  // The library takes a NUL byte for the end of the text.
  if (const void* nul = text.empty() ? nullptr : std::memchr(text.data(), 0, text.size())) {
    builder.fail(format("%s is no valid JSON at byte %zu: a NUL byte.", what,
                        static_cast<size_t>(static_cast<const char*>(nul) - text.data()) + 1));
  }
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

std::string dump_json(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace vllm

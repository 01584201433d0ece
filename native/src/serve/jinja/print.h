// str(), repr() and JSON text of values.
#pragma once
#include <string>

#include "serve/jinja/runtime.h"

namespace vllm::jinja {

/// str(): what an expression tag writes.
void append_str(Runtime& rt, std::string& out, const Value& value);
void append_repr(Runtime& rt, std::string& out, const Value& value);

/// str() as a value; a Str stays what it is, also markup.
Value to_str(Runtime& rt, const Value& value);
/// A view of the text of a Str, else of str() in the arena.
std::string_view text_of(Runtime& rt, const Value& value);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool pretty = false;  // each member on its own line, behind `indent` for each level
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
/// json.dumps(); fails for what has no JSON form.
void append_json(Runtime& rt, std::string& out, const Value& value, const JsonStyle& style, int level = 0);

}  // namespace vllm::jinja

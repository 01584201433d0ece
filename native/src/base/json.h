// JSON for the rest of the library. Include nlohmann/json_fwd.hpp where a name is enough: the full header
// costs seconds to compile.
#pragma once
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"

namespace vllm {

using Json = nlohmann::ordered_json;

/// Parses a JSON text from outside. `what` names it in the error ("config.json", "request").
/// Takes time linear in the text. A Json object looks keys up linearly: iterate over big ones (a vocabulary).
/// Throws Error(status) when it is no JSON, holds invalid UTF-8 or a duplicate key, or is nested deeper than
/// `max_depth`.
Json parse_json(std::string_view text, const char* what, Status status, int max_depth = 512);

/// Dumps to compact UTF-8; invalid bytes become U+FFFD instead of an exception.
std::string dump_json(const Json& value);

}  // namespace vllm

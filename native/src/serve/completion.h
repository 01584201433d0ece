// Completion requests and their answers as JSON; see vllm_ext.h for the fields.
#pragma once
#include "base/json.h"
#include "engine/engine.h"

namespace vllm {

/// `request` is an object. Throws Error(InvalidArgument) naming the field, what was found and what is needed.
GenerationRequest parse_completion_request(const Json& request, Engine& engine);

/// One chunk for a delta without error.
Json completion_chunk(const Delta& delta, const Tokenizer& tokenizer);

}  // namespace vllm

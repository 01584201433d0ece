// Completion requests and their answers as JSON; see vllm_ext.h for the fields.
#pragma once
#include <string>
#include <string_view>

#include "engine/engine.h"

namespace vllm {

/// Throws Error(InvalidArgument) naming the field, what was found and what is needed.
GenerationRequest parse_completion_request(std::string_view json, const Tokenizer& tokenizer);

/// One chunk for a delta, or the error object of a failed request.
std::string completion_chunk(const Delta& delta, const Tokenizer& tokenizer);

/// "stop", "length", "abort", "error"; null while the request runs.
const char* finish_reason_name(FinishReason reason);

}  // namespace vllm

// Fields that completion and chat requests share.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "constrain/compiler.h"
#include "engine/engine.h"

namespace vllm {

/// Takes one of the sampling fields into `request`; false when `key` is none. Throws Error(InvalidArgument)
/// naming the field. null must be skipped before.
bool read_sampling_field(const std::string& key, const Json& value, const Tokenizer& tokenizer,
                         GenerationRequest& request);

/// Takes a constraint: grammar, json_schema (object or text), regex, choice, json_object, structural_tag
/// (object or text), structured_outputs (an object with one of json, json_object, regex, choice, grammar,
/// structural_tag) or response_format. False when `key` is none. Throws Error(InvalidArgument) when there is
/// one already.
bool read_constraint_field(const std::string& key, const Json& value, std::optional<ConstraintSpec>& spec);

/// Log-probabilities of a delta as {"content": [...]}; null when there are none.
Json logprobs_json(const Delta& delta, const Tokenizer& tokenizer);
/// The stop string or id that ended a request, else null.
Json stop_reason_json(const Delta& delta);
/// Totals of a delta.
Json usage_json(const Delta& delta);
Json timings_json(const Delta& delta);

/// "stop", "length", "abort", "error"; null while the request runs.
const char* finish_reason_name(FinishReason reason);

}  // namespace vllm

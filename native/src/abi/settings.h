// From the structs and settings of the ABI to the engine's own types.
#pragma once
#include <string_view>

#include "engine/config.h"
#include "sample/sampling_params.h"
#include "serve/chat.h"
#include "vllm.h"

namespace vllm::abi {

/// Checks documents, names and tri-states in the order of the ABI, before any file is opened. Throws
/// Error(InvalidArgument), or Error(ModelLoad) for what this build does not have.
EngineConfig engine_config(const vllm_model_params& params);

/// Applies the settings document of vllm_ext_load.
void apply_settings(std::string_view settings_json, EngineConfig& config);

ChatSettings chat_settings(const vllm_model_params& params);

/// The structured constraint of a completion, if there is one. Throws Error(InvalidArgument) for more than
/// one.
std::optional<ConstraintSpec> constraint_spec(const vllm_sampling_params& params);

SamplingParams sampling_params(const vllm_sampling_params& params);

}  // namespace vllm::abi

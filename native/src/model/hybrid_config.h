// What the hybrids of gated attention and gated DeltaNet share when they read their configuration.
#pragma once
#include <string>

#include "model/architecture.h"

namespace vllm {

/// All but the MLP and the names of a DeltaNet layer's projections. Returns the prefix of the tensors
/// ("model.").
std::string read_hf_hybrid(const Fields& config, const Checkpoint& checkpoint, ModelSpec& spec);
/// The same from GGUF metadata.
void read_gguf_hybrid(const Fields& arch, const Checkpoint& checkpoint, ModelSpec& spec);

}  // namespace vllm

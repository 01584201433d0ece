// What the mixtures of experts share when they read their configuration.
#pragma once
#include "model/architecture.h"

namespace vllm {

/// Fills spec.experts, the layers that have experts and their names below `prefix` ("model."), in the
/// spelling of Qwen. The meaning of an absent norm_topk_prob is `renormalise`; the shared expert is read
/// where `shared`.
void read_hf_experts(const Fields& config, const std::string& prefix, bool renormalise, bool shared,
                     ModelSpec& spec);
/// The same in the spelling of Mixtral.
void read_mixtral_experts(const Fields& config, ModelSpec& spec);
/// The same from GGUF metadata; `renormalise` is the meaning of an absent expert_weights_norm.
void read_gguf_experts(const Fields& arch, bool renormalise, bool shared, ModelSpec& spec);

}  // namespace vllm

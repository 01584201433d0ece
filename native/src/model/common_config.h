// What most architectures share when they read their configuration.
#pragma once
#include <string_view>

#include "model/architecture.h"

namespace vllm {

/// Sizes, norm epsilon, activation, tying, names of the usual Hugging Face decoder; layers are full attention
/// with rope 0. Leaves `ropes` empty. `tied_by_default` is the meaning of an absent tie_word_embeddings.
void read_hf_common(const Fields& config, bool tied_by_default, ModelSpec& spec);
/// The same from GGUF metadata; the output matrix is tied when the file has no output.weight.
void read_gguf_common(const Fields& arch, const Checkpoint& checkpoint, ModelSpec& spec);

/// Rotary frequencies from rope_parameters (also one per layer type), or rope_theta with rope_scaling.
/// Types default, linear, llama3; any other is refused by name. `layer_type`: null, or the key of
/// per-layer-type parameters.
RopeSpec read_hf_rope(const Fields& config, int head_dim, const char* layer_type = nullptr);
/// From rope.freq_base, rope.dimension_count, rope.scaling.* and the tensor rope_freqs.weight.
RopeSpec read_gguf_rope(const Fields& arch, const Checkpoint& checkpoint, int head_dim);

/// theta^(-2i/dim) for i < dim / 2.
std::vector<float> inverse_frequencies(double theta, int dim);

/// "model.layers.{}.self_attn.q_proj" and so on below `prefix` ("model.").
WeightNames hf_weight_names(const std::string& prefix);
WeightNames gguf_weight_names();

constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxSize = 1 << 24;

}  // namespace vllm

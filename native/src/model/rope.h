// Rotary frequencies and their scalings, from config.json and from GGUF metadata.
#pragma once
#include <string_view>

#include "model/architecture.h"

namespace vllm {

/// theta^(-2i/dim) for i < dim / 2.
std::vector<float> inverse_frequencies(double theta, int dim);

/// From rope_parameters (also one object per layer type), or rope_theta with rope_scaling. Types default,
/// mrope (whose three positions are one for text), linear, dynamic, yarn, longrope and llama3; any other is
/// refused by name. `layer_type`: null, or the key of per-layer-type parameters. `partial`: the share of a
/// head that turns where the configuration does not say. Raises spec.max_position to what dynamic and yarn
/// extend it to.
RopeSpec read_hf_rope(const Fields& config, ModelSpec& spec, const char* layer_type = nullptr,
                      double partial = 1);
/// From rope.freq_base, rope.dimension_count, rope.scaling.* (types none, linear, yarn, longrope) and the
/// tensors rope_freqs, rope_factors_short and rope_factors_long.
RopeSpec read_gguf_rope(const Fields& arch, const Checkpoint& checkpoint, ModelSpec& spec);

}  // namespace vllm

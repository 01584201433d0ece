// What most architectures share when they read their configuration.
#pragma once
#include <string_view>

#include "model/architecture.h"
#include "model/rope.h"

namespace vllm {

/// Sizes, norm epsilon, activation, biases, tying, names of the usual Hugging Face decoder; layers are full
/// attention with rope 0. Leaves `ropes` empty. `tied_by_default` is the meaning of an absent
/// tie_word_embeddings.
void read_hf_common(const Fields& config, bool tied_by_default, ModelSpec& spec);
/// The same from GGUF metadata; the output matrix is tied when the file has no output.weight.
void read_gguf_common(const Fields& arch, const Checkpoint& checkpoint, ModelSpec& spec);

/// layer_types, checked: one of full_attention and sliding_attention for each layer. Empty when absent.
std::vector<std::string> read_hf_layer_types(const Fields& config, const ModelSpec& spec);
/// One window for all layers; 0: none.
void set_windows(ModelSpec& spec, int64_t window);
/// Qwen's sliding windows: where use_sliding_window is true, in the layers that layer_types names, else in
/// those from max_window_layers on.
void read_hf_upper_windows(const Fields& config, ModelSpec& spec);

/// "model.layers.{}.self_attn.q_proj" and so on below `prefix` ("model.").
WeightNames hf_weight_names(const std::string& prefix);
WeightNames gguf_weight_names();

constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxSize = 1 << 24;
constexpr int64_t kMaxWindow = 1 << 30;
constexpr double kMinScale = 1e-6, kMaxScale = 1e6;  // of multipliers

}  // namespace vllm

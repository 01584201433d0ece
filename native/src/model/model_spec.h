// A model as plain data: what the one forward pass needs to know about an architecture.
#pragma once
#include <string>
#include <vector>

#include "device/device.h"

namespace vllm {

enum class Mixer : uint8_t { Attention, DeltaNet };

struct LayerSpec {
  Mixer mixer = Mixer::Attention;
  int window = 0;        // sliding window in tokens; 0: full attention
  int rope = 0;          // index into ModelSpec::ropes
  bool experts = false;  // the MLP is the mixture of ModelSpec::experts
};

/// A mixture of experts, the same in all layers that have one.
struct ExpertsSpec {
  int count = 0;
  RouterSpec router;
  int intermediate = 0;         // of one expert
  int shared_intermediate = 0;  // of the expert that all rows take, by a sigmoid gate; 0: none
};

/// Where a gated DeltaNet layer's parts are. The projections of its input are qkv, z, b and a, or qkvz and
/// ba: per key head the rows of [q | k | v | z], and of [b | a]. In place of qkvz there may be qkv and z.
struct DeltaNetNames {
  std::string qkv, z, b, a, qkvz, ba, norm, out;
  std::string conv, a_log, decay, dt_bias;  // whole names; decay is -exp(a_log), one of them is there
};

/// Where a layer's parts are found in the checkpoint, without the ending ".weight" or ".bias"; "{}" is the
/// layer number. An empty name is a part the architecture does not have. `qkv` and `gate_up` are one tensor
/// of stacked rows and, where named, take the place of their parts.
struct WeightNames {
  std::string embedding, output_norm, output;
  std::string attn_norm, q, k, v, qkv, o, q_norm, k_norm, post_attn_norm;
  std::string mlp_norm, gate, up, gate_up, down, post_mlp_norm;
  std::string router;
  std::string expert_gate, expert_up, expert_down;  // a second "{}" is the expert
  // The experts of a layer in one tensor: [count, rows, cols]. Complete names, for some have no ".weight".
  std::string experts_gate, experts_up, experts_gate_up, experts_down;
  std::string shared_router, shared_gate, shared_up, shared_down;
  DeltaNetNames delta_net;
};

struct ModelSpec {
  std::string architecture;
  int hidden = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int intermediate = 0;
  int vocab = 0;         // rows of the output matrix
  int max_position = 0;  // longest sequence, in tokens
  /// Tokens that a sequence may reach in this engine, for ropes that depend on it; 0: max_position.
  int wanted_length = 0;
  float norm_eps = 0;
  float attention_scale = 0;
  float attention_softcap = 0;
  float embedding_scale = 1;
  /// Of each sublayer's output; other than 1 only where norms precede both sublayers.
  float residual_scale = 1;
  float logit_scale = 1;  // before the soft cap
  float logit_softcap = 0;
  Activation activation = Activation::Silu;
  bool tied_embeddings = false;  // the output matrix is the embedding
  bool norm_adds_one = false;    // norms multiply by 1 + w
  bool qk_norm_whole = false;    // q_norm and k_norm span all heads together instead of each one
  bool needs_qkv_bias = false;
  bool needs_o_bias = false;
  bool needs_mlp_bias = false;
  bool attention_gate = false;  // each head's q is followed by a gate; its sigmoid multiplies the attention
  DeltaNetSpec delta_net;       // of the layers whose mixer it is
  Activation delta_net_gate = Activation::Silu;
  std::vector<RopeSpec> ropes;
  std::vector<LayerSpec> layers;
  ExpertsSpec experts;
  WeightNames names;
  std::vector<std::string> ignored_prefixes;  // tensors of parts that are not served (a vision tower)
};

}  // namespace vllm

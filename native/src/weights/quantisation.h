// What a Hugging Face directory's configuration says about the quantisation of its modules.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace vllm {

/// How the tensors of one linear module store its weight.
struct QuantScheme {
  enum Kind : uint8_t {
    Fp8,       // weight E4M3 [out, in]; weight_scale: one or one an output
    Fp8Block,  // weight E4M3; one scale for a rectangle of block_rows x block_cols
    Nvfp4,     // E2M1 codes, an E4M3 scale for 16 inputs, a global scale
    Int8,      // weight I8 [out, in]; weight_scale: one or one an output
    PackedInt,
    Gptq,
    Awq,
    AwqGemv,
  };
  Kind kind = Fp8;
  std::string name;         // "NVFP4", for messages
  std::string activations;  // "W4A4" where quantised ones are asked for too, which are not imitated
  bool modelopt = false;    // Nvfp4: ModelOpt's tensor names, the global scale a factor instead of a divisor
  int bits = 4;             // of the packed integer kinds
  int64_t group_size = 0;   // inputs of a group of the integer kinds; 0: all
  int64_t block_rows = 0, block_cols = 0;
  bool act_order = false;  // Gptq: g_idx gives the group of each input
  int zero_offset = 0;     // Gptq: what is added to a stored zero point
};

class QuantConfig {
 public:
  /// `config` is config.json with text_config merged, `hf_quant` hf_quant_config.json or null. Throws
  /// Error(ModelLoad) naming every part that is not implemented.
  QuantConfig(const Json& config, const Json& hf_quant, const std::string& directory);
  ~QuantConfig();

  bool quantised() const { return !method_.empty(); }
  /// "compressed-tensors"
  const std::string& method() const { return method_; }
  /// The scheme of a linear module ("model.layers.0.mlp.up_proj"); null when it is not quantised.
  const QuantScheme* find(std::string_view module) const;
  /// Whether the configuration tells for every linear module if it is quantised; else the tensor names do.
  bool is_complete(std::string_view module) const;

 private:
  struct Pattern;
  struct Group {
    std::vector<Pattern> targets;  // empty: all linear modules
    QuantScheme scheme;
  };
  void read_compressed_tensors(const Json& settings);
  void read_modelopt(const Json& settings);
  void read_fp8(const Json& settings);
  void read_gptq(const Json& settings);
  void read_awq(const Json& settings);
  void read_patterns(const Json& settings, const char* key, bool classes, std::vector<Pattern>& out) const;
  QuantScheme modelopt_scheme(const std::string& algorithm, int64_t group_size) const;
  void check_kv_scheme(const Json& settings, const char* key) const;

  std::string source_;
  std::string method_;
  std::vector<Pattern> ignored_;
  std::vector<Group> groups_;
  std::map<std::string, QuantScheme, std::less<>> modules_;  // by plain name
  bool by_module_ = false;                                   // modules_ instead of groups_
};

}  // namespace vllm

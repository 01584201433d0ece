// A request as the scheduler sees it.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "constrain/constraint.h"
#include "sample/sampler.h"
#include "sample/sampling_params.h"

namespace vllm {

enum class FinishReason : uint8_t { None, Stop, Length, Abort, Error };

struct Request {
  uint64_t id = 0;       // rises with arrival
  int32_t priority = 0;  // lower runs first, under the priority policy
  SamplingParams sampling;
  uint64_t seed = 0;       // of the random stream
  int64_t max_output = 0;  // tokens it may generate, > 0

  std::vector<int32_t> tokens;  // prompt, then output
  int num_prompt = 0;
  int num_computed = 0;         // tokens whose keys and values are in the cache
  int num_cached = 0;           // of the prompt, found in the prefix cache at first admission
  std::vector<int32_t> blocks;  // KV blocks, in order of position
  std::vector<std::array<uint64_t, 2>> block_hashes;  // of the full blocks, as far as computed
  int num_hashed_blocks = 0;                          // blocks already entered into the prefix cache
  int32_t state_slot = -1;                            // of recurrent state, while it runs
  int checkpoint_at = 0;  // tokens; a step ends there, so that the state can be kept for others
  /// Block hash of the last state that was kept while it decoded.
  std::optional<std::array<uint64_t, 2>> output_checkpoint;
  int preemptions = 0;

  std::unique_ptr<SamplerState> sampler;
  std::unique_ptr<Constraint> constraint;

  int num_tokens() const { return static_cast<int>(tokens.size()); }
  int num_output() const { return num_tokens() - num_prompt; }
  std::span<const int32_t> output() const { return std::span(tokens).subspan(num_prompt); }
};

}  // namespace vllm

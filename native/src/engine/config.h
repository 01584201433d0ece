// What a caller may set when it loads a model.
#pragma once
#include <cstdint>
#include <string>

#include "device/device.h"
#include "schedule/scheduler.h"

namespace vllm {

enum class Tristate : uint8_t { Defer = 0, On = 1, Off = 2 };

struct EngineConfig {
  std::string model_path;
  std::string device = "auto";        // as make_device() takes it
  int threads = 0;                    // <= 0: one a physical core
  int block_size = 32;                // tokens, a multiple of 16
  int num_blocks = 0;                 // 0: sized from memory
  int64_t kv_cache_memory_bytes = 0;  // 0: unset; used when num_blocks is not
  double memory_share = 0.92;  // most of the free device memory for weights, workspace and KV pool, when
                               // neither of the two above says how large the pool is
  KvFormat kv_format = KvFormat::BF16;
  int max_model_len = 0;           // 0: the model's own
  bool clip_max_model_len = true;  // lower max_model_len to the pool instead of refusing it
  int max_num_seqs = 8;
  int max_num_batched_tokens = 0;  // 0: 2048
  Policy policy = Policy::Fcfs;
  Tristate prefix_caching = Tristate::Defer;
  bool jump_forward =
      false;  // emit tokens that a constraint leaves no choice about without computing them first
  bool plan_only = false;   // check the files and plan the memory; nothing is packed and nothing can run
  bool step_trace = false;  // log where the steps' time went whenever the engine runs out of work
};

}  // namespace vllm

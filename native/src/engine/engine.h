// The engine: one thread that schedules, computes, samples and detokenizes for all requests.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "constrain/compiler.h"
#include "engine/config.h"
#include "engine/metrics.h"
#include "engine/stream.h"
#include "engine/thinking.h"
#include "model/model.h"
#include "schedule/scheduler.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace vllm {

struct GenerationRequest {
  std::vector<int32_t> prompt;
  SamplingParams sampling;
  int32_t priority = 0;
  std::unique_ptr<Constraint> constraint;  // null: none
  std::optional<ThinkingSpec> thinking;    // set: the constraint waits for the end of the thought
};

struct EngineMemory {
  size_t weights = 0;
  size_t kv_cache = 0;
  size_t states = 0;  // of recurrent layers
  size_t workspace = 0;
};

/// A setting that was settled from model or machine because nobody gave it.
struct Choice {
  std::string setting;
  int value = 0;
  std::string reason;
};

/// What a load needs of the memory there is, and what fits.
struct LoadPlan {
  size_t available = 0;  // bytes that were free before the weights
  size_t budget = 0;     // of these and the weights: what the engine may take, by gpu_memory_utilization
  EngineMemory memory;
  double kv_bytes_per_token = 0;
  size_t state_bytes_per_sequence = 0;
  int model_context = 0;  // tokens the model was made for
  std::vector<Choice> chosen;
  std::vector<std::string> warnings;  // what had to give way
};

/// What was loaded, for one line of log and for hosts.
struct EngineInfo {
  std::string model_path;
  std::string architecture;
  std::string formats;
  std::string fingerprint;
  size_t num_tensors = 0;
  std::string device;
  int max_model_len = 0;
  int vocab_size = 0;
  int block_size = 0;
  int num_blocks = 0;
  int max_num_seqs = 0;
  int max_num_batched_tokens = 0;
  bool prefix_caching = false;
  int threads = 0;
  std::string kv_cache_dtype;
  std::string scheduling_policy;
  bool jump_forward = false;
  bool plan_only = false;
};

class TracingDevice;

class Engine {
 public:
  /// Loads a model and computes one row on its device, unless the configuration asks for the plan only: then
  /// it takes no request. A GPU that was chosen automatically and is too small for the weights, fails, or
  /// computes otherwise than the CPU, makes way for it with a warning. Throws Error(ModelLoad), or
  /// Error(InvalidArgument) for values that are wrong whatever the model.
  static std::unique_ptr<Engine> load(const EngineConfig& config);
  /// Ends every request with an error and stops the thread.
  ~Engine();

  /// The tokens of a prompt. Throws Error(InvalidArgument) for what cannot be encoded and, before it costs
  /// anything, for a text with more bytes than a context of the longest tokens.
  std::vector<int32_t> encode_prompt(std::string_view text) const;
  /// Checks the request and queues it. Throws Error(InvalidArgument) when it cannot be served.
  std::shared_ptr<Stream> submit(GenerationRequest request);
  /// Ends the request at the next step; its stream gets a last delta with Abort.
  void cancel(Stream& stream);

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const Checkpoint& checkpoint() const { return *checkpoint_; }
  /// Made at the first call, which takes some ten milliseconds.
  ConstraintCompiler& constraints();
  const EngineInfo& info() const { return info_; }
  const LoadPlan& plan() const { return plan_; }
  EngineMetrics metrics() const;
  EngineMemory memory() const;

 private:
  struct Live;

  Engine();
  static std::unique_ptr<Engine> load_on(std::unique_ptr<Device> device, const EngineConfig& config);
  void run();
  bool take_inbox();
  void start(std::unique_ptr<Live> live);
  void abort_cancelled();
  void run_step();
  std::span<const RankedValue> read_largest(const Step& step, int rows);
  void advance(Live& live, int row, std::span<const RankedValue> largest);
  SampledToken sample(const Request& request, int row, std::span<const RankedValue> largest,
                      std::span<const uint32_t> mask);
  std::vector<int32_t> marker_tokens(std::string_view marker) const;
  std::vector<int32_t> allow_thought(const Thinking& thinking);
  std::optional<int32_t> forced_token(Live& live);
  bool deliver(Live& live, const SampledToken& token);
  void finish(Live& live, FinishReason reason, Delta last);
  void fail(Live& live, const Error& error);
  void fail_all(const Error& error);
  void publish_metrics();
  void log_trace();

  std::unique_ptr<Device> device_;
  TracingDevice* tracing_ = nullptr;  // device_, when steps are traced
  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<KvCache> kv_cache_;
  std::unique_ptr<StateCache> state_cache_;  // null for models without recurrent layers
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<Sampler> sampler_;
  std::once_flag constraints_once_;
  std::unique_ptr<ConstraintCompiler> constraints_;
  std::vector<int32_t> end_ids_;
  bool jump_forward_ = false;
  EngineInfo info_;
  LoadPlan plan_;

  // Engine thread only.
  std::unordered_map<const Request*, std::unique_ptr<Live>> live_;
  std::vector<uint32_t> mask_;
  EngineMetrics totals_;
  PressureLog pressure_;

  mutable std::mutex mutex_;  // guards what follows; never held while computing or calling out
  std::condition_variable wake_;
  std::vector<std::unique_ptr<Live>> inbox_;
  bool stopping_ = false;
  bool cancel_pending_ = false;
  uint64_t next_id_ = 1;
  EngineMetrics metrics_;
  size_t workspace_bytes_ = 0;
  std::thread thread_;
};

}  // namespace vllm

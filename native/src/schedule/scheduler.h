// Which rows the next step computes.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/step_batch.h"
#include "schedule/block_pool.h"
#include "schedule/request.h"

namespace vllm {

enum class Policy : uint8_t { Fcfs, Priority, Lpm };

/// "fcfs", "priority", "lpm"; empty is fcfs. Throws Error(InvalidArgument) with the known names.
Policy parse_policy(std::string_view name);

struct SchedulerConfig {
  int block_size = 32;
  int num_blocks = 0;
  int max_model_len = 0;
  int max_num_seqs = 8;
  int max_num_batched_tokens = 2048;
  Policy policy = Policy::Fcfs;
  bool prefix_caching = true;
};

struct ScheduledRequest {
  Request* request = nullptr;
  int num_tokens = 0;      // rows of this step: tokens[num_computed .. num_computed + num_tokens)
  bool needs_logits = false;  // the last row is the last known token, so the next one can be sampled
};

/// The plan of one step. `batch` holds the rows; `batch.logit_rows` are those of the entries with needs_logits, in order.
struct Step {
  std::vector<ScheduledRequest> entries;
  StepBatch batch;
};

/// Continuous batching with a token budget, chunked prefill and preemption by recompute; see models.md 4.2. Prefill and
/// decode are the same thing: every step lets num_computed catch up with num_tokens.
class Scheduler {
 public:
  explicit Scheduler(const SchedulerConfig& config);
  ~Scheduler();

  /// Throws Error(InvalidArgument) when the request can never fit the pool: its prompt and one more token need more than
  /// all blocks. The message has both numbers, num_blocks and block_size.
  void add(std::unique_ptr<Request> request);
  /// Plans a step; empty when there is nothing to run. Requests stay owned by the scheduler.
  Step schedule();
  /// Counts the step's rows as computed and publishes the blocks they filled. Call once the step has run, before the
  /// sampled tokens are appended to the requests.
  void commit(const Step& step);
  /// Takes a running or waiting request out, frees its blocks and hands it back.
  std::unique_ptr<Request> remove(Request* request);
  /// A running request that could not grow although nothing else holds blocks (it is alone and the pool is full):
  /// schedule() leaves it out and reports it here; the caller finishes it with Length.
  std::vector<Request*> take_stuck();

  int num_running() const;
  int num_waiting() const;
  uint64_t preemptions() const;
  const BlockPool& pool() const;
  bool idle() const { return num_running() == 0 && num_waiting() == 0; }

 private:
  // the helper that implements this completes the private part
};

}  // namespace vllm

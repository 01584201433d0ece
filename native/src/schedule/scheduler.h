// Which rows the next step computes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>
#include <vector>

#include "device/step_batch.h"
#include "schedule/block_pool.h"
#include "schedule/request.h"
#include "schedule/state_checkpoints.h"

namespace vllm {

enum class Policy : uint8_t { Fcfs, Priority, Lpm };

/// "fcfs", "priority", "lpm"; empty is fcfs. Throws Error(InvalidArgument) with the known names.
Policy parse_policy(std::string_view name);
const char* policy_name(Policy policy);

struct SchedulerConfig {
  int block_size = 32;
  int num_blocks = 0;
  int max_model_len = 0;  // tokens of prompt and output together
  int max_num_seqs = 8;
  int max_num_batched_tokens = 2048;
  Policy policy = Policy::Fcfs;
  bool prefix_caching = true;
  bool recurrent = false;     // a running request holds one of max_num_seqs state slots
  int state_checkpoints = 0;  // further slots, for states to continue from; prefix caching needs one at least
};

struct ScheduledRequest {
  Request* request = nullptr;
  int num_tokens = 0;         // rows of this step: tokens[num_computed .. num_computed + num_tokens)
  bool needs_logits = false;  // the last row is the last known token, so the next one can be sampled
};

/// Slots of recurrent state.
struct StateCopy {
  int32_t from, to;
};

/// The first `tokens` tokens of a KV block.
struct BlockCopy {
  int32_t from, to;
  int tokens;
};

/// The plan of one step. `batch` holds the rows; `batch.logit_rows` are those of the entries with
/// needs_logits, in order. The copies come before the rows are computed, in this order.
struct Step {
  std::vector<BlockCopy> block_copies;
  std::vector<StateCopy> state_copies;
  std::vector<ScheduledRequest> entries;
  StepBatch batch;
};

/// Continuous batching with a token budget, chunked prefill and preemption by recompute. Prefill and decode
/// are the same thing: every step lets num_computed catch up with num_tokens.
///
/// Running requests come first, in the order of their admission. One that cannot grow preempts: the request
/// admitted last, or under the priority policy the one with the highest (priority, id), loses its blocks,
/// keeps its tokens and waits again at the front. Waiting requests are admitted only in steps that preempted
/// nothing, and only when the blocks for all their known tokens are free. The request at the front of the
/// order loses blocks to nobody, so every step advances something.
class Scheduler {
 public:
  /// Throws Error(ModelLoad) when the limits cannot work together.
  explicit Scheduler(const SchedulerConfig& config);

  /// Throws Error(InvalidArgument) when a request with a prompt of so many tokens can never run: none at all,
  /// no room left for output in max_model_len, or with one more token more than all blocks. The message has
  /// the numbers. Any thread may call it at any time.
  void check_prompt(size_t tokens) const;
  /// A request whose prompt passes check_prompt().
  void add(std::unique_ptr<Request> request);
  /// Plans a step; empty when there is nothing to run. Requests stay owned by the scheduler.
  Step schedule();
  /// Counts the step's rows as computed and publishes the blocks they filled. Call once the step has run,
  /// before the sampled tokens are appended to the requests. Requests removed since schedule() are skipped.
  /// The copies it returns must be made before anything else is computed.
  std::vector<StateCopy> commit(const Step& step);
  /// Takes a running or waiting request out, frees its blocks and hands it back; null when it is not here.
  std::unique_ptr<Request> remove(const Request* request);
  /// The requests, running or waiting, that the last schedule() left out because they can never advance:
  /// their tokens fill the context, or need more blocks than the pool has. The caller removes each and
  /// finishes it with Length. Empties the list.
  std::vector<Request*> take_stuck();

  int num_running() const { return static_cast<int>(running_.size()); }
  int num_waiting() const { return static_cast<int>(waiting_.size()); }
  uint64_t preemptions() const { return preemptions_; }
  const BlockPool& pool() const { return pool_; }
  bool idle() const { return running_.empty() && waiting_.empty(); }

  /// For tests: throws Error(Runtime) when the blocks of the requests and those of the pool do not agree.
  void check_invariants() const;

 private:
  int blocks_for(int num_tokens) const { return (num_tokens + pool_.block_size() - 1) / pool_.block_size(); }
  bool impossible(const Request& request) const;   // no step could ever compute all its tokens
  bool schedule_running(Step& step, int& budget);  // true when a request was preempted
  void schedule_waiting(Step& step, int& budget);
  bool grow(Request& request, int num_tokens);  // blocks for num_tokens more computed tokens, all or none
  /// The rows of a step that may have `num_tokens`: fewer where it should end at a block's border.
  int cut(const Request& request, int num_tokens) const;
  /// Blocks that a request can start with: with recurrent state, as far as the last checkpoint.
  std::vector<int32_t> cached_prefix(Request& request) const;
  BlockHash hash_before(const Request& request) const;  // of the last full block that is computed
  /// Takes over what a cached block has of the tokens that follow `request`'s cached blocks.
  void continue_in_block(Request& request);
  void keep_state(Request& request, std::vector<StateCopy>& copies);
  Request* pick_victim() const;
  void preempt(Request* request);
  bool admit(Request* request);  // from waiting to running, with the blocks of its cached prefix
  void enqueue(std::unique_ptr<Request> request, bool in_front);
  std::vector<Request*> admission_order();
  void order_by_prefix(std::vector<Request*>& order) const;
  void publish_full_blocks(Request& request);
  void release(Request& request);  // gives its blocks and its state slot back
  void fill_batch(Step& step) const;

  SchedulerConfig config_;
  BlockPool pool_;
  std::vector<std::unique_ptr<Request>> running_;  // in order of admission
  std::deque<std::unique_ptr<Request>> waiting_;   // in order of arrival; priority: by (priority, id)
  std::vector<Request*> stuck_;
  StateCheckpoints checkpoints_;
  std::vector<BlockCopy> block_copies_;  // of the step being planned
  std::vector<StateCopy> state_copies_;  // likewise
  std::vector<int32_t> free_slots_;      // of recurrent state; the last is handed out next
  uint64_t preemptions_ = 0;
};

}  // namespace vllm

#include "schedule/scheduler.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace vllm {
namespace {

// Longest-prefix-match ordering, with the limits SGLang uses.
constexpr size_t kLpmMaxWaiting = 128;   // longer queues are served in order of arrival
constexpr size_t kLpmSharedTokens = 32;  // an opening this long is worth waiting for

constexpr int kFewestCopied = 8;  // tokens of a block; fewer are computed almost as fast as copied

bool runs_before(const std::unique_ptr<Request>& a, const std::unique_ptr<Request>& b) {
  return std::tie(a->priority, a->id) < std::tie(b->priority, b->id);
}

template <typename Queue>
auto find_request(Queue& queue, const Request* request) {
  return std::find_if(queue.begin(), queue.end(), [&](const auto& entry) { return entry.get() == request; });
}

template <typename Queue>
std::unique_ptr<Request> take(Queue& queue, const Request* request) {
  const auto it = find_request(queue, request);
  if (it == queue.end()) return nullptr;
  auto taken = std::move(*it);
  queue.erase(it);
  return taken;
}

}  // namespace

const char* policy_name(Policy policy) {
  return policy == Policy::Fcfs ? "fcfs" : policy == Policy::Priority ? "priority" : "lpm";
}

Policy parse_policy(std::string_view name) {
  if (name.empty() || name == "fcfs") return Policy::Fcfs;
  if (name == "priority") return Policy::Priority;
  if (name == "lpm") return Policy::Lpm;
  fail_argument("Unknown scheduling policy: %.*s; known are fcfs, priority and lpm.",
                static_cast<int>(std::min<size_t>(name.size(), 100)), name.data());
}

Scheduler::Scheduler(const SchedulerConfig& config)
    : config_(config),
      pool_(config.num_blocks, config.block_size, config.prefix_caching),
      checkpoints_(config.max_num_seqs,
                   config.recurrent && config.prefix_caching ? config.state_checkpoints : 0) {
  if (config.max_model_len < 2) {
    fail_load("max_model_len is %d; it must hold a prompt token and an output token.", config.max_model_len);
  }
  if (config.max_num_seqs < 1) fail_load("max_num_seqs is %d; at least 1 is needed.", config.max_num_seqs);
  if (config.max_num_batched_tokens < config.max_num_seqs) {
    fail_load("max_num_batched_tokens is %d; it must be at least max_num_seqs, which is %d.",
              config.max_num_batched_tokens, config.max_num_seqs);
  }
  if (config.recurrent && config.prefix_caching && config.state_checkpoints < 1)
    fail_load("Prefix caching is on and there are %d state checkpoints; at least one is needed.",
              config.state_checkpoints);
  if (config.recurrent)
    for (int slot = config.max_num_seqs; slot-- > 0;) free_slots_.push_back(slot);
  if (config.policy == Policy::Lpm && !config.prefix_caching) {
    log_warning("Scheduling policy lpm needs prefix caching, which is off; fcfs is used.");
    config_.policy = Policy::Fcfs;
  }
}

void Scheduler::check_prompt(size_t tokens) const {
  if (tokens < 1) fail_argument("The prompt has no tokens; at least one is needed.");
  if (tokens >= static_cast<size_t>(config_.max_model_len)) {
    fail_argument(
        "context_length_exceeded: the prompt has %zu tokens; the context of %d tokens must hold it and at "
        "least one output token.",
        tokens, config_.max_model_len);
  }
  const size_t pool_tokens = static_cast<size_t>(pool_.total()) * static_cast<size_t>(pool_.block_size());
  if (tokens + 1 > pool_tokens) {
    fail_argument(
        "The prompt has %zu tokens and needs room for one more; the KV pool holds %zu tokens (num_blocks %d, "
        "block_size %d).",
        tokens, pool_tokens, pool_.total(), pool_.block_size());
  }
}

void Scheduler::add(std::unique_ptr<Request> request) { enqueue(std::move(request), false); }

void Scheduler::enqueue(std::unique_ptr<Request> request, bool in_front) {
  auto place = in_front ? waiting_.begin() : waiting_.end();
  if (config_.policy == Policy::Priority) {
    place = std::upper_bound(waiting_.begin(), waiting_.end(), request, runs_before);
  }
  waiting_.insert(place, std::move(request));
}

Step Scheduler::schedule() {
  Step step;
  int budget = config_.max_num_batched_tokens;
  stuck_.clear();
  const bool preempted = schedule_running(step, budget);
  if (!preempted) schedule_waiting(step, budget);
  fill_batch(step);
  step.block_copies = std::exchange(block_copies_, {});
  step.state_copies = std::exchange(state_copies_, {});
  return step;
}

bool Scheduler::impossible(const Request& request) const {
  return request.num_tokens() >= config_.max_model_len || blocks_for(request.num_tokens()) > pool_.total();
}

bool Scheduler::schedule_running(Step& step, int& budget) {
  std::vector<Request*> order;
  for (const auto& request : running_) order.push_back(request.get());
  std::vector<Request*> preempted;
  for (Request* request : order) {
    if (budget == 0) break;
    if (std::ranges::find(preempted, request) != preempted.end()) continue;
    if (impossible(*request)) {
      stuck_.push_back(request);
      continue;
    }
    const int num_tokens = cut(*request, std::min(request->num_tokens() - request->num_computed, budget));
    if (num_tokens == 0) continue;

    // Once alone it grows: its tokens fit the pool, and nobody else holds blocks.
    bool grown = grow(*request, num_tokens);
    while (!grown && running_.size() > 1) {
      Request* victim = pick_victim();
      preempt(victim);
      preempted.push_back(victim);
      if (victim == request) break;
      const auto planned = std::ranges::find(step.entries, victim, &ScheduledRequest::request);
      if (planned != step.entries.end()) {
        budget += planned->num_tokens;
        step.entries.erase(planned);
      }
      grown = grow(*request, num_tokens);
    }
    if (grown) {
      step.entries.push_back(
          {request, num_tokens, request->num_computed + num_tokens == request->num_tokens()});
      budget -= num_tokens;
    }
  }
  return !preempted.empty();
}

int Scheduler::cut(const Request& request, int num_tokens) const {
  if (checkpoints_.count() == 0) return num_tokens;
  const int begin = request.num_computed, end = begin + num_tokens, size = pool_.block_size();
  if (begin < request.checkpoint_at && request.checkpoint_at < end) return request.checkpoint_at - begin;
  // The last token is always computed: the same prompt again could not continue from a state after it.
  const int border = (end == request.num_tokens() ? end - 1 : end) / size * size;
  return border > begin ? border - begin : num_tokens;
}

std::vector<int32_t> Scheduler::cached_prefix(Request& request) const {
  std::vector<int32_t> blocks = pool_.lookup(request.tokens, request.block_hashes);
  if (config_.recurrent)
    while (!blocks.empty() && !checkpoints_.has(request.block_hashes[blocks.size() - 1])) blocks.pop_back();
  return blocks;
}

/// After a step that ended at a block's border. While it decodes, a request has one state kept, its newest.
void Scheduler::keep_state(Request& request, std::vector<StateCopy>& copies) {
  if (checkpoints_.count() == 0 || request.num_computed % pool_.block_size() != 0) return;
  const BlockHash& hash =
      request.block_hashes[static_cast<size_t>(request.num_computed / pool_.block_size()) - 1];
  const bool decoding = request.num_computed > request.num_prompt;
  const bool replaces = decoding && request.output_checkpoint;
  const int32_t slot = checkpoints_.add(hash, replaces ? &*request.output_checkpoint : nullptr);
  if (slot < 0) return;
  if (decoding) request.output_checkpoint = hash;
  copies.push_back({request.state_slot, slot});
}

bool Scheduler::grow(Request& request, int num_tokens) {
  const int wanted = blocks_for(request.num_computed + num_tokens) - static_cast<int>(request.blocks.size());
  if (wanted > pool_.available()) return false;
  for (int i = 0; i < wanted; ++i) request.blocks.push_back(pool_.allocate());
  return true;
}

Request* Scheduler::pick_victim() const {
  if (config_.policy != Policy::Priority) return running_.back().get();
  return std::max_element(running_.begin(), running_.end(), runs_before)->get();
}

void Scheduler::preempt(Request* request) {
  auto taken = take(running_, request);
  release(*taken);
  taken->num_computed = 0;
  ++taken->preemptions;
  ++preemptions_;
  enqueue(std::move(taken), true);
}

void Scheduler::schedule_waiting(Step& step, int& budget) {
  if (budget == 0 || num_running() >= config_.max_num_seqs) return;
  for (Request* request : admission_order()) {
    if (budget == 0 || num_running() >= config_.max_num_seqs || !admit(request)) break;
    const int num_tokens = cut(*request, std::min(request->num_tokens() - request->num_computed, budget));
    grow(*request, num_tokens);
    step.entries.push_back(
        {request, num_tokens, request->num_computed + num_tokens == request->num_tokens()});
    budget -= num_tokens;
  }
}

std::vector<Request*> Scheduler::admission_order() {
  const bool by_prefix = config_.policy == Policy::Lpm && waiting_.size() <= kLpmMaxWaiting;
  const size_t seats = config_.max_num_seqs - running_.size();
  std::vector<Request*> order;
  for (const auto& request : waiting_) {
    if (!by_prefix && order.size() == seats) break;
    (impossible(*request) ? stuck_ : order).push_back(request.get());
  }
  if (by_prefix) order_by_prefix(order);
  return order;
}

// Longest cached prefix first. Of several requests with the same uncached opening only the first keeps its
// place; the others go behind, to find that opening in the cache later.
void Scheduler::order_by_prefix(std::vector<Request*>& order) const {
  struct Ranked {
    Request* request;
    bool behind;
    size_t matched;  // tokens
  };
  std::vector<Ranked> ranked;
  std::set<std::string_view> openings;
  for (Request* request : order) {
    Ranked entry{request, false, 0};
    entry.matched = cached_prefix(*request).size() * pool_.block_size();
    if (entry.matched <= kLpmSharedTokens && request->tokens.size() >= kLpmSharedTokens) {
      const auto* bytes = reinterpret_cast<const char*>(request->tokens.data());
      entry.behind = !openings.emplace(bytes, kLpmSharedTokens * sizeof(int32_t)).second;
    }
    ranked.push_back(entry);
  }
  std::ranges::stable_sort(ranked, [](const Ranked& a, const Ranked& b) {
    if (a.behind != b.behind) return b.behind;
    return !a.behind && a.matched > b.matched;
  });
  std::ranges::transform(ranked, order.begin(), &Ranked::request);
}

bool Scheduler::admit(Request* request) {
  const auto hits = cached_prefix(*request);
  const int num_hits = static_cast<int>(hits.size());
  const int wanted = blocks_for(request->num_tokens()) - num_hits + pool_.count_free(hits);
  if (wanted > pool_.available()) return false;
  pool_.acquire(hits);
  request->blocks = hits;
  request->num_hashed_blocks = num_hits;
  request->num_computed = num_hits * pool_.block_size();
  if (!config_.recurrent) continue_in_block(*request);
  if (request->preemptions == 0) request->num_cached = request->num_computed;
  if (config_.recurrent) {  // there are as many slots as seats
    request->state_slot = free_slots_.back();
    free_slots_.pop_back();
    if (num_hits > 0)
      state_copies_.push_back(
          {checkpoints_.use(request->block_hashes[static_cast<size_t>(num_hits) - 1]), request->state_slot});
    // Where blocks go on but no state does, one will be kept for the next request with this opening.
    request->checkpoint_at =
        static_cast<int>(pool_.lookup(request->tokens, request->block_hashes).size()) * pool_.block_size();
  }
  running_.push_back(take(waiting_, request));
  return true;
}

BlockHash Scheduler::hash_before(const Request& request) const {
  const int full = request.num_computed / pool_.block_size();
  return full == 0 ? BlockHash{} : request.block_hashes[static_cast<size_t>(full) - 1];
}

void Scheduler::continue_in_block(Request& request) {
  const auto rest = std::span<const int32_t>(request.tokens).subspan(request.num_computed);
  const auto [block, tokens] = pool_.lookup_part(hash_before(request), rest.first(rest.size() - 1));
  if (tokens < kFewestCopied) return;
  request.blocks.push_back(pool_.allocate());
  request.num_computed += tokens;
  block_copies_.push_back({block, request.blocks.back(), tokens});
}

void Scheduler::fill_batch(Step& step) const {
  StepBatch& batch = step.batch;
  batch.seq_start.push_back(0);
  for (const ScheduledRequest& entry : step.entries) {
    const Request& request = *entry.request;
    const auto first = request.tokens.begin() + request.num_computed;
    batch.token_ids.insert(batch.token_ids.end(), first, first + entry.num_tokens);
    for (int i = 0; i < entry.num_tokens; ++i) batch.positions.push_back(request.num_computed + i);
    batch.seq_start.push_back(batch.rows());
    if (entry.needs_logits) batch.logit_rows.push_back(batch.rows() - 1);
    batch.state_slots.push_back(request.state_slot);
    batch.max_blocks = std::max(batch.max_blocks, static_cast<int32_t>(request.blocks.size()));
  }
  batch.block_table.assign(step.entries.size() * batch.max_blocks, -1);
  auto row = batch.block_table.begin();
  for (const ScheduledRequest& entry : step.entries) {
    std::ranges::copy(entry.request->blocks, row);
    row += batch.max_blocks;
  }
}

std::vector<StateCopy> Scheduler::commit(const Step& step) {
  std::vector<StateCopy> copies;
  for (const ScheduledRequest& entry : step.entries) {
    if (find_request(running_, entry.request) == running_.end()) continue;
    entry.request->num_computed += entry.num_tokens;
    publish_full_blocks(*entry.request);
    keep_state(*entry.request, copies);
  }
  return copies;
}

void Scheduler::publish_full_blocks(Request& request) {
  if (!pool_.caching()) return;
  const int block_size = pool_.block_size();
  auto& hashes = request.block_hashes;
  for (; request.num_hashed_blocks < request.num_computed / block_size; ++request.num_hashed_blocks) {
    const size_t i = request.num_hashed_blocks;
    const auto tokens = std::span<const int32_t>(request.tokens).subspan(i * block_size, block_size);
    const BlockHash parent = i == 0 ? BlockHash{} : hashes[i - 1];
    if (hashes.size() == i) hashes.push_back(hash_block(parent, tokens));
    pool_.publish(request.blocks[i], hashes[i], parent, tokens);
  }
}

std::unique_ptr<Request> Scheduler::remove(const Request* request) {
  std::erase(stuck_, request);
  auto taken = take(running_, request);
  if (!taken) taken = take(waiting_, request);
  if (taken) release(*taken);
  return taken;
}

void Scheduler::release(Request& request) {
  const int part = request.num_computed % pool_.block_size(), full = request.num_computed - part;
  if (pool_.caching() && !config_.recurrent && part >= kFewestCopied)
    pool_.publish_part(request.blocks[static_cast<size_t>(full / pool_.block_size())], hash_before(request),
                       std::span<const int32_t>(request.tokens).subspan(full, part));
  pool_.free(request.blocks);
  request.blocks.clear();
  if (request.state_slot >= 0) free_slots_.push_back(std::exchange(request.state_slot, -1));
}

std::vector<Request*> Scheduler::take_stuck() { return std::exchange(stuck_, {}); }

void Scheduler::check_invariants() const {
  int64_t references = 0;
  std::set<int32_t> slots(free_slots_.begin(), free_slots_.end());
  for (const auto& request : running_) {
    slots.insert(request->state_slot);
    references += static_cast<int64_t>(request->blocks.size());
    if (request->num_computed > request->num_tokens() ||
        blocks_for(request->num_computed) > static_cast<int>(request->blocks.size())) {
      fail_runtime("Request %llu has %d of %d tokens computed in %zu KV blocks.",
                   static_cast<unsigned long long>(request->id), request->num_computed, request->num_tokens(),
                   request->blocks.size());
    }
  }
  for (const auto& request : waiting_) {
    if (!request->blocks.empty() || request->num_computed != 0 || request->state_slot >= 0) {
      fail_runtime("Request %llu waits but holds KV blocks or a state slot.",
                   static_cast<unsigned long long>(request->id));
    }
  }
  const size_t known = free_slots_.size() + running_.size();
  if (config_.recurrent && (slots.size() != known || known != static_cast<size_t>(config_.max_num_seqs) ||
                            *slots.begin() != 0 || *slots.rbegin() != config_.max_num_seqs - 1)) {
    fail_runtime("%zu state slots are free or held by %d requests; there are %d.", slots.size(),
                 num_running(), config_.max_num_seqs);
  }
  pool_.check_invariants(references);
}

}  // namespace vllm

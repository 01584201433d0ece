#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <random>
#include <sstream>

#include "base/error.h"
#include "base/log.h"
#include "device/tracing_device.h"

namespace vllm {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

uint64_t random_seed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

/// A token that was not sampled because there was no choice.
SampledToken certain(int32_t id, const SamplingParams& params) {
  SampledToken token;
  token.id = id;
  if (params.logprobs > 0) token.top = {{id, 0.0f}};
  return token;
}

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

/// A request between submission and its last delta.
struct Engine::Live {
  Live(std::unique_ptr<Request> r, const Tokenizer& tokenizer)
      : owned(std::move(r)),
        request(owned.get()),
        stream(std::make_shared<Stream>()),
        detokenizer(tokenizer, request->sampling.skip_special),
        stops(request->sampling.stop, request->sampling.include_stop) {}

  std::unique_ptr<Request> owned;  // until the scheduler has it
  Request* request;
  std::shared_ptr<Stream> stream;
  Detokenizer detokenizer;
  StopMatcher stops;
  std::optional<Thinking> thinking;
  std::deque<int32_t> forced;  // tokens of a marker that are due
  size_t opening = 0;          // next tokens that begin a thought and mean nothing to the constraint
  Clock::time_point submitted = Clock::now(), started, first_token, last_token;
  bool running = false;

  /// Text that may be shown after `text` was generated; the last call of a request has `at_end`.
  std::string show(std::string text, bool at_end) {
    if (at_end) text += detokenizer.finish();
    // Stop strings count beyond min_tokens only.
    if (request->num_output() > request->sampling.min_tokens || request->sampling.min_tokens == 0)
      text = stops.add(text);
    if (at_end && stops.matched() < 0) text += stops.finish();
    return text;
  }

  void count(Delta& delta) const {
    delta.prompt_tokens = request->num_prompt;
    delta.cached_tokens = request->num_cached;
    delta.completion_tokens = request->num_output();
    if (!running) return;
    delta.timings.queue_ms = milliseconds(submitted, started);
    if (request->num_output() == 0) return;
    delta.timings.prompt_ms = milliseconds(started, first_token);
    delta.timings.generation_ms = milliseconds(first_token, last_token);
  }
};

Engine::Engine() = default;

Engine::~Engine() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

ConstraintCompiler& Engine::constraints() {
  std::call_once(constraints_once_, [this] {
    constraints_ = std::make_unique<ConstraintCompiler>(*tokenizer_, end_ids_,
                                                        ConstraintCompiler::kCacheBytes, info_.vocab_size);
  });
  return *constraints_;
}

std::vector<int32_t> Engine::encode_prompt(std::string_view text) const {
  const size_t limit = static_cast<size_t>(info_.max_model_len) * tokenizer_->longest_token();
  if (text.size() > limit)
    fail_argument(
        "context_length_exceeded: the prompt has %zu bytes and the context of %d tokens holds at most %zu",
        text.size(), info_.max_model_len, limit);
  return tokenizer_->encode(text, true, true);
}

std::shared_ptr<Stream> Engine::submit(GenerationRequest in) {
  if (info_.plan_only) fail_argument("the model was loaded with plan_only, which runs no requests");
  scheduler_->check_prompt(in.prompt.size());
  for (size_t i = 0; i < in.prompt.size(); ++i)
    if (in.prompt[i] < 0 || in.prompt[i] >= info_.vocab_size)
      fail_argument("prompt token %zu is %d, needed is an id from 0 to %d", i, in.prompt[i],
                    info_.vocab_size - 1);
  in.sampling.validate_and_normalise(info_.vocab_size);
  if (in.thinking && in.thinking->budget >= 0)
    for (const std::string& end : in.thinking->ends)
      if (marker_tokens(end).empty())
        fail_argument(
            "thinking_budget cannot be kept: the end of a thought, %s, is not among the model's %d tokens",
            quote(end).c_str(), info_.vocab_size);

  auto request = std::make_unique<Request>();
  request->priority = in.priority;
  request->sampling = std::move(in.sampling);
  request->seed = request->sampling.seed ? static_cast<uint64_t>(*request->sampling.seed) : random_seed();
  request->tokens = std::move(in.prompt);
  request->num_prompt = request->num_tokens();
  request->max_output = request->sampling.output_limit(info_.max_model_len - request->num_prompt);
  request->sampler = std::make_unique<SamplerState>(request->tokens);
  request->constraint = std::move(in.constraint);
  auto live = std::make_unique<Live>(std::move(request), *tokenizer_);
  if (in.thinking) live->thinking.emplace(std::move(*in.thinking));
  std::shared_ptr<Stream> stream = live->stream;
  {
    const std::lock_guard lock(mutex_);
    live->request->id = next_id_++;
    inbox_.push_back(std::move(live));
  }
  wake_.notify_one();
  return stream;
}

void Engine::cancel(Stream& stream) {
  stream.request_cancel();
  {
    const std::lock_guard lock(mutex_);
    cancel_pending_ = true;
  }
  wake_.notify_one();
}

EngineMetrics Engine::metrics() const {
  const std::lock_guard lock(mutex_);
  EngineMetrics out = metrics_;
  out.waiting += static_cast<int>(inbox_.size());
  return out;
}

EngineMemory Engine::memory() const {
  if (info_.plan_only) return plan_.memory;
  const std::lock_guard lock(mutex_);
  return {model_->weight_bytes(), kv_cache_->bytes, state_cache_ ? state_cache_->bytes : 0, workspace_bytes_};
}

void Engine::publish_metrics() {
  totals_.running = scheduler_->num_running();
  totals_.waiting = scheduler_->num_waiting();
  totals_.blocks_total = scheduler_->pool().total();
  totals_.blocks_free = scheduler_->pool().available();
  totals_.preemptions = scheduler_->preemptions();
  const std::lock_guard lock(mutex_);
  metrics_ = totals_;
  workspace_bytes_ = model_->workspace_bytes();
}

void Engine::log_trace() {
  if (tracing_ == nullptr) return;
  std::istringstream report(tracing_->take_report());
  for (std::string line; std::getline(report, line);) log_info("%s", line.c_str());
}

void Engine::run() {
  while (take_inbox()) {
    try {
      abort_cancelled();
      run_step();
    } catch (const Error& error) {
      fail_all(error);
    } catch (const std::bad_alloc&) {
      fail_all(Error(Status::Runtime, "a step failed: out of memory"));
    } catch (const std::exception& error) {
      fail_all(Error(Status::Runtime, std::string("a step failed: ") + error.what()));
    }
    publish_metrics();
    if (const std::string line = pressure_.take_line(totals_, Clock::now()); !line.empty())
      log_info("%s", line.c_str());
    if (scheduler_->idle()) log_trace();
  }
  log_trace();
  fail_all(Error(Status::Runtime, "the model was unloaded while the request ran"));
}

/// Waits for work and takes in new requests; false when the engine stops.
bool Engine::take_inbox() {
  std::vector<std::unique_ptr<Live>> arrived;
  bool stopping = false;
  {
    std::unique_lock lock(mutex_);
    wake_.wait(lock,
               [this] { return stopping_ || cancel_pending_ || !inbox_.empty() || !scheduler_->idle(); });
    arrived.swap(inbox_);
    stopping = stopping_;
  }
  for (auto& live : arrived) start(std::move(live));
  return !stopping;
}

void Engine::start(std::unique_ptr<Live> live) {
  const Request* key = live->request;
  Live& entry = *(live_[key] = std::move(live));
  scheduler_->add(std::move(entry.owned));
}

void Engine::abort_cancelled() {
  {
    const std::lock_guard lock(mutex_);
    if (!cancel_pending_) return;
    cancel_pending_ = false;
  }
  std::vector<Live*> cancelled;
  for (auto& [request, live] : live_)
    if (live->stream->cancel_requested()) cancelled.push_back(live.get());
  for (Live* live : cancelled) finish(*live, FinishReason::Abort, {});
}

void Engine::run_step() {
  const Step step = scheduler_->schedule();
  for (Request* request : scheduler_->take_stuck()) {
    Live& live = *live_.at(request);
    if (request->num_output() == 0) {
      fail(live, Error(Status::Runtime, "the request needs more KV blocks than the pool has"));
      continue;
    }
    Delta delta;
    delta.text = live.show({}, true);
    finish(live, FinishReason::Length, std::move(delta));
  }
  if (step.entries.empty()) return;
  const Clock::time_point begin = Clock::now();
  for (const ScheduledRequest& entry : step.entries) {
    Live& live = *live_.at(entry.request);
    if (live.running) continue;
    live.running = true;
    live.started = begin;
  }
  for (const BlockCopy& copy : step.block_copies)
    device_->copy_kv(*kv_cache_, copy.from, copy.to, copy.tokens);
  for (const StateCopy& copy : step.state_copies) device_->copy_state(*state_cache_, copy.from, copy.to);
  model_->forward(step.batch, *kv_cache_, state_cache_.get());
  for (const StateCopy& copy : scheduler_->commit(step))
    device_->copy_state(*state_cache_, copy.from, copy.to);
  const int rows = static_cast<int>(step.batch.logit_rows.size());
  const std::span<const RankedValue> largest = read_largest(step, rows);
  const size_t each = rows > 0 ? largest.size() / static_cast<size_t>(rows) : 0;
  int row = 0;
  for (const ScheduledRequest& entry : step.entries) {
    if (!entry.needs_logits) continue;
    Live& live = *live_.at(entry.request);
    try {
      advance(live, row, largest.subspan(static_cast<size_t>(row) * each, each));
    } catch (const Error& error) {
      fail(live, error);
    }
    ++row;
  }
}

/// The largest logits of all rows of a step, equally many of each, where the host cannot read a device's
/// memory and these settle every row's token; else none, and whole rows are read.
std::span<const RankedValue> Engine::read_largest(const Step& step, int rows) {
  if (rows == 0 || model_->logits_on_host()) return {};
  int count = 0;
  for (const ScheduledRequest& entry : step.entries) {
    if (!entry.needs_logits) continue;
    const Request& request = *entry.request;
    const int needed =
        sampler_->decisive(request.sampling, request.output().size(), request.constraint != nullptr);
    if (needed == 0) return {};
    count = std::max(count, needed);
  }
  return model_->largest_logits(count, sampler_->allowed_vocab());
}

/// The token of logits row `row`, of which `largest` are the largest, if any were read.
SampledToken Engine::sample(const Request& request, int row, std::span<const RankedValue> largest,
                            std::span<const uint32_t> mask) {
  const SamplingParams& sampling = request.sampling;
  const auto output = request.output();
  if (!largest.empty()) {
    const auto count = static_cast<size_t>(sampler_->decisive(sampling, output.size(), !mask.empty()));
    if (const auto token =
            sampler_->sample_largest(largest.first(count), sampling, output.size(), request.seed))
      return *token;
  }
  return sampler_->sample(model_->logits(row), sampling, *request.sampler, output, mask, request.seed);
}

/// Chooses the next token of a request, and all after it that leave no choice.
void Engine::advance(Live& live, int row, std::span<const RankedValue> largest) {
  Request& request = *live.request;
  SampledToken token;
  if (const auto forced = forced_token(live)) {
    token = certain(*forced, request.sampling);
  } else {
    std::span<const uint32_t> mask;
    std::vector<int32_t> opening;  // of a thought; empty when the constraint decides alone
    if (request.constraint) {
      mask_.resize((static_cast<size_t>(info_.vocab_size) + 31) / 32);
      mask = mask_;
      if (live.thinking && live.thinking->thinking()) {
        // The thought must be closed: an answer that ended in it would not have met its constraint.
        std::fill(mask_.begin(), mask_.end(), ~0u);
        for (const int32_t id : end_ids_) mask_[static_cast<size_t>(id) / 32] &= ~(1u << (id % 32));
      } else {
        if (request.constraint->is_dead())
          fail_runtime("the constraint cannot go on: %s", request.constraint->error().c_str());
        request.constraint->mask(mask_);
        if (live.thinking && live.thinking->may_open()) opening = allow_thought(*live.thinking);
      }
    }
    token = sample(request, row, largest, mask);
    if (!opening.empty() && token.id == opening.front()) {
      live.opening = opening.size();
      live.forced.assign(opening.begin() + 1, opening.end());
    }
  }
  while (deliver(live, token)) {
    const auto forced = forced_token(live);
    if (!forced) return;
    token = certain(*forced, request.sampling);
  }
}

/// Tokens of the start or end of a thought; none when the tokenizer spells it with tokens the model lacks.
std::vector<int32_t> Engine::marker_tokens(std::string_view marker) const {
  std::vector<int32_t> ids = tokenizer_->encode(marker, true, false);
  if (std::ranges::any_of(ids, [&](int32_t id) { return id >= info_.vocab_size; })) ids.clear();
  return ids;
}

/// Adds the start of a thought to mask_. Its tokens, or none when the constraint allows the first one itself.
std::vector<int32_t> Engine::allow_thought(const Thinking& thinking) {
  std::vector<int32_t> ids = marker_tokens(thinking.start_marker());
  if (ids.empty()) return {};
  uint32_t& word = mask_[static_cast<size_t>(ids.front()) / 32];
  const uint32_t bit = 1u << (ids.front() % 32);
  if ((word & bit) != 0) return {};
  word |= bit;
  return ids;
}

/// The next token when it is settled before sampling: of a marker that is due, or the only one a
/// constraint allows.
std::optional<int32_t> Engine::forced_token(Live& live) {
  if (live.forced.empty() && live.thinking && live.thinking->budget_used())
    for (int32_t id : marker_tokens(live.thinking->end_marker())) live.forced.push_back(id);
  if (!live.forced.empty()) {
    const int32_t id = live.forced.front();
    live.forced.pop_front();
    return id;
  }
  Request& request = *live.request;
  if (!jump_forward_ || !request.constraint ||
      (live.thinking && (live.thinking->thinking() || live.thinking->may_open())))
    return std::nullopt;
  const std::optional<int32_t> only = request.constraint->forced_token();
  if (only) ++totals_.forced_tokens;
  return only;
}

/// Appends a token to its request and sends what it shows. False when that ended the request.
bool Engine::deliver(Live& live, const SampledToken& token) {
  Request& request = *live.request;
  const SamplingParams& sampling = request.sampling;
  const bool first = request.num_output() == 0;
  request.tokens.push_back(token.id);
  request.sampler->add_output(token.id);
  live.last_token = Clock::now();
  if (first) {
    live.first_token = live.last_token;
    totals_.prompt_tokens += static_cast<uint64_t>(request.num_prompt);
    totals_.cached_tokens += static_cast<uint64_t>(request.num_cached);
  }
  ++totals_.generated_tokens;

  Delta delta;
  delta.token_ids.push_back(token.id);
  if (sampling.logprobs >= 0) delta.logprobs.push_back(token);
  FinishReason reason = FinishReason::None;
  if (!sampling.ignore_eos && contains(end_ids_, token.id)) {
    reason = FinishReason::Stop;
  } else if (contains(sampling.stop_token_ids, token.id)) {
    reason = FinishReason::Stop;
    delta.stop_token = token.id;
  }
  bool shown = reason == FinishReason::None;  // end tokens have no text
  if (live.thinking && live.thinking->thinking()) {
    live.thinking->add(tokenizer_->bytes(token.id));
  } else {
    if (live.thinking) live.thinking->add(tokenizer_->bytes(token.id));
    if (live.opening > 0) {
      --live.opening;
    } else if (request.constraint) {
      if (request.constraint->accept(std::span(&token.id, 1)) == 0 && reason == FinishReason::None)
        fail_runtime("the constraint does not accept the token %d: %s", token.id,
                     request.constraint->error().c_str());
      if (request.constraint->is_terminated()) shown = false;  // by an end token, whatever ignore_eos says
      if (request.constraint->must_end() || request.constraint->is_terminated()) reason = FinishReason::Stop;
    }
  }
  std::string text = shown ? live.detokenizer.add(token.id) : std::string();
  if (reason == FinishReason::None && request.num_output() >= request.max_output)
    reason = FinishReason::Length;
  delta.text = live.show(std::move(text), reason != FinishReason::None);
  if (live.stops.matched() >= 0) {
    reason = FinishReason::Stop;
    delta.stop_token = -1;
    delta.stop_string = sampling.stop[static_cast<size_t>(live.stops.matched())];
  }
  if (reason != FinishReason::None) {
    finish(live, reason, std::move(delta));
    return false;
  }
  live.count(delta);
  live.stream->push(std::move(delta));
  return true;
}

void Engine::finish(Live& live, FinishReason reason, Delta last) {
  last.finish = reason;
  live.count(last);
  ++totals_.requests_finished;
  if (last.timings.generation_ms > 0)
    totals_.tokens_per_second = (last.completion_tokens - 1) / last.timings.generation_ms * 1e3;
  if (last.timings.prompt_ms > 0)
    totals_.prompt_tokens_per_second =
        (last.prompt_tokens - last.cached_tokens) / last.timings.prompt_ms * 1e3;
  const std::shared_ptr<Stream> stream = live.stream;
  // The blocks are free before the consumer learns of the end.
  const std::unique_ptr<Request> request = scheduler_->remove(live.request);
  live_.erase(request.get());
  publish_metrics();
  stream->push(std::move(last));
}

void Engine::fail(Live& live, const Error& error) {
  Delta delta;
  delta.text = live.show({}, true);
  // Memory that a device lacks is a fault of the load only while it loads.
  delta.error = error.status() == Status::ModelLoad ? Error(Status::Runtime, error.message()) : error;
  finish(live, FinishReason::Error, std::move(delta));
}

void Engine::fail_all(const Error& error) {
  std::vector<Live*> all;
  for (auto& [request, live] : live_) all.push_back(live.get());
  for (Live* live : all) fail(*live, error);
}

}  // namespace vllm

#include "schedule/scheduler.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <string>

#include "base/error.h"

using namespace vllm;

namespace {

// The model of these tests: the "key and value" of a position is a hash of the whole prefix up to it, and the
// next token is a function of that hash. Positions are chained through the KV slots that the block table
// names, so a wrong, stale or shared slot changes every later token.
uint64_t next_state(uint64_t before, int32_t token, int32_t position) {
  uint64_t x =
      before * 0x9E3779B97F4A7C15u + static_cast<uint32_t>(token) * 0xC2B2AE3D27D4EB4Fu + position + 1;
  x ^= x >> 31;
  x *= 0xD6E8FEB86659FD93u;
  return x ^ (x >> 29);
}

int32_t next_token(uint64_t state) { return static_cast<int32_t>((state >> 20) % 50); }

std::vector<int32_t> solo_run(std::vector<int32_t> tokens, int64_t max_output, int max_model_len,
                              int pool_tokens) {
  const size_t prompt = tokens.size();
  uint64_t state = 0;
  size_t computed = 0;
  while (static_cast<int64_t>(tokens.size() - prompt) < max_output &&
         static_cast<int>(tokens.size()) < max_model_len && static_cast<int>(tokens.size()) <= pool_tokens) {
    for (; computed < tokens.size(); ++computed) {
      state = next_state(state, tokens[computed], static_cast<int32_t>(computed));
    }
    tokens.push_back(next_token(state));
  }
  return {tokens.begin() + static_cast<ptrdiff_t>(prompt), tokens.end()};
}

struct Outcome {
  std::vector<int32_t> output;
  FinishReason reason = FinishReason::None;
  int num_cached = 0;
  int preemptions = 0;
};

using Ids = std::vector<uint64_t>;

/// A step that ran; its requests may be gone.
struct Ran {
  Ids ids;
  std::vector<ScheduledRequest> entries;
  StepBatch batch;
};

/// Drives a scheduler as the engine does and checks every step.
class Simulation {
 public:
  explicit Simulation(const SchedulerConfig& config)
      : scheduler(config),
        config_(config),
        slots_(static_cast<size_t>(config.num_blocks) * config.block_size),
        recurrent_(static_cast<size_t>(config.max_num_seqs + config.state_checkpoints)) {}

  uint64_t add(std::vector<int32_t> prompt, int64_t max_output, int32_t priority = 0) {
    auto request = std::make_unique<Request>();
    request->id = ++last_id_;
    request->priority = priority;
    request->max_output = max_output;
    request->num_prompt = static_cast<int>(prompt.size());
    request->tokens = std::move(prompt);
    Request* raw = request.get();
    scheduler.check_prompt(request->tokens.size());
    scheduler.add(std::move(request));
    live_[raw->id] = raw;
    return raw->id;
  }

  void cancel(uint64_t id) { finish(live_.at(id), FinishReason::Abort); }

  /// `between` runs after schedule(), before commit().
  Ran step(const std::function<void()>& between = {}) {
    std::map<uint64_t, int> preempted_before;
    const Request* oldest = nullptr;
    for (const auto& [id, request] : live_) {
      preempted_before[id] = request->preemptions;
      if (!oldest && !request->blocks.empty()) oldest = request;
    }
    const uint64_t preemptions = scheduler.preemptions();
    std::vector<const Request*> running;
    for (const auto& entry : live_) {
      if (!entry.second->blocks.empty()) running.push_back(entry.second);
    }
    const Step step = scheduler.schedule();
    if (scheduler.preemptions() != preemptions) {  // then nothing is admitted
      for (const auto& entry : step.entries) REQUIRE(std::ranges::count(running, entry.request) == 1);
    }
    REQUIRE_NOTHROW(scheduler.check_invariants());
    if (oldest && config_.policy == Policy::Fcfs) {
      REQUIRE(oldest->preemptions == preempted_before.at(oldest->id));
    }
    check_batch(step);
    const auto stuck = scheduler.take_stuck();
    REQUIRE((!step.entries.empty() || !stuck.empty() || scheduler.idle()));  // always something to do
    Ids ids;
    for (const auto& entry : step.entries) ids.push_back(entry.request->id);
    for (const BlockCopy& c : step.block_copies) {
      const auto at = [&](int32_t block) { return slots_.begin() + block * config_.block_size; };
      const std::vector<uint64_t> first(at(c.from), at(c.from) + c.tokens);
      std::fill_n(at(c.to), config_.block_size, 0);
      std::ranges::copy(first, at(c.to));
    }
    copy(step.state_copies);
    const auto states = run(step);
    if (between) between();
    copy(scheduler.commit(step));
    REQUIRE_NOTHROW(scheduler.check_invariants());
    for (size_t i = 0, row = 0; i < ids.size(); ++i) {
      if (!step.entries[i].needs_logits) continue;
      const int32_t token = next_token(states[row++]);
      const auto found = live_.find(ids[i]);
      if (found == live_.end()) continue;
      Request* request = found->second;
      request->tokens.push_back(token);
      if (request->num_output() >= request->max_output) finish(request, FinishReason::Length);
    }
    for (Request* request : stuck) {
      if (std::ranges::any_of(live_, [&](const auto& e) { return e.second == request; })) {
        finish(request, FinishReason::Length);
      }
    }
    return {ids, step.entries, step.batch};
  }

  void run_all(int max_steps = 100000) {
    for (int i = 0; i < max_steps && !scheduler.idle(); ++i) step();
    REQUIRE(scheduler.idle());
    REQUIRE(live_.empty());
    REQUIRE(scheduler.pool().available() == config_.num_blocks);
    REQUIRE_NOTHROW(scheduler.check_invariants());
  }

  const Request& at(uint64_t id) const { return *live_.at(id); }
  bool alive(uint64_t id) const { return live_.contains(id); }
  Ids alive() const {
    Ids ids;
    for (const auto& entry : live_) ids.push_back(entry.first);
    return ids;
  }

  Scheduler scheduler;
  std::map<uint64_t, Outcome> done;

 private:
  void finish(Request* request, FinishReason reason) {
    const uint64_t id = request->id;
    const auto taken = scheduler.remove(request);
    REQUIRE(taken.get() == request);
    const auto output = taken->output();
    done[id] = {{output.begin(), output.end()}, reason, taken->num_cached, taken->preemptions};
    live_.erase(id);
  }

  void copy(const std::vector<StateCopy>& copies) {
    for (const StateCopy& c : copies)
      recurrent_.at(static_cast<size_t>(c.to)) = recurrent_.at(static_cast<size_t>(c.from));
  }

  void check_batch(const Step& step) const {
    const StepBatch& batch = step.batch;
    REQUIRE(batch.rows() <= config_.max_num_batched_tokens);
    REQUIRE(scheduler.num_running() <= config_.max_num_seqs);
    REQUIRE(batch.sequences() == static_cast<int>(step.entries.size()));
    REQUIRE(batch.state_slots.size() == step.entries.size());
    for (size_t i = 0; i < step.entries.size(); ++i) {
      REQUIRE(batch.state_slots[i] == step.entries[i].request->state_slot);
      REQUIRE((batch.state_slots[i] >= 0) == config_.recurrent);
    }
    REQUIRE(batch.block_table.size() == step.entries.size() * batch.max_blocks);
    REQUIRE(batch.positions.size() == batch.token_ids.size());
    size_t longest = 0, logits = 0;
    for (int s = 0; s < batch.sequences(); ++s) {
      const ScheduledRequest& entry = step.entries[s];
      const Request& request = *entry.request;
      longest = std::max(longest, request.blocks.size());
      REQUIRE(batch.seq_start[s + 1] - batch.seq_start[s] == entry.num_tokens);
      REQUIRE(entry.num_tokens > 0);
      REQUIRE(batch.context_len(s) == request.num_computed + entry.num_tokens);
      REQUIRE(batch.context_len(s) < config_.max_model_len);
      for (int row = batch.seq_start[s], p = request.num_computed; row < batch.seq_start[s + 1]; ++row, ++p) {
        REQUIRE(batch.positions[row] == p);
        REQUIRE(batch.token_ids[row] == request.tokens[p]);
      }
      for (int i = 0; i < batch.max_blocks; ++i) {
        const bool used = i < static_cast<int>(request.blocks.size());
        REQUIRE(batch.blocks_of(s)[i] == (used ? request.blocks[i] : -1));
      }
      REQUIRE(entry.needs_logits == (batch.context_len(s) == request.num_tokens()));
      if (entry.needs_logits) REQUIRE(batch.logit_rows[logits++] == batch.seq_start[s + 1] - 1);
    }
    REQUIRE(logits == batch.logit_rows.size());
    REQUIRE(longest == static_cast<size_t>(batch.max_blocks));
  }

  uint64_t& slot(const StepBatch& batch, int s, int position) {
    const int index = position / config_.block_size;
    REQUIRE(index < batch.max_blocks);
    const int32_t block = batch.blocks_of(s)[index];
    REQUIRE(block >= 0);
    return slots_.at(static_cast<size_t>(block) * config_.block_size + position % config_.block_size);
  }

  /// Computes the rows, then checks that every position a sequence attends holds the state of its own prefix.
  std::vector<uint64_t> run(const Step& step) {
    const StepBatch& batch = step.batch;
    std::vector<uint64_t> states(batch.rows());
    for (int s = 0; s < batch.sequences(); ++s) {
      for (int row = batch.seq_start[s]; row < batch.seq_start[s + 1]; ++row) {
        const int p = batch.positions[row];
        states[row] = next_state(p == 0 ? 0 : slot(batch, s, p - 1), batch.token_ids[row], p);
        slot(batch, s, p) = states[row];
      }
    }
    if (config_.recurrent) {
      for (int s = 0; s < batch.sequences(); ++s) {
        uint64_t& state = recurrent_.at(static_cast<size_t>(batch.state_slots[s]));
        if (batch.positions[batch.seq_start[s]] == 0) state = 0;
        for (int row = batch.seq_start[s]; row < batch.seq_start[s + 1]; ++row) {
          state = next_state(state, batch.token_ids[row], batch.positions[row]);
          REQUIRE(state == states[row]);
        }
      }
    }
    for (int s = 0; s < batch.sequences(); ++s) {
      uint64_t state = 0;
      for (int p = 0; p < batch.context_len(s); ++p) {
        state = next_state(state, step.entries[s].request->tokens[p], p);
        REQUIRE(slot(batch, s, p) == state);
      }
    }
    std::vector<uint64_t> out;
    for (int32_t row : batch.logit_rows) out.push_back(states[row]);
    return out;
  }

  SchedulerConfig config_;
  std::vector<uint64_t> slots_;      // [num_blocks * block_size]
  std::vector<uint64_t> recurrent_;  // [max_num_seqs + state_checkpoints]
  std::map<uint64_t, Request*> live_;
  uint64_t last_id_ = 0;
};

SchedulerConfig config(int num_blocks, int block_size, int seqs = 8, int budget = 2048) {
  SchedulerConfig c;
  c.num_blocks = num_blocks;
  c.block_size = block_size;
  c.max_num_seqs = seqs;
  c.max_num_batched_tokens = budget;
  c.max_model_len = 4096;
  return c;
}

std::vector<int32_t> prompt(int length, int32_t flavour = 0) {
  std::vector<int32_t> out(length);
  for (int i = 0; i < length; ++i) out[i] = flavour * 1000 + i;
  return out;
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.status() == Status::InvalidArgument);
    return error.message();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("policy names") {
  CHECK(parse_policy("") == Policy::Fcfs);
  CHECK(parse_policy("fcfs") == Policy::Fcfs);
  CHECK(parse_policy("priority") == Policy::Priority);
  CHECK(parse_policy("lpm") == Policy::Lpm);
  const auto message = message_of([] { parse_policy("FCFS"); });
  CHECK(contains(message, "Unknown scheduling policy: FCFS"));
  CHECK(contains(message, "lpm"));
  CHECK(message_of([] { parse_policy(std::string(100000, 'x')); }).size() < 300);
}

TEST_CASE("limits that cannot work together are refused") {
  auto status = [](const SchedulerConfig& c) {
    try {
      Scheduler scheduler(c);
    } catch (const Error& error) {
      return error.status();
    }
    return Status::Ok;
  };
  CHECK(status(config(4, 16)) == Status::Ok);
  CHECK(status(config(0, 16)) == Status::ModelLoad);
  CHECK(status(config(4, 16, 0)) == Status::ModelLoad);
  CHECK(status(config(4, 16, 8, 7)) == Status::ModelLoad);
  auto c = config(4, 16);
  c.max_model_len = 1;
  CHECK(status(c) == Status::ModelLoad);
  c = config(4, 16);
  c.recurrent = c.prefix_caching = true;
  CHECK(status(c) == Status::ModelLoad);
  c.state_checkpoints = 1;
  CHECK(status(c) == Status::Ok);
}

TEST_CASE("KV-04 a recurrent model continues a cached prefix from the last state that was kept") {
  SchedulerConfig c = config(64, 4, 2);
  c.recurrent = true;
  c.state_checkpoints = 2;
  Simulation sim(c);
  const auto cached = [&](const std::vector<int32_t>& tokens, int64_t output) {
    const auto id = sim.add(tokens, output);
    sim.run_all();
    CHECK(sim.done.at(id).output == solo_run(tokens, output, 4096, 256));
    return sim.done.at(id).num_cached;
  };
  const auto joined = [](std::vector<int32_t> head, const std::vector<int32_t>& tail) {
    head.insert(head.end(), tail.begin(), tail.end());
    return head;
  };
  const auto opening = prompt(12, 1);
  CHECK(cached(joined(opening, prompt(9, 2)), 1) == 0);
  CHECK(cached(joined(opening, prompt(9, 2)), 1) == 20);  // the last border before the end
  // Blocks of the opening are there but no state; the second one to miss leaves it for the third.
  CHECK(cached(joined(opening, prompt(9, 3)), 1) == 0);
  CHECK(cached(joined(opening, prompt(9, 4)), 1) == 12);
  // A conversation goes on from the newest state of its answer.
  const auto question = prompt(6, 5);
  const auto answer = solo_run(question, 12, 4096, 256);
  CHECK(cached(question, 12) == 0);
  CHECK(cached(joined(joined(question, answer), prompt(3, 6)), 1) == 16);
  // Two slots: what was used longest ago is gone.
  CHECK(cached(joined(opening, prompt(9, 2)), 1) == 0);
}

TEST_CASE("a prompt is computed, then one token a step") {
  Simulation sim(config(8, 4));
  const auto id = sim.add(prompt(6), 4);
  const Ran first = sim.step();
  CHECK(first.batch.positions == std::vector<int32_t>{0, 1, 2, 3, 4, 5});
  CHECK(first.batch.logit_rows == std::vector<int32_t>{5});
  CHECK(first.batch.block_table == std::vector<int32_t>{0, 1});
  for (int p = 6; p < 9; ++p) {
    CHECK(sim.step().batch.positions == std::vector<int32_t>{p});
  }
  CHECK(sim.done.at(id).output == solo_run(prompt(6), 4, 4096, 32));
  CHECK(sim.scheduler.idle());
  CHECK(sim.scheduler.schedule().batch.rows() == 0);
}

TEST_CASE("long prompts are cut to the token budget and decodes go first") {
  Simulation sim(config(100, 4, 4, 10));
  const auto a = sim.add(prompt(4, 1), 50);
  const auto b = sim.add(prompt(25, 2), 2);
  Ran step = sim.step();
  CHECK(step.ids == Ids{a, b});
  CHECK(step.entries[1].num_tokens == 6);
  CHECK_FALSE(step.entries[1].needs_logits);
  step = sim.step();
  CHECK(step.entries[0].num_tokens == 1);
  CHECK(step.entries[1].num_tokens == 9);
  step = sim.step();
  CHECK(step.entries[1].num_tokens == 9);
  CHECK_FALSE(step.entries[1].needs_logits);
  step = sim.step();
  CHECK(step.entries[1].num_tokens == 1);
  CHECK(step.entries[1].needs_logits);
  sim.run_all();
}

TEST_CASE("no more than max_num_seqs run, in order of arrival") {
  Simulation sim(config(100, 4, 2));
  for (int i = 0; i < 5; ++i) sim.add(prompt(5, i), 1 + i);
  CHECK(sim.step().ids == Ids{1, 2});
  CHECK(sim.step().ids == Ids{2, 3});
  CHECK(sim.step().ids == Ids{3, 4});
  sim.run_all();
}

TEST_CASE("a request is admitted only when all its known tokens fit, also when computed in chunks") {
  Simulation sim(config(10, 4, 8, 8));
  sim.add(prompt(20, 1), 2);
  sim.add(prompt(24, 2), 2);  // six blocks; five are left
  sim.add(prompt(4, 3), 2);
  CHECK(sim.step().ids == Ids{1});
  CHECK(sim.step().ids == Ids{1});
  CHECK(sim.step().ids == Ids{1});  // with half the budget to spare, and the head blocks the queue
  CHECK(sim.scheduler.num_waiting() == 2);
  sim.run_all();
  for (const auto& [id, outcome] : sim.done) CHECK(outcome.preemptions == 0);
}

TEST_CASE("KV-02 a prompt that can never fit is refused at once with the numbers, the next is served") {
  Simulation sim(config(16, 16));
  const auto message = message_of([&] { sim.add(prompt(300), 10); });
  for (const char* part : {"300", "256", "num_blocks 16", "block_size 16"}) CHECK(contains(message, part));
  CHECK(sim.scheduler.idle());
  const auto next = sim.add(prompt(20), 10);
  sim.run_all();
  CHECK(sim.done.at(next).output == solo_run(prompt(20), 10, 4096, 256));
}

TEST_CASE("KV-02 the pool is usable to its last token") {
  Simulation sim(config(4, 16));
  CHECK(contains(message_of([&] { sim.add(prompt(64), 1); }), "64"));
  const auto id = sim.add(prompt(63), 1);
  sim.run_all();
  CHECK(sim.done.at(id).output.size() == 1);
  CHECK(sim.done.at(id).reason == FinishReason::Length);
}

TEST_CASE("KV-06 a prompt longer than the context is refused with both numbers") {
  auto c = config(64, 16);
  c.max_model_len = 128;
  Simulation sim(c);
  const auto message = message_of([&] { sim.add(prompt(200), 10); });
  for (const char* part : {"context_length_exceeded", "200", "128"}) CHECK(contains(message, part));
  CHECK(contains(message_of([&] { sim.add(prompt(128), 10); }), "context_length_exceeded"));
  CHECK_FALSE(message_of([&] { sim.add({}, 10); }).empty());
  const auto id = sim.add(prompt(100), 100);
  sim.run_all();
  CHECK(sim.done.at(id).output.size() == 28);
  CHECK(sim.done.at(id).reason == FinishReason::Length);
}

TEST_CASE("KV-05 without a token limit output ends where the context ends") {
  auto c = config(64, 16);
  c.max_model_len = 100;
  Simulation sim(c);
  const auto id = sim.add(prompt(30), INT64_MAX);
  sim.run_all();
  CHECK(sim.done.at(id).output == solo_run(prompt(30), INT64_MAX, 100, 1024));
  CHECK(sim.done.at(id).output.size() == 70);
  CHECK(sim.done.at(id).reason == FinishReason::Length);
}

TEST_CASE("a request that is alone and cannot grow is reported, the next one runs") {
  Simulation sim(config(4, 4, 1));
  const auto a = sim.add(prompt(10, 1), 1000);
  const auto b = sim.add(prompt(3, 2), 2);
  sim.run_all(100);
  CHECK(sim.done.at(a).output.size() == 7);  // 16 positions hold 10 + 6 tokens; the 7th needs none
  CHECK(sim.done.at(a).reason == FinishReason::Length);
  CHECK(sim.done.at(a).preemptions == 0);
  CHECK(sim.done.at(b).output.size() == 2);
}

TEST_CASE("a waiting request that outgrew the pool does not block those behind it") {
  Simulation sim(config(4, 4));
  const auto a = sim.add(prompt(10, 1), 1000);
  const auto b = sim.add(prompt(10, 2), 5);
  const_cast<Request&>(sim.at(a)).tokens.resize(18, 7);
  const Ran step = sim.step();
  CHECK(step.ids == Ids{b});
  CHECK(sim.done.at(a).reason == FinishReason::Length);
  sim.run_all();
}

TEST_CASE("stuck requests are reported once, by the schedule that found them") {
  Simulation sim(config(2, 4));
  sim.add(prompt(5), 1000);
  for (int i = 0; i < 4; ++i) sim.step();
  REQUIRE(sim.at(1).num_tokens() == 9);
  CHECK(sim.scheduler.schedule().entries.empty());
  CHECK(sim.scheduler.take_stuck() == std::vector<Request*>{const_cast<Request*>(&sim.at(1))});
  CHECK(sim.scheduler.take_stuck().empty());
  sim.scheduler.schedule();
  sim.cancel(1);
  CHECK(sim.scheduler.take_stuck().empty());  // a removed request is not left behind
}

TEST_CASE("KV-03 sixteen requests that need six times the pool finish with their solo outputs") {
  for (const Policy policy : {Policy::Fcfs, Policy::Priority, Policy::Lpm}) {
    for (const bool caching : {false, true}) {
      CAPTURE(static_cast<int>(policy));
      CAPTURE(caching);
      auto c = config(32, 4, 16, 64);  // 128 tokens; 16 * 48 = 768 are needed
      c.policy = policy;
      c.prefix_caching = caching;
      Simulation sim(c);
      std::map<uint64_t, std::vector<int32_t>> expected;
      for (int i = 0; i < 16; ++i) {
        const auto p = prompt(8 + i % 4, i);
        expected[sim.add(p, 40 - i % 4, i % 3)] = solo_run(p, 40 - i % 4, 4096, 128);
      }
      sim.run_all();
      CHECK(sim.scheduler.preemptions() > 0);
      uint64_t preemptions = 0;
      for (const auto& [id, outcome] : sim.done) {
        CHECK(outcome.output == expected.at(id));
        preemptions += outcome.preemptions;
      }
      CHECK(preemptions == sim.scheduler.preemptions());
      if (policy == Policy::Fcfs) CHECK(sim.done.at(1).preemptions == 0);
    }
  }
}

TEST_CASE("KV-04 output with the prefix cache equals output without it") {
  for (const int length : {15, 16, 17, 32, 160}) {
    CAPTURE(length);
    const auto expected = solo_run(prompt(length), 20, 4096, 100000);
    Simulation sim(config(64, 16));
    for (int round = 0; round < 3; ++round) {
      const auto id = sim.add(prompt(length), 20);
      sim.run_all();
      CHECK(sim.done.at(id).output == expected);
      // The block that holds the end of the prompt is copied from 8 tokens on.
      const int part = (length - 1) % 16, cached = length - 1 - (part < 8 ? part : 0);
      CHECK(sim.done.at(id).num_cached == (round == 0 ? 0 : cached));
    }
  }
}

TEST_CASE("requests that run together share the blocks of a common prefix") {
  Simulation sim(config(64, 4));
  const auto a = sim.add(prompt(17), 10);
  sim.step();
  const auto b = sim.add(prompt(17), 10);
  sim.step();
  CHECK(sim.at(b).num_cached == 16);
  for (int i = 0; i < 4; ++i) CHECK(sim.at(a).blocks[i] == sim.at(b).blocks[i]);
  CHECK(sim.at(a).blocks[4] != sim.at(b).blocks[4]);
  sim.run_all();
  CHECK(sim.done.at(a).output == sim.done.at(b).output);
}

TEST_CASE("a request goes on in a copy of the block that another one filled otherwise") {
  Simulation sim(config(40, 16));
  const auto with = [](int shared, int length, int32_t flavour) {
    auto tokens = prompt(shared);
    const auto rest = prompt(length - shared, flavour);
    tokens.insert(tokens.end(), rest.begin(), rest.end());
    return tokens;
  };
  const auto cached = [&](const std::vector<int32_t>& tokens) {
    const auto id = sim.add(tokens, 20);
    sim.run_all();
    CHECK(sim.done.at(id).output == solo_run(tokens, 20, 4096, 640));
    return sim.done.at(id).num_cached;
  };
  CHECK(cached(with(48, 48, 0)) == 0);
  CHECK(cached(with(45, 50, 1)) == 45);
  CHECK(cached(with(40, 50, 2)) == 40);
  CHECK(cached(with(39, 50, 3)) == 32);  // 7 tokens are not worth a copy
  CHECK(cached(with(9, 40, 4)) == 9);
  CHECK(cached(with(48, 60, 5)) == 48);
  CHECK(cached(with(12, 12, 0)) == 11);  // the last token is always computed
}

TEST_CASE("a conversation goes on where it was, inside a block") {
  Simulation sim(config(12, 16));
  auto tokens = prompt(25);
  // Computed are 44 tokens, then 69, then 94, of which 69 are 5 beyond a border: not worth a copy.
  for (const int cached : {0, 44, 64, 94}) {
    const auto answer = solo_run(tokens, 20, 4096, 192);
    const auto id = sim.add(tokens, 20);
    sim.run_all();
    CHECK(sim.done.at(id).output == answer);
    CHECK(sim.done.at(id).num_cached == cached);
    tokens.insert(tokens.end(), answer.begin(), answer.end());
    tokens.insert(tokens.end(), {7, 7, 7, 7, 7});
  }
}

TEST_CASE("only computed tokens are published") {
  Simulation sim(config(64, 4, 4, 6));
  sim.add(prompt(20), 10);
  CHECK(sim.scheduler.schedule().batch.rows() == 6);
  CHECK(sim.scheduler.pool().num_cached() == 0);
  sim.step();  // the same rows again: nothing was committed
  CHECK(sim.at(1).num_computed == 6);
  CHECK(sim.scheduler.pool().num_cached() == 1);
  sim.step();
  CHECK(sim.scheduler.pool().num_cached() == 3);
}

TEST_CASE("a preempted request resumes from its own blocks and keeps the first count of cached tokens") {
  Simulation sim(config(8, 4, 2));
  const auto a = sim.add(prompt(12, 1), 12);
  const auto b = sim.add(prompt(12, 2), 12);
  sim.run_all();
  CHECK(sim.done.at(a).preemptions == 0);
  CHECK(sim.done.at(b).preemptions == 1);
  CHECK(sim.done.at(b).num_cached == 0);
  CHECK(sim.done.at(b).output == solo_run(prompt(12, 2), 12, 4096, 32));
}

TEST_CASE("fcfs preempts the request admitted last and lets it resume before later ones") {
  Simulation sim(config(6, 4, 3));
  sim.add(prompt(8, 1), 12);
  sim.add(prompt(8, 2), 12);
  sim.add(prompt(4, 3), 2);
  CHECK(sim.step().ids == Ids{1, 2, 3});
  // 2 + 2 + 1 blocks are held: request 1 takes the sixth, request 2 finds none and request 3 has to go.
  CHECK(sim.step().ids == Ids{1, 2});
  CHECK(sim.at(3).preemptions == 1);
  CHECK(sim.at(3).num_output() == 1);
  sim.run_all();
  CHECK(sim.done.at(1).preemptions == 0);
}

TEST_CASE("priority runs lower values first and preempts the highest") {
  auto c = config(5, 4, 3);
  c.policy = Policy::Priority;
  Simulation sim(c);
  sim.add(prompt(7, 1), 12, 5);
  sim.add(prompt(4, 2), 3, -1);
  sim.add(prompt(7, 3), 4, 5);
  // In order of (priority, id); all five blocks are held.
  CHECK(sim.step().ids == Ids{2, 1, 3});
  // Request 2 needs a block: of the two with priority 5 the later one loses its own.
  CHECK(sim.step().ids == Ids{2, 1});
  CHECK(sim.at(3).preemptions == 1);
  sim.run_all();
  CHECK(sim.done.at(2).preemptions == 0);
}

TEST_CASE("a priority victim that was already planned gives its tokens back") {
  auto c = config(5, 4, 3, 3);
  c.policy = Policy::Priority;
  Simulation sim(c);
  const auto low = sim.add(prompt(5, 1), 20, 9);
  sim.step();
  sim.step();
  const auto high = sim.add(prompt(3, 2), 8, 0);
  const auto middle = sim.add(prompt(8, 3), 8, 5);
  CHECK(sim.step().ids == Ids{low, high});
  CHECK(sim.step().ids == Ids{low, high, middle});
  CHECK(sim.step().ids == Ids{low, high, middle});
  // low takes the last block, then high needs one: low goes, and its row of the three goes to middle.
  const Ran ran = sim.step();
  CHECK(ran.ids == Ids{high, middle});
  CHECK(ran.entries[1].num_tokens == 2);
  CHECK(sim.at(low).preemptions == 1);
  sim.run_all();
  CHECK(sim.done.at(high).preemptions == 0);
  CHECK(sim.done.at(low).output == solo_run(prompt(5, 1), 20, 4096, 20));
}

TEST_CASE("lpm admits the longest cached prefix first, ties in order of arrival") {
  auto c = config(256, 4, 1);
  c.policy = Policy::Lpm;
  Simulation sim(c);
  sim.add(prompt(64, 1), 1);
  sim.run_all();
  sim.add(prompt(40, 2), 1);
  sim.add(prompt(40, 3), 1);
  sim.add(prompt(48, 1), 1);  // 44 tokens are cached
  sim.add(prompt(64, 1), 1);  // 60 tokens are cached
  Ids order;
  while (!sim.scheduler.idle()) {
    for (uint64_t id : sim.step().ids) order.push_back(id);
  }
  CHECK(order == Ids{5, 4, 2, 3});
}

TEST_CASE("lpm puts requests with the same uncached opening behind the first of them") {
  auto c = config(256, 4, 1);
  c.policy = Policy::Lpm;
  Simulation sim(c);
  sim.add(prompt(40, 1), 1);
  sim.add(prompt(36, 1), 1);
  sim.add(prompt(40, 2), 1);
  sim.add(prompt(31, 3), 1);
  sim.add(prompt(31, 3), 1);  // too short an opening to wait for
  const Ran first = sim.step();
  CHECK(first.ids == Ids{1});
  Ids order;
  while (!sim.scheduler.idle()) {
    for (uint64_t id : sim.step().ids) order.push_back(id);
  }
  // Once the opening is cached, request 2 has the longest match; 5 finds what 4 left.
  CHECK(order == Ids{2, 3, 4, 5});
  CHECK(sim.done.at(2).num_cached == 32);

  Simulation both(c = [&] {
    auto two = c;
    two.max_num_seqs = 2;
    return two;
  }());
  both.add(prompt(40, 1), 1);
  both.add(prompt(36, 1), 1);
  both.add(prompt(40, 2), 1);
  CHECK(both.step().ids == Ids{1, 3});
}

TEST_CASE("lpm falls back to order of arrival for long queues and without prefix caching") {
  auto c = config(256, 4, 1);
  c.policy = Policy::Lpm;
  for (const bool long_queue : {true, false}) {
    CAPTURE(long_queue);
    c.prefix_caching = long_queue;
    Simulation sim(c);
    sim.add(prompt(64, 1), 1);
    sim.run_all();
    const int fillers = long_queue ? 128 : 3;
    for (int i = 0; i < fillers; ++i) sim.add(prompt(5, 2 + i), 1);
    const auto cached = sim.add(prompt(64, 1), 1);
    CHECK(sim.step().ids == Ids{2});
    if (long_queue) CHECK(sim.step().ids == Ids{cached});  // 128 are left
    sim.run_all();
  }
}

TEST_CASE("requests are removed at any time and their blocks come back") {
  Simulation sim(config(64, 4, 2));
  for (int i = 0; i < 4; ++i) sim.add(prompt(9, i), 20);
  sim.step();
  sim.cancel(4);                     // waiting
  sim.step([&] { sim.cancel(1); });  // between schedule and commit
  CHECK(sim.done.at(1).output.size() == 1);
  sim.cancel(2);  // running
  Request stranger;
  CHECK(sim.scheduler.remove(&stranger) == nullptr);
  sim.run_all();
  CHECK(sim.done.at(3).output == solo_run(prompt(9, 2), 20, 4096, 256));
}

TEST_CASE("a prompt's length costs nothing while it cannot be admitted") {
  // Many blocked steps with long prompts: the look-up hashes each block once.
  Simulation sim(config(300, 4, 4));
  sim.add(prompt(1000, 1), 60);
  const auto blocked = sim.add(prompt(1100, 2), 1);
  sim.step();
  const auto hashed = sim.at(blocked).block_hashes.size();
  for (int i = 0; i < 20; ++i) sim.step();
  CHECK(sim.at(blocked).block_hashes.size() == hashed);
  sim.run_all();
}

TEST_CASE("KV-03 random workloads over tiny pools finish, equal their solo runs and return every block") {
  int64_t preemptions = 0, hits = 0, cut = 0, cancelled = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
    SchedulerConfig c = config(3 + below(20), 1 + below(5), 1 + below(6));
    c.max_num_batched_tokens = c.max_num_seqs + below(20);
    c.policy = static_cast<Policy>(below(3));
    c.prefix_caching = c.policy == Policy::Lpm || below(4) != 0;
    c.max_model_len = below(3) ? 4096 : 10 + below(40);
    c.recurrent = seed % 2 == 0;
    if (c.recurrent) c.state_checkpoints = 1 + static_cast<int>(seed % 5);
    const int pool_tokens = c.num_blocks * c.block_size;
    Simulation sim(c);
    std::map<uint64_t, std::vector<int32_t>> expected;

    const int total = 5 + below(25);
    int added = 0;
    for (int guard = 0; guard < 20000 && (added < total || !sim.scheduler.idle()); ++guard) {
      while (added < total && below(3)) {
        ++added;
        std::vector<int32_t> tokens = prompt(1 + below(pool_tokens), below(3));
        if (below(2)) tokens.back() = below(5);
        const int64_t max_output = 1 + below(30);
        const bool fits = static_cast<int>(tokens.size()) < std::min(pool_tokens, c.max_model_len);
        if (!fits) {
          REQUIRE_THROWS_AS(sim.add(tokens, max_output), Error);
          continue;
        }
        expected[sim.add(tokens, max_output, below(3))] =
            solo_run(tokens, max_output, c.max_model_len, pool_tokens);
      }
      auto cancel_one = [&] {
        const auto alive = sim.alive();
        if (alive.empty() || below(25)) return;
        sim.cancel(alive[below(static_cast<int>(alive.size()))]);
        ++cancelled;
      };
      cancel_one();
      sim.step(cancel_one);
    }
    sim.run_all(0);
    REQUIRE(sim.done.size() == expected.size());
    for (const auto& [id, outcome] : sim.done) {
      CAPTURE(id);
      const auto& solo = expected.at(id);
      if (outcome.reason == FinishReason::Abort) {
        REQUIRE(outcome.output.size() <= solo.size());
        REQUIRE(std::equal(outcome.output.begin(), outcome.output.end(), solo.begin()));
      } else {
        REQUIRE(outcome.output == solo);
      }
      preemptions += outcome.preemptions;
      hits += outcome.num_cached;
      cut += static_cast<int64_t>(solo.size());
    }
  }
  // The workloads are worth something only when they reach these paths.
  CHECK(preemptions > 200);
  CHECK(hits > 1000);
  CHECK(cut > 1000);
  CHECK(cancelled > 100);
}

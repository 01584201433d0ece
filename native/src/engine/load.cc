// From settings to a running engine.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <future>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "device/cpu/machine.h"
#include "device/tracing_device.h"
#include "engine/engine.h"
#include "engine/self_test.h"
#include "weights/fields.h"

namespace vllm {
namespace {

constexpr int kCheckpointsPerSequence = 4;     // of recurrent state, where memory allows
constexpr size_t kLongLoad = size_t{2} << 30;  // bytes of weights from which a load is announced

/// Mixtures of experts get more, for a row meets few of their weights.
int default_batched_tokens(const ModelSpec& spec, int sequences) {
  if (spec.experts.count == 0) return 2048;
  return sequences < 32 ? 4096 : 8192;
}

const char* name_of(KvFormat format) {
  return format == KvFormat::F32 ? "f32" : format == KvFormat::Q8_0 ? "q8_0" : "bf16";
}

void check_config(const EngineConfig& config) {
  if (config.block_size < 16 || config.block_size % 16 != 0 || config.block_size > 1024)
    fail_load("block_size is %d, needed is a multiple of 16 up to 1024", config.block_size);
  if (config.max_num_seqs < 1 || config.max_num_seqs > 4096)
    fail_load("max_num_seqs is %d, needed is 1 to 4096", config.max_num_seqs);
  if (config.max_num_batched_tokens > 0 && config.max_num_batched_tokens < config.max_num_seqs)
    fail_load("max_num_batched_tokens is %d, needed is at least max_num_seqs (%d)",
              config.max_num_batched_tokens, config.max_num_seqs);
}

/// End-of-generation ids of the tokenizer, config.json and generation_config.json.
std::vector<int32_t> collect_end_ids(const Checkpoint& checkpoint, const Tokenizer& tokenizer, int vocab) {
  std::vector<int32_t> ids = tokenizer.end_ids();
  const auto add = [&](const Json& object, const std::string& source) {
    for (int64_t id : Fields(object, source).integers("eos_token_id", 0, vocab - 1))
      ids.push_back(static_cast<int32_t>(id));
  };
  if (!checkpoint.is_gguf()) {
    add(checkpoint.config(), checkpoint.path() + "/config.json");
    const std::string path = checkpoint.path() + "/generation_config.json";
    if (std::filesystem::exists(path))
      add(parse_json(read_text_file(path), path.c_str(), Status::ModelLoad), path);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

/// Recurrent state of a model: a slot for each sequence and, where prefixes are cached, others for states to
/// continue from; no layers when it has none. `available` bytes are free, `buffer` in one buffer.
StateCacheSpec plan_states(const EngineConfig& config, const Model& model, size_t available, size_t buffer) {
  StateCacheSpec states{model.state_layers(), config.max_num_seqs};
  if (states.layers.empty()) return states;
  const auto of_memory = static_cast<int64_t>(available / states.slot_bytes()),
             of_buffer = static_cast<int64_t>(buffer / states.largest_part_bytes()),
             fitting = std::min(of_memory, of_buffer);
  const bool caching = config.prefix_caching == Tristate::On;
  const int64_t needed = states.slots + (caching ? 1 : 0);
  if (fitting < needed) {
    const auto megabytes = [](size_t bytes, int64_t count) {
      return static_cast<double>(bytes) * static_cast<double>(count) / 1e6;
    };
    const std::string shortage =
        of_memory < needed ? format("needs %.0f MB (%.1f MB each) and %.0f MB are free",
                                    megabytes(states.slot_bytes(), needed), megabytes(states.slot_bytes(), 1),
                                    megabytes(available, 1))
                           : format("needs %.0f MB for a layer and the device has %.0f MB in one buffer",
                                    megabytes(states.largest_part_bytes(), needed), megabytes(buffer, 1));
    fail_load("the recurrent state of %d sequences%s %s: max_num_seqs up to %lld would fit", states.slots,
              caching ? " and a copy for prefix caching" : "", shortage.c_str(),
              static_cast<long long>(std::max<int64_t>(0, fitting - (caching ? 1 : 0))));
  }
  if (caching)
    states.slots += static_cast<int>(std::clamp<int64_t>((fitting - states.slots) / 4, 1,
                                                         int64_t{kCheckpointsPerSequence} * states.slots));
  return states;
}

/// Blocks of the KV pool: as asked for, or from memory: half of `planned`, or more of it where one full
/// context needs that, and at most one full context a sequence. `available` bytes are free; `planned` of them
/// are within the engine's share. One buffer holds the keys of a layer for up to `of_buffer` blocks.
int64_t choose_num_blocks(const EngineConfig& config, const KvCacheSpec& kv, int context, size_t available,
                          size_t planned, int64_t of_buffer) {
  const auto block_bytes = static_cast<int64_t>(kv.block_bytes());
  const auto of_memory = static_cast<int64_t>(available) / block_bytes,
             fitting = std::min(of_memory, of_buffer);
  if (config.num_blocks > 0) {
    if (config.num_blocks > of_memory)
      fail_load(
          "the KV pool of %d blocks needs %.0f MB and %.0f MB are free: num_blocks up to %lld would fit",
          config.num_blocks, static_cast<double>(config.num_blocks * block_bytes) / 1e6,
          static_cast<double>(available) / 1e6, static_cast<long long>(fitting));
    if (config.num_blocks > of_buffer)
      fail_load(
          "the KV pool of %d blocks needs %.0f MB for the keys of a layer, more than the device has in one "
          "buffer: num_blocks up to %lld would fit",
          config.num_blocks, static_cast<double>(kv.largest_part_bytes()) * config.num_blocks / 1e6,
          static_cast<long long>(fitting));
    return config.num_blocks;
  }
  if (config.kv_cache_memory_bytes > 0) {
    const int64_t blocks = config.kv_cache_memory_bytes / block_bytes;
    if (blocks < 1)
      fail_argument("kv_cache_memory_bytes is %lld, needed are at least the %lld bytes of one block",
                    static_cast<long long>(config.kv_cache_memory_bytes),
                    static_cast<long long>(block_bytes));
    if (blocks > of_memory)
      fail_load("kv_cache_memory_bytes is %lld, needed are at most the %lld bytes that are free",
                static_cast<long long>(config.kv_cache_memory_bytes), static_cast<long long>(available));
    if (blocks > of_buffer)
      fail_load(
          "kv_cache_memory_bytes is %lld, needed are at most %lld, for the device has the keys of a layer in "
          "one buffer",
          static_cast<long long>(config.kv_cache_memory_bytes),
          static_cast<long long>(of_buffer * block_bytes));
    return blocks;
  }
  const auto affordable = static_cast<int64_t>(planned) / block_bytes;
  const int64_t one_context = (static_cast<int64_t>(context) + config.block_size - 1) / config.block_size;
  const int64_t wanted = config.max_num_seqs * one_context;
  const int64_t blocks =
      std::min({wanted, std::max(affordable / 2, std::min(one_context, affordable)), of_buffer});
  if (blocks < 1)
    fail_load(
        "one KV block needs %.3f MB and %.3f MB are left of %.3g of the free memory "
        "(gpu_memory_utilization)",
        static_cast<double>(block_bytes) / 1e6, static_cast<double>(planned) / 1e6, config.memory_share);
  return blocks;
}

/// The longest sequence: what was asked for, lowered to what the pool holds, or refused.
int choose_context(const EngineConfig& config, int wanted, int64_t num_blocks, size_t block_bytes,
                   std::vector<std::string>& warnings) {
  const int64_t usable = num_blocks * config.block_size;
  if (usable >= wanted) return wanted;
  const int64_t needed = (static_cast<int64_t>(wanted) + config.block_size - 1) / config.block_size;
  const std::string numbers = format(
      "the KV pool holds %lld tokens (%lld blocks of %d) and the context is %d tokens, which needs "
      "num_blocks %lld "
      "(%.1f KB a token)",
      static_cast<long long>(usable), static_cast<long long>(num_blocks), config.block_size, wanted,
      static_cast<long long>(needed), static_cast<double>(block_bytes) / config.block_size / 1e3);
  if (config.max_model_len > 0 && !config.clip_max_model_len)
    fail_load("max_model_len does not fit: %s", numbers.c_str());
  warnings.push_back(
      format("%s: the context is lowered to %lld tokens", numbers.c_str(), static_cast<long long>(usable)));
  return static_cast<int>(usable);
}

/// Everything that is settled before memory is taken.
struct Layout {
  StateCacheSpec states;
  KvCacheSpec kv;
  SchedulerConfig schedule;
  LoadPlan plan;
};

/// `free_bytes` are free beside the weights of the model, `buffer` in one buffer.
Layout plan_layout(const EngineConfig& config, const Model& model, size_t free_bytes, size_t buffer) {
  const ModelSpec& spec = model.spec();
  const int wanted = config.max_model_len > 0 ? config.max_model_len : spec.max_position;
  const int budget = config.max_num_batched_tokens > 0
                         ? config.max_num_batched_tokens
                         : std::max(default_batched_tokens(spec, config.max_num_seqs), config.max_num_seqs);
  // Never more than all sequences hold.
  const int64_t most_rows = std::max<int64_t>(
      config.max_num_seqs, std::min<int64_t>(budget, static_cast<int64_t>(wanted) * config.max_num_seqs));
  const size_t workspace = model.workspace_bytes(static_cast<int>(most_rows), config.max_num_seqs);
  const size_t weights = model.weight_bytes();
  const auto share = static_cast<size_t>(config.memory_share * static_cast<double>(free_bytes + weights));
  const auto beyond = [](size_t bytes, size_t taken) { return bytes > taken ? bytes - taken : 0; };
  Layout out;
  StateCacheSpec& states = out.states;
  states = plan_states(config, model, beyond(free_bytes, workspace), buffer);
  const size_t taken = workspace + states.slot_bytes() * static_cast<size_t>(states.slots);
  KvCacheSpec& kv = out.kv;
  kv.layers = model.kv_layers();
  kv.block_size = config.block_size;
  kv.format = config.kv_format;
  const auto of_buffer = static_cast<int64_t>(std::min(buffer / kv.largest_part_bytes(), size_t{1} << 30));
  kv.num_blocks = static_cast<int>(choose_num_blocks(config, kv, wanted, beyond(free_bytes, taken),
                                                     beyond(share, weights + taken), of_buffer));
  LoadPlan& plan = out.plan;
  SchedulerConfig& schedule = out.schedule;
  schedule.block_size = config.block_size;
  schedule.num_blocks = kv.num_blocks;
  schedule.max_model_len = choose_context(config, wanted, kv.num_blocks, kv.block_bytes(), plan.warnings);
  if (schedule.max_model_len > spec.max_position)
    plan.warnings.push_back(format(
        "the context is %d tokens and the model was made for %d: answers beyond those are likely to be "
        "wrong, so set max_model_len or context_size to no more",
        schedule.max_model_len, spec.max_position));
  schedule.max_num_seqs = config.max_num_seqs;
  schedule.max_num_batched_tokens = static_cast<int>(std::max<int64_t>(
      config.max_num_seqs,
      std::min<int64_t>(budget, static_cast<int64_t>(schedule.max_model_len) * config.max_num_seqs)));
  schedule.policy = config.policy;
  schedule.recurrent = !states.layers.empty();
  schedule.state_checkpoints = states.slots - config.max_num_seqs;
  schedule.prefix_caching =
      schedule.recurrent ? config.prefix_caching == Tristate::On : config.prefix_caching != Tristate::Off;

  plan.available = free_bytes + weights;
  plan.budget = share;
  plan.memory = {weights, kv.block_bytes() * static_cast<size_t>(kv.num_blocks),
                 states.slot_bytes() * static_cast<size_t>(states.slots), workspace};
  plan.kv_bytes_per_token = static_cast<double>(kv.block_bytes()) / kv.block_size;
  plan.state_bytes_per_sequence = states.slot_bytes();
  plan.model_context = spec.max_position;
  if (config.threads <= 0)
    plan.chosen.push_back({"threads", cpu::physical_cores(), "one for each physical core"});
  if (config.max_model_len <= 0)
    plan.chosen.push_back({"max_model_len", schedule.max_model_len,
                           schedule.max_model_len < wanted ? "what the KV pool holds" : "the model's own"});
  if (config.num_blocks <= 0 && config.kv_cache_memory_bytes <= 0)
    plan.chosen.push_back(
        {"num_blocks", kv.num_blocks,
         kv.num_blocks == of_buffer
             ? "what one buffer of the device holds of a layer's keys"
             : format("from the %.2f GB of free memory", static_cast<double>(plan.available) / 1e9)});
  return out;
}

/// A device that does not compute as the CPU does, or has too little memory for the weights.
class UnfitDevice : public Error {
  using Error::Error;
};

/// Refuses a model whose weights alone are more than there is, before the long work begins.
void check_weights_fit(const Model& model, const Checkpoint& checkpoint, const Device& device) {
  const size_t available = device.available_memory();
  if (model.weight_bytes() <= available) return;
  const std::string message = format(
      "the weights (%s, %s) need %.2f GB of memory and %.2f GB are free on %s: take a file of fewer bits a "
      "weight, end what else uses the memory%s.",
      model.spec().architecture.c_str(), checkpoint.format_summary().c_str(),
      static_cast<double>(model.weight_bytes()) / 1e9, static_cast<double>(available) / 1e9,
      device.description().c_str(), device.is_cpu() ? "" : ", or set device to cpu");
  throw UnfitDevice(Status::ModelLoad, message);
}

void log_load(const EngineInfo& info, const LoadPlan& plan, int state_checkpoints, double seconds) {
  for (const std::string& warning : plan.warnings) log_warning("%s", warning.c_str());
  log_info("%s %s: %s, %zu tensors (%s), fingerprint %s, on %s, in %.2f s",
           info.plan_only ? "planned" : "loaded", info.model_path.c_str(), info.architecture.c_str(),
           info.num_tensors, info.formats.c_str(), info.fingerprint.c_str(), info.device.c_str(), seconds);
  log_info(
      "context %d tokens, KV pool %d blocks of %d tokens (%.0f MB, %.1f KB a token), up to %d sequences and "
      "%d tokens "
      "a step, prefix caching %s",
      info.max_model_len, info.num_blocks, info.block_size, static_cast<double>(plan.memory.kv_cache) / 1e6,
      plan.kv_bytes_per_token / 1e3, info.max_num_seqs, info.max_num_batched_tokens,
      info.prefix_caching ? "on" : "off");
  if (plan.memory.states > 0)
    log_info("recurrent state %.0f MB, %.2f MB a sequence, %d states kept for cached prefixes",
             static_cast<double>(plan.memory.states) / 1e6,
             static_cast<double>(plan.state_bytes_per_sequence) / 1e6, state_checkpoints);
  std::string chosen;
  for (const Choice& choice : plan.chosen)
    chosen += format("%s%s %d, %s", chosen.empty() ? "" : "; ", choice.setting.c_str(), choice.value,
                     choice.reason.c_str());
  if (!chosen.empty())
    log_info("chosen automatically: %s (each is changed by the setting of its name)", chosen.c_str());
}

/// One row through the whole model: a load that succeeds has computed on its device.
void compute_one_row(Model& model, KvCache& cache, StateCache* states, const Device& device) {
  StepBatch batch;
  batch.token_ids = {0};
  batch.positions = {0};
  batch.seq_start = {0, 1};
  batch.block_table = {0};
  batch.max_blocks = 1;
  batch.state_slots = {0};
  batch.logit_rows = {0};
  model.forward(batch, cache, states);
  const std::span<const float> logits = model.logits(0);
  const auto first = std::find_if(logits.begin(), logits.end(), [](float v) { return !std::isfinite(v); });
  if (first != logits.end() && !device.is_cpu())
    fail_load("The first step on %s gave %g as logit %lld.", device.description().c_str(),
              static_cast<double>(*first), static_cast<long long>(first - logits.begin()));
}

/// Throws UnfitDevice, unless the device is the CPU.
void test_device(const Checkpoint& checkpoint, Model& model, KvCache& cache, StateCache* states,
                 Device& device, int threads) {
  if (device.is_cpu()) return compute_one_row(model, cache, states, device);
  try {
    self_test(checkpoint, model, cache.spec.format, cache.spec.block_size, device, *make_cpu_device(threads));
    compute_one_row(model, cache, states, device);
  } catch (const Error& error) {
    throw UnfitDevice(error.status(), error.message());
  }
}

}  // namespace

std::unique_ptr<Engine> Engine::load(const EngineConfig& config) {
  check_config(config);
  auto device = make_device(config.device, config.threads);
  const bool replaceable = config.device == "auto" && !device->is_cpu();
  try {
    return load_on(std::move(device), config);
  } catch (const Error& error) {
    const bool unfit =
        dynamic_cast<const UnfitDevice*>(&error) != nullptr || error.status() == Status::Runtime;
    if (!replaceable || !unfit) throw;  // what is wrong with a file is so on every device
    log_warning("%s The CPU is used instead.", error.what());
  }
  return load_on(make_cpu_device(config.threads), config);
}

std::unique_ptr<Engine> Engine::load_on(std::unique_ptr<Device> device, const EngineConfig& config) {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_ptr<Engine> engine(new Engine());
  engine->device_ = std::move(device);
  engine->checkpoint_ = Checkpoint::open(config.model_path);
  const Checkpoint* checkpoint = engine->checkpoint_.get();
  if (config.step_trace) {
    auto tracing = make_tracing_device(std::move(engine->device_));
    engine->tracing_ = tracing.get();
    engine->device_ = std::move(tracing);
  }
  // Beside the weights, whose packing waits for memory more than it computes.
  auto tokenizer = std::async(std::launch::async, [checkpoint] { return load_tokenizer(*checkpoint); });
  engine->model_ = Model::open(*checkpoint, *engine->device_, config.max_model_len);
  Model& model = *engine->model_;
  const size_t available = engine->device_->available_memory(), buffer = engine->device_->largest_buffer();
  check_weights_fit(model, *checkpoint, *engine->device_);
  Layout layout = plan_layout(config, model, available - model.weight_bytes(), buffer);
  if (!config.plan_only) {
    if (model.weight_bytes() >= kLongLoad)
      log_info("loading %.2f GB of weights, %.2f GB of memory are free",
               static_cast<double>(model.weight_bytes()) / 1e9, static_cast<double>(available) / 1e9);
    model.pack(*checkpoint);
    layout = plan_layout(config, model, engine->device_->available_memory(), buffer);
  }
  engine->tokenizer_ = tokenizer.get();
  const ModelSpec& spec = model.spec();
  engine->end_ids_ = collect_end_ids(*checkpoint, *engine->tokenizer_, spec.vocab);
  const SchedulerConfig& schedule = layout.schedule;

  EngineInfo& info = engine->info_;
  info.model_path = config.model_path;
  info.architecture = spec.architecture;
  info.formats = checkpoint->format_summary();
  info.fingerprint = checkpoint->fingerprint();
  info.num_tensors = checkpoint->weights().size();
  info.device = engine->device_->description();
  info.max_model_len = schedule.max_model_len;
  info.vocab_size = spec.vocab;
  info.block_size = schedule.block_size;
  info.num_blocks = schedule.num_blocks;
  info.max_num_seqs = schedule.max_num_seqs;
  info.max_num_batched_tokens = schedule.max_num_batched_tokens;
  info.prefix_caching = schedule.prefix_caching;
  info.threads = config.threads > 0 ? config.threads : cpu::physical_cores();
  info.kv_cache_dtype = name_of(config.kv_format);
  // Without cached prefixes there is no longest one.
  info.scheduling_policy =
      policy_name(config.policy == Policy::Lpm && !schedule.prefix_caching ? Policy::Fcfs : config.policy);
  info.jump_forward = config.jump_forward;
  info.plan_only = config.plan_only;
  engine->plan_ = layout.plan;

  if (!config.plan_only) {
    engine->kv_cache_ = engine->device_->make_kv_cache(layout.kv);
    if (!layout.states.layers.empty())
      engine->state_cache_ = engine->device_->make_state_cache(layout.states);
    test_device(*checkpoint, model, *engine->kv_cache_, engine->state_cache_.get(), *engine->device_,
                config.threads);
    engine->scheduler_ = std::make_unique<Scheduler>(schedule);
    engine->sampler_ = std::make_unique<Sampler>(
        spec.vocab, std::min(spec.vocab, engine->tokenizer_->vocab_size()), engine->end_ids_);
    engine->jump_forward_ = config.jump_forward;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  log_load(info, engine->plan_, schedule.state_checkpoints, seconds.count());
  if (config.plan_only) return engine;
  if (engine->tracing_ != nullptr) engine->tracing_->take_report();  // of the row above
  engine->publish_metrics();
  engine->thread_ = std::thread([raw = engine.get()] { raw->run(); });
  return engine;
}

}  // namespace vllm

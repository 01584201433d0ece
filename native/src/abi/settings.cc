#include "abi/settings.h"

#include <cstdlib>
#include <filesystem>

#include "base/crash_report.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/documents.h"
#include "serve/json_fields.h"

namespace vllm::abi {
namespace {

std::string_view text(const char* s) { return s != nullptr ? s : ""; }

Tristate tristate(const char* name, int32_t value) {
  if (value < 0 || value > 2) fail_argument("%s is %d, needed is 0 (defer), 1 (on) or 2 (off)", name, value);
  return static_cast<Tristate>(value);
}

std::optional<bool> environment_switch(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string_view(value) != "0";
}

}  // namespace

EngineConfig engine_config(const vllm_model_params& params) {
  EngineConfig config;
  config.policy = parse_policy(text(params.scheduling_policy));
  const bool speculation = check_speculative_config(text(params.speculative_config));
  const bool transfer = check_kv_transfer_config(text(params.kv_transfer_config));
  const bool offload = check_offload_config(text(params.offload_config));
  check_limit_mm_per_prompt(text(params.limit_mm_per_prompt));
  config.prefix_caching = tristate("enable_prefix_caching", params.enable_prefix_caching);
  config.jump_forward = tristate("enable_jump_forward", params.enable_jump_forward) == Tristate::On;
  config.jump_forward = environment_switch("VT_ENABLE_JUMP_FORWARD").value_or(config.jump_forward);
  config.step_trace = environment_switch("VLLM_STEP_TRACE").value_or(false);
  if (params.device < 0 || params.device > 2)
    fail_argument("device is %d, needed is 0 (auto), 1 (CPU) or 2 (CUDA)", params.device);

  if (!(params.gpu_memory_utilization <= 1))
    fail_argument("gpu_memory_utilization is %g, needed is a number above 0 and up to 1, or 0 for %g",
                  params.gpu_memory_utilization, config.memory_share);

  // Good values from here on; what follows depends on the build.
  if (speculation) fail_load("speculative_config: speculative decoding is not in this build");
  if (transfer) fail_load("kv_transfer_config: KV connectors are not in this build");
  if (offload) log_warning("offload_config: nothing is offloaded in this build");
  const std::string template_path(text(params.tokenizer_config_path));
  std::error_code error;  // a name that no file can have
  if (!template_path.empty() && !std::filesystem::exists(template_path, error))
    fail_load("tokenizer_config_path: there is no file %s", quote(template_path, 4096).c_str());

  config.model_path = params.model_path;
  config.device = params.device == 1 ? "cpu" : params.device == 2 ? "cuda" : "auto";
  if (params.block_size > 0) config.block_size = params.block_size;
  config.num_blocks = params.num_blocks;
  config.max_model_len = params.max_model_len;
  if (params.max_num_seqs > 0) config.max_num_seqs = params.max_num_seqs;
  config.max_num_batched_tokens = params.max_num_batched_tokens;
  config.kv_cache_memory_bytes = params.kv_cache_memory_bytes;
  if (params.gpu_memory_utilization > 0) config.memory_share = params.gpu_memory_utilization;
  return config;
}

void apply_settings(std::string_view settings_json, EngineConfig& config) {
  config.clip_max_model_len = false;
  if (settings_json.empty()) return;
  const Json settings = parse_json(settings_json, "settings", Status::InvalidArgument, 32);
  if (!settings.is_object())
    fail_argument("the settings are %s, needed is an object", brief(settings).c_str());
  bool crashes = false;
  for (const auto& [key, value] : settings.items()) {
    if (value.is_null()) continue;
    if (key == "threads") {
      const int64_t threads = integer_field("threads", value);
      if (threads < 0 || threads > 1024)
        fail_argument("threads is %s, needed is 0 to 1024", brief(value).c_str());
      config.threads = static_cast<int>(threads);
    } else if (key == "kv_cache_dtype") {
      const std::string& name = string_field("kv_cache_dtype", value);
      if (name != "auto" && name != "bf16" && name != "f32" && name != "q8_0")
        fail_argument("kv_cache_dtype is %s, needed is auto, bf16, f32 or q8_0", quote(name).c_str());
      config.kv_format = name == "f32" ? KvFormat::F32 : name == "q8_0" ? KvFormat::Q8_0 : KvFormat::BF16;
    } else if (key == "device") {
      config.device = string_field("device", value);
    } else if (key == "clip_max_model_len") {
      config.clip_max_model_len = boolean_field("clip_max_model_len", value);
    } else if (key == "plan_only") {
      config.plan_only = boolean_field("plan_only", value);
    } else if (key == "report_crashes") {
      crashes = boolean_field("report_crashes", value);
    } else {
      fail_argument(
          "the settings have the key %s, known are threads, kv_cache_dtype, device, clip_max_model_len, "
          "plan_only and report_crashes",
          quote(key).c_str());
    }
  }
  if (crashes) report_crashes(config.model_path);
}

ChatSettings chat_settings(const vllm_model_params& params) {
  return {std::string(text(params.tokenizer_config_path)), std::string(text(params.tool_parser)),
          std::string(text(params.reasoning_parser))};
}

std::optional<ConstraintSpec> constraint_spec(const vllm_sampling_params& params) {
  using Kind = ConstraintSpec::Kind;
  std::optional<ConstraintSpec> out;
  const auto set = [&](Kind kind, const char* source) {
    if (out) fail_argument("two structured constraints are set, needed is at most one");
    out.emplace();
    out->kind = kind;
    out->text = text(source);
  };
  if (params.structured_json != nullptr) set(Kind::JsonSchema, params.structured_json);
  if (params.structured_regex != nullptr) set(Kind::Regex, params.structured_regex);
  if (params.structured_grammar != nullptr) set(Kind::Gbnf, params.structured_grammar);
  if (params.structured_json_object != 0) set(Kind::JsonObject, nullptr);
  if (params.n_structured_choice > 0) {
    if (params.structured_choice == nullptr)
      fail_argument("structured_choice is NULL and n_structured_choice is not 0");
    set(Kind::Choice, nullptr);
    for (int32_t i = 0; i < params.n_structured_choice; ++i)
      if (params.structured_choice[i] != nullptr) out->choices.emplace_back(params.structured_choice[i]);
  }
  return out;
}

SamplingParams sampling_params(const vllm_sampling_params& params) {
  SamplingParams out;
  out.temperature = params.temperature;
  out.top_p = params.top_p;
  out.top_k = params.top_k;
  out.min_p = params.min_p;
  out.max_tokens = params.max_tokens;
  const auto seed = static_cast<int64_t>(params.seed);
  if (params.has_seed != 0 && seed != -1) out.seed = seed;
  out.presence_penalty = params.presence_penalty;
  out.frequency_penalty = params.frequency_penalty;
  out.repetition_penalty = params.repetition_penalty;
  out.min_tokens = params.min_tokens;
  out.ignore_eos = params.ignore_eos != 0;
  if (params.stop != nullptr)
    for (int32_t i = 0; i < params.n_stop; ++i)
      if (params.stop[i] != nullptr) out.stop.emplace_back(params.stop[i]);
  if (params.logits_processor != nullptr) {
    out.logits_processor = [callback = params.logits_processor,
                            user_data = params.logits_processor_user_data](std::span<const int32_t> output,
                                                                           std::span<float> logits) {
      callback(output.data(), static_cast<int32_t>(output.size()), logits.data(),
               static_cast<int32_t>(logits.size()), user_data);
    };
  }
  return out;
}

}  // namespace vllm::abi

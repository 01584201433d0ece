#include "serve/query.h"

#include <algorithm>

#include "base/error.h"
#include "device/cpu/isa.h"
#include "device/cpu/machine.h"
#include "device/device.h"
#include "serve/json_fields.h"
#include "serve/reasoning/reasoning_parser.h"
#include "serve/tools/tool_dialects.h"

namespace vllm {
namespace {

struct Asked {
  const Engine& engine;
  const Chat& chat;
};

const Json& need(const Json& request, const char* field) {
  const auto it = request.find(field);
  if (it == request.end()) fail_argument("the query has no %s", field);
  return *it;
}

Json tokenize(const Asked& asked, const Json& request) {
  const auto add_special = request.find("add_special");
  return {{"tokens", asked.engine.tokenizer().encode(
                         string_field("text", need(request, "text")), true,
                         add_special == request.end() || boolean_field("add_special", *add_special))}};
}

Json detokenize(const Asked& asked, const Json& request) {
  return {
      {"text", decode(asked.engine.tokenizer(), token_ids_field("tokens", need(request, "tokens")), false)}};
}

Json render(const Asked& asked, const Json& request) {
  Json chat = request;
  chat.erase("query");
  const std::string prompt = asked.chat.prompt(chat);
  return {{"prompt", prompt}, {"tokens", asked.engine.encode_prompt(prompt)}};
}

Json metrics(const Asked& asked, const Json&) {
  const EngineMetrics m = asked.engine.metrics();
  return {{"running", m.running},
          {"waiting", m.waiting},
          {"kv_blocks_total", m.blocks_total},
          {"kv_blocks_free", m.blocks_free},
          {"kv_usage", m.kv_usage()},
          {"block_size", asked.engine.info().block_size},
          {"prompt_tokens", m.prompt_tokens},
          {"cached_tokens", m.cached_tokens},
          {"generated_tokens", m.generated_tokens},
          {"forced_tokens", m.forced_tokens},
          {"requests_finished", m.requests_finished},
          {"preemptions", m.preemptions},
          {"tokens_per_second", m.tokens_per_second},
          {"prompt_tokens_per_second", m.prompt_tokens_per_second}};
}

Json memory(const Asked& asked, const Json&) {
  const EngineMemory m = asked.engine.memory();
  return {{"device", asked.engine.info().device},
          {"weights", m.weights},
          {"kv_cache", m.kv_cache},
          {"states", m.states},
          {"workspace", m.workspace}};
}

Json info(const Asked& asked, const Json&) {
  const EngineInfo& i = asked.engine.info();
  return {{"model", i.model_path},
          {"architecture", i.architecture},
          {"formats", i.formats},
          {"device", i.device},
          {"max_model_len", i.max_model_len},
          {"vocab_size", i.vocab_size},
          {"block_size", i.block_size},
          {"num_blocks", i.num_blocks},
          {"max_num_seqs", i.max_num_seqs},
          {"max_num_batched_tokens", i.max_num_batched_tokens},
          {"prefix_caching", i.prefix_caching},
          {"threads", i.threads},
          {"kv_cache_dtype", i.kv_cache_dtype},
          {"scheduling_policy", i.scheduling_policy},
          {"jump_forward", i.jump_forward},
          {"num_tensors", i.num_tensors},
          {"fingerprint", i.fingerprint}};
}

Json plan(const Asked& asked, const Json&) {
  const LoadPlan& p = asked.engine.plan();
  const EngineInfo& i = asked.engine.info();
  Json chosen = Json::object();
  for (const Choice& choice : p.chosen) chosen[choice.setting] = choice.reason;
  return {{"available", p.available},
          {"budget", p.budget},
          {"weights", p.memory.weights},
          {"kv_cache", p.memory.kv_cache},
          {"states", p.memory.states},
          {"workspace", p.memory.workspace},
          {"kv_bytes_per_token", p.kv_bytes_per_token},
          {"state_bytes_per_sequence", p.state_bytes_per_sequence},
          {"model_context", p.model_context},
          {"kv_tokens", static_cast<int64_t>(i.num_blocks) * i.block_size},
          {"chosen", std::move(chosen)},
          {"warnings", p.warnings}};
}

Json name_json(std::string_view name, const std::vector<std::string_view>& aliases = {}) {
  return {{"name", name}, {"aliases", aliases}};
}

/// What the settings tool_parser and reasoning_parser can be.
Json parsers(const Asked& asked, const Json&) {
  Json tools = Json::array({name_json("auto"), name_json("none")});
  for (const std::string& name : tool_dialect_names())
    if (const ToolDialect& dialect = find_tool_dialect(name); tool_dialect_name(dialect) == name)
      tools.push_back(name_json(name, tool_dialect_aliases(dialect)));
  Json thoughts = Json::array({name_json("auto")});
  for (const std::string& name : reasoning_dialect_names()) thoughts.push_back(name_json(name));
  return {{"tool_parser", asked.chat.tool_parser()},
          {"reasoning_parser", asked.chat.reasoning_parser()},
          {"tool_parsers", std::move(tools)},
          {"reasoning_parsers", std::move(thoughts)}};
}

struct Query {
  const char* name;
  Json (*answer)(const Asked&, const Json&);
};

constexpr Query kQueries[] = {{"tokenize", tokenize}, {"detokenize", detokenize}, {"render", render},
                              {"metrics", metrics},   {"memory", memory},         {"info", info},
                              {"plan", plan},         {"parsers", parsers}};

/// The query and its name.
std::pair<Json, std::string> read_query(std::string_view text) {
  Json request = parse_json(text, "query", Status::InvalidArgument);
  if (!request.is_object()) fail_argument("the query is %s, needed is an object", brief(request).c_str());
  std::string name = string_field("query", need(request, "query"));
  return {std::move(request), std::move(name)};
}

Json absent_device(const char* name, const char* title) {
  return {{"name", name}, {"available", false}, {"reason", format("this build has no %s device", title)}};
}

/// Why a Vulkan device cannot be used; empty when it can.
std::string fault_of(const std::string& device) {
  try {
    vulkan_features(device);
  } catch (const Error& error) {
    return error.message();
  }
  return {};
}

Json devices() {
  Json out = Json::array({Json{{"name", "cpu"}, {"available", true}}});
  const std::vector<std::string> vulkan = vulkan_devices();
  for (size_t i = 0; i < std::max<size_t>(vulkan.size(), 1); ++i) {
    const std::string name = vulkan.empty() ? "vulkan" : format("vulkan:%zu", i);
    const std::string fault = fault_of(name);
    Json device{{"name", name}, {"available", fault.empty()}};
    if (fault.empty()) {
      device["description"] = vulkan[i];
    } else {
      device["reason"] = fault;
    }
    out.push_back(std::move(device));
  }
  out.push_back(absent_device("cuda", "CUDA"));
  out.push_back(absent_device("metal", "Metal"));
  return out;
}

Json machine() {
  Json sets = Json::array();
  for (const cpu::Isa isa : cpu::available_isas()) sets.push_back(cpu::isa_name(isa));
  return {{"processor", cpu::processor_name()},
          {"logical_cores", cpu::available_cores()},
          {"physical_cores", cpu::physical_cores()},
          {"instruction_sets", std::move(sets)},
          {"instruction_set", cpu::isa_name(cpu::choose_isa({}))},
          {"memory_total", cpu::total_memory()},
          {"memory_available", cpu::available_memory()},
          {"devices", devices()}};
}

}  // namespace

std::string answer_machine_query(std::string_view text) {
  const auto [request, name] = read_query(text);
  if (name != "machine")
    fail_argument("the query is %s and the engine is NULL, needed is an engine, or the query machine",
                  quote(name).c_str());
  return dump_json(machine());
}

std::string answer_query(const Engine& engine, const Chat& chat, std::string_view text) {
  const auto [request, name] = read_query(text);
  if (name == "machine") return dump_json(machine());
  std::string known;
  for (const Query& query : kQueries) {
    if (name == query.name) return dump_json(query.answer({engine, chat}, request));
    known += std::string(query.name) + ", ";
  }
  fail_argument("the query is %s, needed is one of %smachine", quote(name).c_str(), known.c_str());
}

}  // namespace vllm

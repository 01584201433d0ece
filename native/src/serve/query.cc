#include "serve/query.h"

#include "serve/json_fields.h"

namespace vllm {
namespace {

const Json& need(const Json& request, const char* field) {
  const auto it = request.find(field);
  if (it == request.end()) fail_argument("the query has no %s", field);
  return *it;
}

Json tokenize(const Engine& engine, const Chat&, const Json& request) {
  const auto add_special = request.find("add_special");
  return {{"tokens", engine.tokenizer().encode(
                         string_field("text", need(request, "text")), true,
                         add_special == request.end() || boolean_field("add_special", *add_special))}};
}

Json detokenize(const Engine& engine, const Chat&, const Json& request) {
  return {{"text", decode(engine.tokenizer(), token_ids_field("tokens", need(request, "tokens")), false)}};
}

Json render(const Engine& engine, const Chat& chat, const Json& request) {
  Json asked = request;
  asked.erase("query");
  const std::string prompt = chat.prompt(asked);
  return {{"prompt", prompt}, {"tokens", engine.encode_prompt(prompt)}};
}

Json metrics(const Engine& engine, const Chat&, const Json&) {
  const EngineMetrics m = engine.metrics();
  return {{"running", m.running},
          {"waiting", m.waiting},
          {"kv_blocks_total", m.blocks_total},
          {"kv_blocks_free", m.blocks_free},
          {"block_size", engine.info().block_size},
          {"prompt_tokens", m.prompt_tokens},
          {"cached_tokens", m.cached_tokens},
          {"generated_tokens", m.generated_tokens},
          {"requests_finished", m.requests_finished},
          {"preemptions", m.preemptions},
          {"tokens_per_second", m.tokens_per_second},
          {"prompt_tokens_per_second", m.prompt_tokens_per_second}};
}

Json memory(const Engine& engine, const Chat&, const Json&) {
  const EngineMemory m = engine.memory();
  return {{"weights", m.weights}, {"kv_cache", m.kv_cache}, {"workspace", m.workspace}};
}

Json info(const Engine& engine, const Chat&, const Json&) {
  const EngineInfo& i = engine.info();
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
          {"prefix_caching", i.prefix_caching}};
}

struct Query {
  const char* name;
  Json (*answer)(const Engine&, const Chat&, const Json&);
};

constexpr Query kQueries[] = {{"tokenize", tokenize}, {"detokenize", detokenize}, {"render", render},
                              {"metrics", metrics},   {"memory", memory},         {"info", info}};

}  // namespace

std::string answer_query(const Engine& engine, const Chat& chat, std::string_view text) {
  const Json request = parse_json(text, "query", Status::InvalidArgument);
  if (!request.is_object()) fail_argument("the query is %s, needed is an object", brief(request).c_str());
  const std::string& name = string_field("query", need(request, "query"));
  std::string known;
  for (const Query& query : kQueries) {
    if (name == query.name) return dump_json(query.answer(engine, chat, request));
    known += (known.empty() ? "" : ", ") + std::string(query.name);
  }
  fail_argument("the query is '%s', needed is one of %s", name.c_str(), known.c_str());
}

}  // namespace vllm

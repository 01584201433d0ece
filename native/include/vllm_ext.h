/* What version 21 of vllm.h lacks, in three calls. They use its handles, status codes and callbacks, and the
 * same rules: results are zeroed at entry, strings handed out are freed with vllm_string_free,
 * vllm_last_error has the message of a failure, no exception crosses the boundary. All JSON is UTF-8. */
#ifndef VLLM_EXT_H_
#define VLLM_EXT_H_

#include "vllm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As vllm_engine_load, with settings the struct has no field for.
 *
 * settings_json: NULL, "" or an object with any of
 *   threads            integer >= 0; 0: one a physical core
 *   kv_cache_dtype     "auto" (bf16), "bf16", "f32" or "q8_0"
 *   device             "auto", "cpu", "vulkan" or "vulkan:N"; wins over params->device
 *   clip_max_model_len boolean: lower max_model_len to what the KV pool holds, with a warning, and do not
 *                      refuse it
 *   plan_only          boolean: check the files and settings and plan the memory as a load does, but read no
 *                      weights and take no memory; the engine answers queries and refuses requests
 *   report_crashes     boolean: from now on a fatal signal of this process (SIGSEGV, SIGBUS, SIGFPE, SIGILL,
 *                      SIGABRT) first writes a sentence on stderr
 *
 * An unknown key or an unusable value is VLLM_ERR_INVALID_ARGUMENT naming it. */
VLLM_API vllm_status vllm_ext_load(const vllm_model_params* params, const char* settings_json,
                                   vllm_engine** out);

/* Starts a request and returns at once; the callback runs on a thread of the library, and the handle is
 * driven by vllm_request_cancel, _wait, _done, _error and _free. Malformed or unusable requests are
 * VLLM_ERR_INVALID_ARGUMENT.
 *
 * request_json, OpenAI's names: exactly one of `prompt` (string, or array of token ids) and `messages`.
 *   both: max_tokens, temperature, top_p, top_k, min_p, seed, stop (string or array), stop_token_ids,
 * presence_penalty, frequency_penalty, repetition_penalty, min_tokens, ignore_eos, logit_bias (object of id
 * to bias), allowed_token_ids, bad_words, priority, include_stop_str_in_output, skip_special_tokens; at most
 * one constraint: grammar (GBNF), json_schema (object or text), regex, choice (array), json_object (true),
 * structural_tag ({"structures": [{"begin", "schema", "end"}], "triggers": [..]}), response_format of type
 * text, json_object, json_schema or structural_tag, structured_outputs (an object with one of the above)
 *   prompt: logprobs (number of alternatives)
 *   messages: tools, tool_choice, parallel_tool_calls, chat_template_kwargs, reasoning_effort,
 * thinking_budget (tokens of thought before its end is forced), include_reasoning, documents,
 * add_generation_prompt, continue_final_message, max_completion_tokens, logprobs (boolean) with top_logprobs
 * null counts as absent; an unknown key is refused by name.
 *
 * With tools that may be called (tool_choice absent or "auto") and a constraint, the answer is either content
 * that meets the constraint or calls in the model's own syntax, each valid for its tool. A dialect whose
 * calls no grammar describes leaves only the content, with a warning in the log; a structural_tag, which
 * allows free text, stands alone. A call that has to be made and a constraint exclude each other.
 *
 * Each callback gets one JSON object in delta_text:
 *   {"object": "text_completion",
 *    "choices": [{"index": 0, "text": "...", "token_ids": [..],
 *                 "logprobs": null | {"content": [{"id", "token", "bytes", "logprob",
 *                                                  "top_logprobs": [same]}]},
 *                 "finish_reason": null | "stop" | "length", "stop_reason": null | string | token id}],
 *    "usage": {"prompt_tokens", "completion_tokens", "total_tokens",
 *              "prompt_tokens_details": {"cached_tokens"}},
 *    "timings": {"queue_ms", "prompt_ms", "generation_ms"}}
 *
 * Counts and timings are cumulative. The last call has finished = true; when the request failed its object is
 *   {"error": {"status": <vllm_status>, "message": "..."}}
 * After a cancel, or after the callback returned false, there is no further call. */
VLLM_API vllm_status vllm_ext_submit(vllm_engine* engine, const char* request_json,
                                     vllm_token_callback callback, void* user_data,
                                     vllm_request** out_request);

/* Answers one question; *out_json is freed with vllm_string_free.
 *   {"query": "tokenize", "text": "...", "add_special": true}  -> {"tokens": [..]}
 *   {"query": "detokenize", "tokens": [..]}                    -> {"text": "..."}
 *   {"query": "render", <a request of vllm_ext_submit with messages>}
 *                        -> {"prompt": "...", "tokens": [..]}: what the chat template makes of it
 *   {"query": "metrics"} -> {"running", "waiting", "kv_blocks_total", "kv_blocks_free", "kv_usage" (0 to 1),
 *                            "block_size",
 *                            "prompt_tokens", "cached_tokens", "generated_tokens", "forced_tokens",
 *                            "requests_finished", "preemptions", "tokens_per_second",
 *                            "prompt_tokens_per_second"}; forced_tokens are those of the generated ones that
 *                            jump-forward took because a constraint allowed no other
 *   {"query": "memory"}  -> {"weights", "kv_cache", "states", "workspace"} in bytes; "device": where
 *   {"query": "info"}    -> {"model", "architecture", "formats", "device", "max_model_len", "vocab_size",
 *                            "block_size", "num_blocks", "max_num_seqs", "max_num_batched_tokens",
 *                            "prefix_caching", "threads", "kv_cache_dtype", "scheduling_policy",
 *                            "jump_forward", "num_tensors", "fingerprint"}
 *   {"query": "plan"}    -> {"available": bytes free before the weights, "budget": those the engine may take,
 *                            "weights", "kv_cache", "states", "workspace": bytes, "kv_bytes_per_token",
 *                            "state_bytes_per_sequence", "model_context": tokens the model was made for,
 *                            "kv_tokens": tokens in the pool, "chosen": {setting that nobody gave: where its
 *                            value is from}, "warnings": [..]}
 *   {"query": "machine"} -> {"processor", "logical_cores", "physical_cores", "instruction_sets",
 *                            "instruction_set": the one in use, "memory_total", "memory_available",
 *                            "devices": [{"name", "available", "reason": why not}]}; engine may be NULL
 *   {"query": "parsers"} -> {"tool_parser", "reasoning_parser": the names in use,
 *                            "tool_parsers", "reasoning_parsers": [{"name", "aliases": [..]}], what the
 *                            settings of these names may be}
 *
 * An unknown query is VLLM_ERR_INVALID_ARGUMENT with the list of known ones. Never waits for a step. */
VLLM_API vllm_status vllm_ext_query(vllm_engine* engine, const char* request_json, char** out_json);

#ifdef __cplusplus
}
#endif
#endif /* VLLM_EXT_H_ */

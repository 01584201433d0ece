// The JSON documents of a load: their schemas, checked before any file is opened.
#pragma once
#include <string_view>

namespace vllm {

/// Each throws Error(InvalidArgument) naming the document and the key. Empty text is no document and returns
/// false.
bool check_speculative_config(std::string_view text);
bool check_kv_transfer_config(std::string_view text);
bool check_offload_config(std::string_view text);
bool check_limit_mm_per_prompt(std::string_view text);

}  // namespace vllm

// Pre-tokenizer regexes that model families publish in their tokenizer.json.
#pragma once

namespace vllm {

#define VLLM_CONTRACTIONS R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
#define VLLM_SPACES R"(\s*[\r\n]+|\s+(?!\S)|\s+)"
#define VLLM_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define VLLM_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"

inline constexpr char kGpt2Regex[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr char kLlama3Regex[] =
    VLLM_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" VLLM_SPACES;
inline constexpr char kQwen2Regex[] =
    VLLM_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" VLLM_SPACES;
inline constexpr char kQwen35Regex[] =
    VLLM_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" VLLM_SPACES;
inline constexpr char kTekkenRegex[] =
    R"([^\r\n\p{L}\p{N}]?)" VLLM_UPPER "*" VLLM_LOWER R"(+|[^\r\n\p{L}\p{N}]?)" VLLM_UPPER "+" VLLM_LOWER
    R"(*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" VLLM_SPACES;
inline constexpr char kGpt4oRegex[] =
    R"([^\r\n\p{L}\p{N}]?)" VLLM_UPPER "*" VLLM_LOWER "+" VLLM_CONTRACTIONS
    R"(?|[^\r\n\p{L}\p{N}]?)" VLLM_UPPER "+" VLLM_LOWER "*" VLLM_CONTRACTIONS
    R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" VLLM_SPACES;
inline constexpr char kDeepseekWordsRegex[] =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|)" VLLM_SPACES;

#undef VLLM_CONTRACTIONS
#undef VLLM_SPACES
#undef VLLM_UPPER
#undef VLLM_LOWER

}  // namespace vllm

// The names of a GGUF's `tokenizer.ggml.pre`.
#include "base/error.h"
#include "text/pre_tokenizer.h"
#include "text/regexes.h"
#include "text/unicode.h"

namespace vllm {
namespace {

enum Flags : unsigned { kPlain = 0, kNfc = 1, kIgnoreMerges = 2, kAddsBos = 4 };

struct Family {
  const char* name;
  std::vector<const char*> stages;  // regexes; matches and gaps of each become pieces
  unsigned flags;
  std::vector<const char*> aliases;
};

constexpr char kOneNumber[] = R"(\p{N})";
constexpr unsigned kLlama3Flags = kIgnoreMerges | kAddsBos;

const std::vector<Family>& families() {
  static const std::vector<Family> table = {
      {"llama-bpe", {kLlama3Regex}, kLlama3Flags, {"llama3", "llama-v3", "falcon3", "pixtral", "lfm2"}},
      {"dbrx", {kLlama3Regex}, kPlain, {"smaug-bpe", "glm4", "chatglm-bpe"}},
      {"qwen2", {kQwen2Regex}, kNfc, {"deepseek-r1-qwen"}},
      {"megrez", {kQwen2Regex}, kPlain, {"stablelm2", "hunyuan"}},
      {"qwen35", {kQwen35Regex}, kNfc, {}},
      {"gpt-2", {kGpt2Regex}, kPlain, {"phi-2", "mpt", "olmo", "exaone4", "jais"}},
      {"smollm",
       {kOneNumber, kGpt2Regex},
       kPlain,
       {"refact", "starcoder", "command-r", "codeshell", "exaone"}},
      {"tekken", {kTekkenRegex}, kLlama3Flags, {}},
      {"gpt-4o", {kGpt4oRegex}, kPlain, {"llama4", "kanana2"}},
      {"deepseek-v3",
       {R"(\p{N}{1,3})", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", kDeepseekWordsRegex},
       kPlain,
       {}},
      {"default", {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Regex, R"(\p{N}+)", "[0-9][0-9][0-9]"}, kPlain, {}},
  };
  return table;
}

}  // namespace

NamedPreTokenizer named_pre_tokenizer(std::string_view name, bool general) {
  for (const Family& family : families()) {
    bool known = name == family.name;
    for (const char* alias : family.aliases) known |= name == alias;
    if (!known) continue;
    NamedPreTokenizer named;
    for (const char* regex : family.stages) {
      named.pre_tokenizer.add(regex == kOneNumber && !general
                                  ? digits_stage(true)
                                  : regex_stage(regex, SplitBehavior::Isolated, false, general));
    }
    named.nfc = family.flags & kNfc;
    named.ignore_merges = family.flags & kIgnoreMerges;
    named.adds_bos = family.flags & kAddsBos;
    return named;
  }
  fail_load("The pre-tokenizer %s (tokenizer.ggml.pre) is not known.", quote(name).c_str());
}

std::vector<std::string> pre_tokenizer_names() {
  std::vector<std::string> names;
  for (const Family& family : families()) {
    names.emplace_back(family.name);
    names.insert(names.end(), family.aliases.begin(), family.aliases.end());
  }
  return names;
}

}  // namespace vllm

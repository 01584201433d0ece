#include "text/detokenizer.h"

#include "text/unicode.h"

namespace vllm {
namespace {

constexpr char kReplacement[] = "\xef\xbf\xbd";  // U+FFFD

}  // namespace

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(tokenizer), skip_special_(skip_special) {}

std::string Detokenizer::add(int32_t id) {
  if (skip_special_ && tokenizer_.is_control(id)) return {};
  const std::string_view added = tokenizer_.bytes(id);
  std::string_view rest = added;
  if (!pending_.empty()) rest = pending_.append(added);
  std::string text;
  text.reserve(rest.size());
  while (!rest.empty()) {
    const Utf8Step step = next_utf8(rest);
    if (step.status == Utf8Status::Incomplete) break;
    if (step.status == Utf8Status::Valid) {
      text.append(rest.substr(0, step.size));
    } else if (!in_invalid_run_) {
      text += kReplacement;
    }
    in_invalid_run_ = step.status == Utf8Status::Invalid;
    rest.remove_prefix(step.size);
  }
  pending_ = std::string(rest);
  return text;
}

std::string Detokenizer::finish() {
  const bool lost = !pending_.empty() && !in_invalid_run_;
  pending_.clear();
  in_invalid_run_ = false;
  return lost ? kReplacement : "";
}

std::string decode(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip_special) {
  Detokenizer detokenizer(tokenizer, skip_special);
  std::string text;
  for (const int32_t id : ids) text += detokenizer.add(id);
  text += detokenizer.finish();
  if (tokenizer.strips_leading_space() && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

}  // namespace vllm

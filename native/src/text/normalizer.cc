#include "text/normalizer.h"

#include <algorithm>

namespace vllm {
namespace {

std::string apply_step(const NormalForm& form, std::string text) { return to_normal_form(text, form); }

std::string apply_step(const Normalizer::Prepend& step, std::string text) {
  return text.empty() ? text : step.text + text;
}

std::string apply_step(const Normalizer::Replace& step, std::string text) {
  std::string out;
  out.reserve(text.size());
  size_t done = 0;
  const auto take = [&](size_t begin, size_t end) {
    out.append(text, done, begin - done);
    out += step.content;
    done = end;
  };
  if (step.regex) {
    for (const auto& [begin, end] : step.regex->find_all(text)) take(begin, end);
  } else {
    for (size_t at; (at = text.find(step.pattern, done)) != std::string::npos;)
      take(at, at + step.pattern.size());
  }
  return out.append(text, done);
}

std::string apply_step(const Normalizer::Strip& step, std::string text) {
  size_t begin = 0, end = text.size(), last = 0;
  bool leading = step.left;
  for (size_t pos = 0; pos < text.size();) {
    const bool space = char_class(read_utf8(text, pos)) & kSpace;
    if (leading && space) begin = pos;
    if (!space) leading = false, last = pos;
  }
  if (step.right) end = std::max(begin, last);
  return text.substr(begin, end - begin);
}

}  // namespace

void Normalizer::add(Step step) { steps_.push_back(std::move(step)); }

std::string Normalizer::apply(std::string_view text) const {
  std::string out(text);
  for (const Step& step : steps_) {
    out = std::visit([&](const auto& each) { return apply_step(each, std::move(out)); }, step);
  }
  return out;
}

}  // namespace vllm

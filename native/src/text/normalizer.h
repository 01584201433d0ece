// Text normalisation before splitting.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/regex.h"
#include "text/unicode.h"

namespace vllm {

/// Steps in order, each on the output of the one before.
class Normalizer {
 public:
  struct Prepend {
    std::string text;
  };
  struct Replace {
    std::string pattern;  // not empty; used when there is no regex
    std::shared_ptr<const Regex> regex;
    std::string content;
  };
  struct Strip {
    bool left, right;
  };
  using Step = std::variant<NormalForm, Prepend, Replace, Strip>;

  void add(Step step);
  bool empty() const { return steps_.empty(); }
  /// `text` must be valid UTF-8. Empty text stays empty.
  std::string apply(std::string_view text) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace vllm

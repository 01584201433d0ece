// Regular expressions of tokenizer files, in the syntax that those files use (Oniguruma, Ruby flavour).
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vllm {

class Regex {
 public:
  /// Throws Error(ModelLoad) naming the pattern when it is malformed, too large, or uses syntax whose meaning
  /// we would not keep.
  explicit Regex(std::string_view pattern);
  Regex(Regex&&) noexcept = default;
  Regex& operator=(Regex&&) noexcept = default;

  /// All matches from left to right as [begin, end), without overlap; `text` must be valid UTF-8.
  /// Throws Error(InvalidArgument) when matching takes more steps than are allowed.
  std::vector<std::pair<size_t, size_t>> find_all(std::string_view text) const;

 private:
  struct Free {
    void operator()(void* code) const;
  };
  std::unique_ptr<void, Free> code_;
};

}  // namespace vllm

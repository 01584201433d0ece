// Follows constraints byte by byte over small vocabularies.
#pragma once
#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "constrain/compiler.h"
#include "text/tokenizer.h"

namespace vllm::testing {

class ListedTokenizer : public Tokenizer {
 public:
  /// Ids: the list's indices. `controls` are hidden tokens, `ends` end the output (and are hidden too).
  ListedTokenizer(std::vector<std::string> tokens, std::vector<int32_t> controls, std::vector<int32_t> ends)
      : tokens_(std::move(tokens)), control_(tokens_.size()) {
    vocab_size_ = static_cast<int32_t>(tokens_.size());
    for (const int32_t id : controls) control_[id] = true;
    for (const int32_t id : ends) control_[id] = true;
    end_ids_ = std::move(ends);
  }
  std::vector<int32_t> encode(std::string_view, bool, bool) const override { return {}; }
  std::string_view bytes(int32_t id) const override {
    return id >= 0 && id < vocab_size_ ? std::string_view(tokens_[id]) : std::string_view();
  }
  bool is_control(int32_t id) const override { return control_[id]; }
  std::optional<int32_t> find(std::string_view text) const override {
    for (int32_t id = 0; id < vocab_size_; ++id) {
      if (tokens_[id] == text) return id;
    }
    return std::nullopt;
  }

 private:
  std::vector<std::string> tokens_;
  std::vector<bool> control_;
};

/// All single bytes (their ids are their values), then `more`, then an end token with id 256 + more.size().
inline ListedTokenizer bytes_and(std::vector<std::string> more = {}, std::vector<std::string> controls = {}) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(std::string(1, static_cast<char>(byte)));
  tokens.insert(tokens.end(), more.begin(), more.end());
  const auto end = static_cast<int32_t>(tokens.size());
  tokens.push_back("<end>");
  std::vector<int32_t> hidden;
  for (const std::string& control : controls) {
    hidden.push_back(static_cast<int32_t>(tokens.size()));
    tokens.push_back(control);
  }
  return ListedTokenizer(std::move(tokens), hidden, {end});
}

inline ConstraintCompiler& byte_compiler() {
  static ConstraintCompiler compiler(bytes_and(), {256});
  return compiler;
}

inline ConstraintSpec spec(ConstraintSpec::Kind kind, std::string text) {
  ConstraintSpec s;
  s.kind = kind;
  s.text = std::move(text);
  return s;
}
inline ConstraintSpec gbnf(std::string text) { return spec(ConstraintSpec::Kind::Gbnf, std::move(text)); }
inline ConstraintSpec regex(std::string text) { return spec(ConstraintSpec::Kind::Regex, std::move(text)); }
inline ConstraintSpec schema(std::string text) {
  return spec(ConstraintSpec::Kind::JsonSchema, std::move(text));
}

/// Bytes of `text` that the constraint takes.
inline size_t taken(Constraint& constraint, std::string_view text) {
  std::vector<int32_t> ids;
  for (const char byte : text) ids.push_back(static_cast<uint8_t>(byte));
  return constraint.accept(ids);
}

inline bool matches(const ConstraintSpec& s, std::string_view text) {
  const auto constraint = byte_compiler().make(s);
  return taken(*constraint, text) == text.size() && constraint->can_end();
}

/// `text` can be the beginning of an output.
inline bool begins(const ConstraintSpec& s, std::string_view text) {
  const auto constraint = byte_compiler().make(s);
  return taken(*constraint, text) == text.size() && !constraint->is_dead();
}

/// What the refusal says; empty when there is none.
inline std::string refusal(const ConstraintSpec& s) {
  try {
    byte_compiler().make(s);
    return {};
  } catch (const Error& error) {
    CHECK(error.status() == Status::InvalidArgument);
    CHECK(error.message().find('\n') == std::string::npos);
    return error.message();
  }
}

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

inline std::vector<uint32_t> mask_of(Constraint& constraint, int32_t vocab) {
  std::vector<uint32_t> bits((vocab + 31) / 32, 0xdeadbeef);
  constraint.mask(bits);
  return bits;
}

inline bool allowed(const std::vector<uint32_t>& mask, int32_t id) { return mask[id / 32] >> id % 32 & 1; }

}  // namespace vllm::testing

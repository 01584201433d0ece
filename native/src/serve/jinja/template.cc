#include "serve/jinja/template.h"

#include <cctype>

#include "base/error.h"
#include "serve/jinja/ast.h"
#include "serve/jinja/content_format.h"
#include "serve/jinja/lexer.h"
#include "serve/jinja/parser.h"
#include "serve/jinja/renderer.h"
#include "serve/jinja/scopes.h"
#include "text/unicode.h"

namespace vllm::jinja {

namespace {
constexpr size_t kMaxSource = size_t{4} << 20;
}

std::shared_ptr<const Template> Template::parse(std::string source) {
  if (source.size() > kMaxSource) {
    fail_argument("The chat template has %zu bytes, %zu are allowed.", source.size(), kMaxSource);
  }
  if (const size_t at = find_invalid_utf8(source); at != std::string_view::npos) {
    fail_argument("The chat template is no valid UTF-8 at byte %zu.", at);
  }
  const std::shared_ptr<Template> out(new Template);
  out->source_ = std::move(source);
  out->normalized_ = normalize_source(out->source_);
  const auto tree = std::make_shared<Tree>();
  parse_tree(out->normalized_, *tree);
  bind_names(out->normalized_, *tree);
  out->iterates_content_ = jinja::iterates_content(*tree);
  out->tree_ = tree;
  return out;
}

std::string Template::render(const nlohmann::ordered_json& variables, std::optional<std::tm> now) const {
  return Renderer(normalized_, *tree_, now).run(variables);
}

bool Template::mentions(std::string_view word) const {
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  if (word.empty()) return false;
  for (size_t at = source_.find(word); at != std::string::npos; at = source_.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !is_word(source_[at - 1])) && (end == source_.size() || !is_word(source_[end])))
      return true;
  }
  return false;
}

}  // namespace vllm::jinja

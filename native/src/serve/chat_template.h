// The chat templates of a model: where they come from, which one a request gets, and the prompt it gives.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "serve/jinja/template.h"
#include "text/tokenizer.h"
#include "weights/checkpoint.h"

namespace vllm {

/// What a prompt is made of.
struct PromptInput {
  Json messages;                    // as the request has them
  Json tools;                       // array, or null for none
  Json documents;                   // array, or null
  Json variables = Json::object();  // more that the template gets (chat_template_kwargs)
  bool add_generation_prompt = true;
  bool continue_final_message = false;
};

class ChatTemplates {
 public:
  /// Sources, first found wins: `explicit_path` (not for a GGUF), chat_template.jinja, chat_template.json,
  /// tokenizer_config.json, the metadata of a GGUF; named ones beside. Tries each out and logs once what does
  /// not work. Throws Error(ModelLoad) for an explicit file that cannot be read.
  ChatTemplates(const Checkpoint& checkpoint, const Tokenizer& tokenizer, const std::string& explicit_path);

  /// Throws Error(InvalidArgument): a template that does not parse, the text it raises, malformed messages.
  std::string render(const PromptInput& input) const;

  /// Source of the template for requests with or without tools; empty when the model has none.
  const std::string& source(bool with_tools) const;

 private:
  struct Entry {
    std::string name;
    std::string source;
    std::shared_ptr<const jinja::Template> parsed;  // null: `fault` says why
    std::string fault;
  };
  void add(std::string name, std::string source);
  void add_value(const Json& value);
  void read_folder(const std::string& folder, const std::string& explicit_path);
  const Entry* choose(bool with_tools) const;
  void try_out() const;

  std::vector<Entry> entries_;
  Json special_ = Json::object();  // bos_token, eos_token and others
};

}  // namespace vllm

// Cuts text where a tokenizer cuts it, as a parser of model output sees it arrive.
#pragma once
#include "tokenizer_files.h"

namespace vllm {

/// Qwen2's byte-level tokenizer over the small vocabulary of the fixtures, with `markers` as further special
/// tokens: each arrives as one piece.
class TokenCuts {
 public:
  explicit TokenCuts(const std::vector<std::string>& markers) {
    const Json vocabulary = fixture("byte_level.json"), families = fixture("byte_level_families.json");
    Json json = byte_level_json(vocabulary, families["qwen2"]);
    json["normalizer"] = nullptr;  // the pieces are the text
    Json& added = json["added_tokens"];
    auto id = vocabulary["vocab"].size() + added.size();
    std::vector<std::string> known;
    for (const Json& token : added) known.push_back(token["content"].get<std::string>());
    for (const std::string& marker : markers) {
      if (marker.empty() || std::find(known.begin(), known.end(), marker) != known.end()) continue;
      known.push_back(marker);
      Json token = added[0];
      token["id"] = id++;
      token["content"] = marker;
      added.push_back(std::move(token));
    }
    tokenizer_ = load_folder(json.dump());
  }

  /// The sizes of the pieces.
  std::vector<size_t> operator()(std::string_view text) const {
    std::vector<size_t> pieces;
    size_t total = 0;
    for (const int32_t id : tokenizer_->encode(text, true, false)) {
      pieces.push_back(tokenizer_->bytes(id).size());
      total += pieces.back();
    }
    if (total != text.size()) fail_runtime("The tokens do not spell %s.", quote(text).c_str());
    return pieces;
  }

  bool is_one_token(std::string_view text) const { return tokenizer_->find(text).has_value(); }

 private:
  std::unique_ptr<Tokenizer> tokenizer_;
};

}  // namespace vllm

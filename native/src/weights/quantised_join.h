// The tensors of a quantised module as one weight.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "weights/quantisation.h"
#include "weights/quantised_rows.h"

namespace vllm {

/// The tensors of one module by the last component of their names.
struct QuantModule {
  std::string file_path;  // of the directory, for messages
  std::string name;
  std::map<std::string, QuantPart, std::less<>> parts;

  std::string weight_name() const { return name + ".weight"; }
  bool has(std::string_view part) const { return parts.find(part) != parts.end(); }
  /// Throws when it is missing.
  const QuantPart& part(std::string_view key, const QuantScheme& scheme) const;
  std::unique_ptr<QuantPart> part_or_null(std::string_view key) const;
};

/// Throws Error(ModelLoad) naming the tensor that is missing or of another shape or type.
Weight join_module(const QuantModule& module, const QuantScheme& scheme);

/// FP8 experts in one tensor [count, rows, cols], with scales [count, ., .]: by the blocks of the scheme, or
/// one for each matrix; where that makes one for the rows of gate and up, there may be one for each of the
/// two.
Weight join_stack(const QuantPart& codes, const QuantPart& scale, const QuantScheme& scheme);

}  // namespace vllm

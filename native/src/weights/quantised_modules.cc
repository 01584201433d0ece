// The tensors of quantised modules (codes, scales, zero points) as one weight each, "<module>.weight".
#include <algorithm>
#include <filesystem>
#include <span>

#include "base/log.h"
#include "weights/huggingface.h"
#include "weights/quantisation.h"
#include "weights/quantised_join.h"

namespace vllm {
namespace {

/// Last components of the names of tensors that belong to a quantised weight.
constexpr std::string_view kCodes[] = {"weight_packed", "qweight"};
constexpr std::string_view kParts[] = {"weight_scale",     "weight_scale_inv",
                                       "weight_scale_2",   "weight_global_scale",
                                       "weight_shape",     "weight_zero_point",
                                       "weight_g_idx",     "qzeros",
                                       "scales",           "g_idx",
                                       "input_scale",      "input_global_scale",
                                       "input_zero_point", "activation_scale"};
/// Of a quantised KV cache.
constexpr std::string_view kKvParts[] = {"k_scale", "v_scale", "q_scale", "prob_scale"};

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

bool is_quantised(const QuantModule& module) {
  return std::ranges::any_of(module.parts, [](const auto& part) {
    return contains(kCodes, part.first) || contains(kParts, part.first);
  });
}

/// A plain matrix that a linear module would hold: embeddings are looked up.
bool is_linear(const QuantModule& module) {
  const auto weight = module.parts.find("weight");
  const size_t dot = module.name.rfind('.');
  const std::string_view last = std::string_view(module.name).substr(dot == module.name.npos ? 0 : dot + 1);
  return weight != module.parts.end() && weight->second.shape.size() == 2 && last.find("embed") == last.npos;
}

/// For the line that a load logs.
std::string summary(const QuantScheme& scheme) {
  return scheme.name + (scheme.activations.empty() ? "" : ", " + scheme.activations + " run weight-only");
}

}  // namespace

void HuggingFaceCheckpoint::join_quantised() {
  Json hf_quant;
  const std::string hf_quant_path = path_ + "/hf_quant_config.json";
  if (std::error_code ignored; std::filesystem::exists(hf_quant_path, ignored))
    hf_quant =
        parse_json(read_text_file(hf_quant_path, size_t{1} << 25), hf_quant_path.c_str(), Status::ModelLoad);
  const QuantConfig config(config_, hf_quant, path_);

  std::map<std::string, QuantModule, std::less<>> modules;
  const auto add = [&](const std::string& name, QuantPart part) {
    const size_t dot = name.rfind('.');
    if (dot == name.npos) return;
    QuantModule& module = modules[name.substr(0, dot)];
    module.file_path = path_;
    module.name = name.substr(0, dot);
    module.parts.emplace(name.substr(dot + 1), std::move(part));
  };
  for (const auto& [name, w] : weights_)
    add(name, {name, format_info(w.format).name, w.shape, w.data, w.bytes, w.file});
  for (const auto& [name, t] : unsupported_) add(name, {name, t.type, t.shape, t.data, t.bytes, t.file});

  const auto erase = [&](const QuantPart& part) {
    weights_.erase(part.name);
    unsupported_.erase(part.name);
  };
  std::map<std::string, size_t> counts;  // of weights by scheme
  size_t kv_scales = 0, widened = 0;
  const auto insert = [&](Weight weight, const QuantScheme& scheme) {
    widened += weight.format == Format::F32;
    ++counts[summary(scheme)];
    weights_.insert_or_assign(weight.name, std::move(weight));
  };
  for (const auto& [name, module] : modules) {
    for (const auto& [key, part] : module.parts) {
      if (!contains(kKvParts, key) || !config.quantised()) continue;
      ++kv_scales;
      erase(part);
    }
    const bool quantised = is_quantised(module);
    const QuantScheme* scheme =
        config.quantised() && (quantised || is_linear(module)) ? config.find(name) : nullptr;
    if (!quantised && scheme == nullptr) continue;
    try {
      if (!quantised) {
        // The layers of multi-token prediction are plain though no list says so.
        const bool prediction = name.starts_with("mtp.") || name.find(".mtp.") != name.npos;
        if (prediction || !config.is_complete(name)) continue;
        fail_load("%s: the configuration says %s for the module %s, whose weight is plain %s.", path_.c_str(),
                  scheme->name.c_str(), quote(name).c_str(),
                  module.parts.find("weight")->second.type.c_str());
      }
      if (scheme == nullptr)
        fail_load(
            "%s: the module %s has the tensors of a quantised weight (%s), and the configuration has no "
            "scheme for it.",
            path_.c_str(), quote(name).c_str(), quote(module.parts.begin()->first).c_str());
      Weight weight = join_module(module, *scheme);
      for (const auto& [key, part] : module.parts)
        if (key == "weight" || contains(kCodes, key) || contains(kParts, key)) erase(part);
      insert(std::move(weight), *scheme);
    } catch (const Error& error) {
      for (const auto& [key, part] : module.parts)
        if (key != "bias") erase(part);
      faults_[module.weight_name()] = error.message();
    }
  }
  for (const auto& [name, module] : modules) {
    for (const auto& [key, codes] : module.parts) {
      if (codes.shape.size() != 3 || name.find(".experts") == name.npos || !config.quantised()) continue;
      if (codes.type != "F8_E4M3") {
        if (codes.type == "U8" || codes.type == "I8" || codes.type == "I32")
          fail_load("%s: the experts in the tensor %s are %s, needed is F8_E4M3 or a tensor for each expert.",
                    path_.c_str(), quote(codes.name).c_str(), codes.type.c_str());
        continue;
      }
      try {
        const QuantScheme* scheme = config.find(codes.name);
        if (scheme == nullptr || (scheme->kind != QuantScheme::Fp8 && scheme->kind != QuantScheme::Fp8Block))
          fail_load("%s: the experts in the tensor %s are FP8, and the configuration says %s for them.",
                    path_.c_str(), quote(codes.name).c_str(), scheme ? scheme->name.c_str() : "nothing");
        const QuantPart& scale = module.part(key + "_scale_inv", *scheme);
        Weight weight = join_stack(codes, scale, *scheme);
        erase(scale);
        if (const auto activations = module.part_or_null(key + "_activation_scale")) erase(*activations);
        insert(std::move(weight), *scheme);
      } catch (const Error& error) {
        erase(codes);
        faults_[codes.name] = error.message();
      }
    }
  }
  // Codes alone are no weight.
  for (auto it = weights_.begin(); it != weights_.end();) {
    const Weight& weight = it->second;
    if (weight.format == Format::F8_E4M3 && !weight.joined()) {
      unsupported_[it->first] = {"F8_E4M3", weight.file, weight.shape, weight.data, weight.bytes};
      it = weights_.erase(it);
    } else {
      ++it;
    }
  }
  if (!config.quantised()) return;
  quantisation_ = config.method();
  for (const auto& [what, count] : counts) quantisation_ += format(" %s (%zu weights)", what.c_str(), count);
  if (widened > 0)
    log_warning(
        "%s: %zu FP8 weights have scales for other blocks than of 64 inputs and are kept as F32, in four "
        "times the memory",
        path_.c_str(), widened);
  if (kv_scales > 0)
    log_warning("%s: %zu scales of a quantised KV cache are left aside", path_.c_str(), kv_scales);
}

}  // namespace vllm

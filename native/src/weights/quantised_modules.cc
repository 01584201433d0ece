// The tensors of quantised modules (codes, scales, zero points) as one weight each, "<module>.weight".
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <span>

#include "base/log.h"
#include "weights/huggingface.h"
#include "weights/quantisation.h"
#include "weights/quantised_rows.h"

namespace vllm {
namespace {

using ll = long long;

/// Last components of the names of tensors that belong to a quantised weight.
constexpr std::string_view kCodes[] = {"weight_packed", "qweight"};
constexpr std::string_view kParts[] = {"weight_scale",   "weight_scale_inv",
                                       "weight_scale_2", "weight_global_scale",
                                       "weight_shape",   "weight_zero_point",
                                       "weight_g_idx",   "qzeros",
                                       "scales",         "g_idx",
                                       "input_scale",    "input_global_scale"};
/// Of a quantised KV cache.
constexpr std::string_view kKvParts[] = {"k_scale", "v_scale", "q_scale", "prob_scale"};

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

/// The tensors of one module by the last component of their names.
struct Module {
  std::string file_path;  // of the directory, for messages
  std::string name;
  std::map<std::string, QuantPart, std::less<>> parts;

  bool quantised() const {
    return std::ranges::any_of(
        parts, [](const auto& part) { return contains(kCodes, part.first) || contains(kParts, part.first); });
  }
  bool has(std::string_view part) const { return parts.find(part) != parts.end(); }
  const QuantPart& part(std::string_view key, const QuantScheme& scheme) const {
    const auto it = parts.find(key);
    if (it == parts.end())
      fail_load("%s: the configuration says %s for the module %s, whose tensor %s is missing.",
                file_path.c_str(), scheme.name.c_str(), quote(name).c_str(), quote(std::string(key)).c_str());
    return it->second;
  }
  std::unique_ptr<QuantPart> part_or_null(std::string_view key) const {
    const auto it = parts.find(key);
    return it == parts.end() ? nullptr : std::make_unique<QuantPart>(it->second);
  }
};

/// Codes as a matrix of `values` values an element.
void check_matrix(const QuantPart& codes, const char* type) {
  if (codes.type == type && codes.shape.size() == 2 && codes.shape[0] > 0 && codes.shape[1] > 0) return;
  fail_load("%s: tensor %s is %s with %zu dimensions, needed is a matrix of %s.", codes.file->path().c_str(),
            quote(codes.name).c_str(), codes.type.c_str(), codes.shape.size(), type);
}

void check_multiple(const QuantPart& codes, const char* what, int64_t value, int64_t of) {
  if (value % of == 0) return;
  fail_load("%s: the weight of %s has %lld %s, needed is a multiple of %lld.", codes.file->path().c_str(),
            quote(codes.name).c_str(), static_cast<ll>(value), what, static_cast<ll>(of));
}

/// The one value of a scale of a whole tensor, of any number of dimensions.
float single_scale(const QuantPart& part) {
  check_part(part, "F32 F16 BF16", part.count() == 1 ? part.shape : std::vector<int64_t>{1});
  const float value = part.number(0);
  if (!std::isfinite(value) || value == 0)
    fail_load("%s: tensor %s is the scale %g, needed is a finite number other than 0.",
              part.file->path().c_str(), quote(part.name).c_str(), static_cast<double>(value));
  return value;
}

std::shared_ptr<const std::vector<float>> one_scale(float value) {
  return std::make_shared<const std::vector<float>>(1, value);
}

Weight weight_of(const Module& module, const QuantPart& codes, Format format, int64_t rows, int64_t cols) {
  Weight out;
  out.name = module.name + ".weight";
  out.format = format;
  out.shape = {rows, cols};
  out.data = codes.data;
  out.bytes = codes.bytes;
  out.file = codes.file;
  return out;
}

Weight join_fp8(const Module& module, const QuantScheme& scheme) {
  const QuantPart& codes = module.part("weight", scheme);
  check_matrix(codes, "F8_E4M3");
  Weight out = weight_of(module, codes, Format::F8_E4M3, codes.shape[0], codes.shape[1]);
  if (scheme.kind == QuantScheme::Fp8Block) {
    const QuantPart& scale =
        module.part(module.has("weight_scale_inv") ? "weight_scale_inv" : "weight_scale", scheme);
    check_multiple(codes, "inputs", codes.shape[1], 64);
    if (scheme.block_cols % 64 != 0)
      fail_load("%s: FP8 blocks of %lld inputs are not implemented, needed is a multiple of 64.",
                codes.file->path().c_str(), static_cast<ll>(scheme.block_cols));
    check_part(scale, "F32 F16 BF16",
               {(codes.shape[0] - 1) / scheme.block_rows + 1, (codes.shape[1] - 1) / scheme.block_cols + 1});
    out.format = Format::F8_E4M3_64;
    out.source = fp8_block_rows(codes, scale, scheme.block_rows, scheme.block_cols);
    return out;
  }
  const QuantPart& scale = module.part("weight_scale", scheme);
  if (scale.count() == 1) {
    out.scale = one_scale(single_scale(scale));
    return out;
  }
  check_part(scale, "F32 F16 BF16",
             scale.shape.size() == 1 ? std::vector{codes.shape[0]} : std::vector{codes.shape[0], int64_t{1}});
  std::vector<float> values(static_cast<size_t>(codes.shape[0]));
  for (size_t r = 0; r < values.size(); ++r) {
    values[r] = scale.number(static_cast<int64_t>(r));
    if (!std::isfinite(values[r]))
      fail_load("%s: tensor %s holds the scale %g at %zu, needed is a finite number.",
                scale.file->path().c_str(), quote(scale.name).c_str(), static_cast<double>(values[r]), r);
  }
  out.scale = std::make_shared<const std::vector<float>>(std::move(values));
  return out;
}

Weight join_nvfp4(const Module& module, const QuantScheme& scheme) {
  const QuantPart& codes = module.part(scheme.modelopt ? "weight" : "weight_packed", scheme);
  const QuantPart& scale = module.part("weight_scale", scheme);
  const QuantPart& global = module.part(scheme.modelopt ? "weight_scale_2" : "weight_global_scale", scheme);
  check_matrix(codes, "U8");
  const int64_t rows = codes.shape[0], cols = 2 * codes.shape[1];
  check_multiple(codes, "inputs", cols, 64);
  check_part(scale, "F8_E4M3", {rows, cols / 16});
  Weight out = weight_of(module, codes, Format::NVFP4, rows, cols);
  out.scale = one_scale(scheme.modelopt ? single_scale(global) : 1.0f / single_scale(global));
  out.source = nvfp4_rows(codes, scale);
  return out;
}

Weight join_int4(const Module& module, const QuantScheme& scheme) {
  Int4Parts p;
  const bool packed = scheme.kind == QuantScheme::PackedInt4;
  p.layout = packed ? Int4Parts::Packed : scheme.kind == QuantScheme::Gptq ? Int4Parts::Gptq : Int4Parts::Awq;
  p.codes = module.part(packed ? "weight_packed" : "qweight", scheme);
  p.scales = module.part(packed ? "weight_scale" : "scales", scheme);
  p.zero_offset = scheme.zero_offset;
  check_matrix(p.codes, "I32");
  const int64_t first = p.codes.shape[0], second = p.codes.shape[1];
  p.rows = p.layout == Int4Parts::Packed ? first : p.layout == Int4Parts::Gptq ? second : 8 * second;
  p.cols = p.layout == Int4Parts::Packed ? 8 * second : p.layout == Int4Parts::Gptq ? 8 * first : first;
  check_multiple(p.codes, "inputs", p.cols, 32);
  p.group_size = scheme.group_size == 0 ? p.cols : scheme.group_size;
  check_multiple(p.codes, "inputs", p.cols, p.group_size);
  const int64_t groups = p.cols / p.group_size;
  check_part(p.scales, "F32 F16 BF16", packed ? std::vector{p.rows, groups} : std::vector{groups, p.rows});
  if (packed) {
    if (module.has("weight_shape")) {
      const QuantPart& shape = module.part("weight_shape", scheme);
      check_part(shape, "I64", {2});
      int64_t sizes[2];
      std::memcpy(sizes, shape.data, sizeof sizes);
      if (sizes[0] != p.rows || sizes[1] != p.cols)
        fail_load("%s: tensor %s is %lld x %lld, the codes are of %lld x %lld.", shape.file->path().c_str(),
                  quote(shape.name).c_str(), static_cast<ll>(sizes[0]), static_cast<ll>(sizes[1]),
                  static_cast<ll>(p.rows), static_cast<ll>(p.cols));
    }
    p.zeros = module.part_or_null("weight_zero_point");
    if (p.zeros && p.zeros->type == "I8") {
      check_part(*p.zeros, "I8", {p.rows, groups});
    } else if (p.zeros) {
      check_part(*p.zeros, "I32", {(p.rows + 7) / 8, groups});
    }
    p.groups = module.part_or_null("weight_g_idx");
  } else {
    check_multiple(p.codes, "outputs", p.rows, 8);
    p.zeros = std::make_unique<QuantPart>(module.part("qzeros", scheme));
    check_part(*p.zeros, "I32", {groups, p.rows / 8});
    if (scheme.act_order) p.groups = std::make_unique<QuantPart>(module.part("g_idx", scheme));
  }
  if (p.groups) check_part(*p.groups, "I32", {p.cols});
  Weight out = weight_of(module, p.codes, Format::Q4_Z, p.rows, p.cols);
  Int4Rows rows = int4_rows(std::move(p));
  out.source = std::move(rows.source);
  out.order = std::move(rows.order);
  return out;
}

Weight join(const Module& module, const QuantScheme& scheme) {
  switch (scheme.kind) {
    case QuantScheme::Fp8:
    case QuantScheme::Fp8Block:
      return join_fp8(module, scheme);
    case QuantScheme::Nvfp4:
      return join_nvfp4(module, scheme);
    default:
      return join_int4(module, scheme);
  }
}

/// A plain matrix that a linear module would hold: embeddings are looked up.
bool is_linear(const Module& module) {
  const auto weight = module.parts.find("weight");
  const size_t dot = module.name.rfind('.');
  const std::string_view last = std::string_view(module.name).substr(dot == module.name.npos ? 0 : dot + 1);
  return weight != module.parts.end() && weight->second.shape.size() == 2 && last.find("embed") == last.npos;
}

}  // namespace

void HuggingFaceCheckpoint::join_quantised() {
  Json hf_quant;
  const std::string hf_quant_path = path_ + "/hf_quant_config.json";
  if (std::error_code ignored; std::filesystem::exists(hf_quant_path, ignored))
    hf_quant =
        parse_json(read_text_file(hf_quant_path, size_t{1} << 25), hf_quant_path.c_str(), Status::ModelLoad);
  const QuantConfig config(config_, hf_quant, path_);

  std::map<std::string, Module, std::less<>> modules;
  const auto add = [&](const std::string& name, QuantPart part) {
    const size_t dot = name.rfind('.');
    if (dot == name.npos) return;
    Module& module = modules[name.substr(0, dot)];
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
  size_t kv_scales = 0;
  for (const auto& [name, module] : modules) {
    for (const auto& [key, part] : module.parts) {
      if (!contains(kKvParts, key) || !config.quantised()) continue;
      ++kv_scales;
      erase(part);
    }
    const bool quantised = module.quantised();
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
      Weight weight = join(module, *scheme);
      for (const auto& [key, part] : module.parts)
        if (key == "weight" || contains(kCodes, key) || contains(kParts, key)) erase(part);
      weights_.insert_or_assign(weight.name, std::move(weight));
      ++counts[scheme->name + (scheme->quantised_activations ? ", weight-only" : "")];
    } catch (const Error& error) {
      for (const auto& [key, part] : module.parts)
        if (key != "bias") erase(part);
      faults_[name + ".weight"] = error.message();
    }
  }
  // Codes alone are no weight.
  for (auto it = weights_.begin(); it != weights_.end();) {
    const Weight& weight = it->second;
    if (weight.format == Format::F8_E4M3 && !weight.scale) {
      unsupported_[it->first] = {"F8_E4M3", weight.file, weight.shape, weight.data, weight.bytes};
      it = weights_.erase(it);
    } else {
      ++it;
    }
  }
  if (!config.quantised()) return;
  quantisation_ = config.method();
  for (const auto& [what, count] : counts) quantisation_ += format(" %s (%zu weights)", what.c_str(), count);
  if (kv_scales > 0)
    log_warning("%s: %zu scales of a quantised KV cache are left aside", path_.c_str(), kv_scales);
}

}  // namespace vllm

#include "weights/quantisation.h"

#include <pcre2.h>

#include <algorithm>
#include <cctype>

#include "base/log.h"
#include "weights/fields.h"

namespace vllm {
namespace {

std::vector<std::string_view> split(std::string_view name) {
  std::vector<std::string_view> out;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    out.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

/// Without the components that differ between a checkpoint's tensor names and the class that was quantised:
/// "model.language_model.layers.0" and "language_model.model.layers.0" are "layers.0".
std::string_view plain_name(std::string_view name) {
  for (bool found = true; found;) {
    found = false;
    for (const std::string_view outer : {"model.", "language_model.", "text_model."}) {
      if (!name.starts_with(outer)) continue;
      name.remove_prefix(outer.size());
      found = true;
    }
  }
  return name;
}

/// A component against a pattern in which `*` stands for any text. Linear but for the backtracking to the
/// last star.
bool matches_wildcard(std::string_view text, std::string_view pattern) {
  size_t t = 0, p = 0, star = pattern.npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p, ++t;
    } else if (star != pattern.npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

const Json& member(const Json& object, std::string_view key) {
  static const Json absent;
  if (!object.is_object()) return absent;
  const auto it = object.find(key);
  return it == object.end() ? absent : *it;
}

bool is_empty(const Json& value) { return value.is_null() || value.empty(); }

}  // namespace

/// A name of the lists of modules: a regular expression "re:...", the class "Linear", or a run of components
/// with `*`, which stands for every module below it too.
struct QuantConfig::Pattern {
  std::string text;
  std::vector<std::string> parts;  // of a plain name
  bool all = false;
  std::shared_ptr<pcre2_code> expression;

  bool is_regex() const { return expression != nullptr; }
  /// `components` are those of the module's plain name.
  bool matches(std::string_view module, const std::vector<std::string_view>& components) const {
    if (all) return true;
    if (expression) {
      // As Python's re.match: from the start, the end is free.
      constexpr uint32_t kSteps = 100'000;
      const std::unique_ptr<pcre2_match_context, FreeContext> context(pcre2_match_context_create(nullptr));
      const std::unique_ptr<pcre2_match_data, FreeMatch> data(
          pcre2_match_data_create_from_pattern(expression.get(), nullptr));
      if (!context || !data)
        fail_load("The memory for the module expression %s is short.", quote(text).c_str());
      pcre2_set_match_limit(context.get(), kSteps);
      const int found = pcre2_match(expression.get(), reinterpret_cast<PCRE2_SPTR>(module.data()),
                                    module.size(), 0, PCRE2_ANCHORED, data.get(), context.get());
      if (found < 0 && found != PCRE2_ERROR_NOMATCH)
        fail_load("The module expression %s cannot be matched with %s (error %d).", quote(text).c_str(),
                  quote(module).c_str(), found);
      return found >= 0;
    }
    for (size_t at = 0; at + parts.size() <= components.size(); ++at) {
      size_t i = 0;
      while (i < parts.size() && matches_wildcard(components[at + i], parts[i])) ++i;
      if (i == parts.size()) return true;
    }
    return false;
  }
};

QuantConfig::~QuantConfig() = default;

QuantConfig::QuantConfig(const Json& config, const Json& hf_quant, const std::string& directory) {
  source_ = directory + "/config.json: quantization_config";
  const Json* settings = &member(config, "quantization_config");
  if (settings->is_null()) settings = &member(config, "compression_config");
  const Json& modelopt = member(hf_quant, "quantization");
  if (is_empty(*settings) ||
      (member(*settings, "quant_method") == "modelopt" && !settings->contains("quant_algo"))) {
    if (modelopt.is_null()) {
      if (is_empty(*settings)) return;
    } else {
      source_ = directory + "/hf_quant_config.json: quantization";
      settings = &modelopt;
    }
  }
  if (!settings->is_object())
    fail_load("%s is %s, needed is an object.", source_.c_str(), quote(dump_json(*settings)).c_str());
  const Fields fields(*settings, source_);
  method_ = settings == &modelopt ? "modelopt" : fields.string("quant_method");
  if (method_ == "compressed-tensors") {
    read_compressed_tensors(*settings);
  } else if (method_ == "modelopt" || method_ == "modelopt_fp4") {
    read_modelopt(*settings);
  } else if (method_ == "fp8") {
    read_fp8(*settings);
  } else if (method_ == "gptq") {
    read_gptq(*settings);
  } else if (method_ == "awq") {
    read_awq(*settings);
  } else {
    fields.fail("quant_method", "compressed-tensors, modelopt, fp8, gptq or awq");
  }
}

void QuantConfig::read_patterns(const Json& settings, const char* key, bool classes,
                                std::vector<Pattern>& out) const {
  for (std::string& text : Fields(settings, source_).strings(key)) {
    Pattern pattern;
    if (text.starts_with("re:")) {
      int error = 0;
      PCRE2_SIZE at = 0;
      pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data() + 3), text.size() - 3,
                                       PCRE2_UTF, &error, &at, nullptr);
      if (code == nullptr)
        fail_load("%s.%s holds the expression %s, which has an error at byte %zu.", source_.c_str(), key,
                  quote(text).c_str(), static_cast<size_t>(at));
      pattern.expression = std::shared_ptr<pcre2_code>(code, FreeCode());
    } else if (classes && text == "Linear") {
      pattern.all = true;
    } else if (text.empty()) {
      continue;
    } else {
      for (const std::string_view part : split(plain_name(text))) pattern.parts.emplace_back(part);
    }
    pattern.text = std::move(text);
    out.push_back(std::move(pattern));
  }
}

/// The KV cache is kept in a float type of its own, so scales for an FP8 one are left aside.
void QuantConfig::check_kv_scheme(const Json& settings, const char* key) const {
  const Json& scheme = member(settings, key);
  if (scheme.is_null()) return;
  const bool fp8 = scheme == "FP8" || (scheme.is_object() && member(scheme, "num_bits") == 8 &&
                                       member(scheme, "type") == "float");
  if (!fp8) Fields(settings, source_).fail(key, "an FP8 scheme or none");
  log_warning("%s.%s asks for an FP8 KV cache: its scales are left aside, the cache is kept in floats",
              source_.c_str(), key);
}

void QuantConfig::read_compressed_tensors(const Json& settings) {
  const Fields fields(settings, source_);
  const std::string format_name = fields.string_or("format", "");
  if (const Json& sparsity = member(settings, "sparsity_config"); !is_empty(sparsity)) {
    if (member(sparsity, "format") != "dense") fields.fail("sparsity_config", "none or the format dense");
  }
  if (!is_empty(member(member(settings, "transform_config"), "config_groups")))
    fields.fail("transform_config", "none: transforms are not implemented");
  check_kv_scheme(settings, "kv_cache_scheme");
  read_patterns(settings, "ignore", false, ignored_);
  const Json& groups = member(settings, "config_groups");
  if (!groups.is_object() || groups.empty()) fields.fail("config_groups", "an object of groups");
  for (const auto& [name, group] : groups.get_ref<const Json::object_t&>()) {
    const std::string where = source_ + ".config_groups." + name;
    if (!group.is_object()) fail_load("%s is no object.", where.c_str());
    const Fields group_fields(group, where);
    const std::optional<Fields> weights = group_fields.object("weights");
    Group out;
    read_patterns(group, "targets", true, out.targets);
    if (out.targets.empty()) group_fields.fail("targets", "names, expressions or classes");
    if (!weights) continue;  // activations alone
    const int64_t bits = weights->integer("num_bits", 1, 64);
    const std::string type = weights->string_or("type", "int");
    const std::string strategy = weights->string_or("strategy", "tensor");
    const std::string layout = group_fields.string_or("format", format_name);
    QuantScheme& scheme = out.scheme;
    const Json& activations = member(group, "input_activations");
    if (activations.is_object() && !activations.empty())
      scheme.activations =
          format("W%lldA%lld", static_cast<long long>(bits),
                 static_cast<long long>(
                     Fields(activations, where + ".input_activations").integer_or("num_bits", 8, 1, 64)));
    if (type == "float" && bits == 8 && (strategy == "tensor" || strategy == "channel")) {
      scheme.kind = QuantScheme::Fp8;
      scheme.name = "FP8 by " + strategy;
    } else if (type == "float" && bits == 8 && strategy == "block") {
      scheme.kind = QuantScheme::Fp8Block;
      scheme.name = "FP8 in blocks";
      const std::vector<int64_t> block = weights->integers("block_structure", 1, 1 << 20);
      if (block.size() != 2) weights->fail("block_structure", "two sizes");
      scheme.block_rows = block[0];
      scheme.block_cols = block[1];
    } else if (type == "float" && bits == 4 && strategy == "tensor_group" &&
               weights->integer_or("group_size", 0, 0, 1 << 20) == 16) {
      scheme.kind = QuantScheme::Nvfp4;
      scheme.name = "NVFP4";
    } else if (type == "int" && bits == 8 && (layout == "int-quantized" || layout == "naive-quantized") &&
               (strategy == "channel" || strategy == "tensor")) {
      scheme.kind = QuantScheme::Int8;
      scheme.name = "INT8 by " + strategy;
    } else if (type == "int" && (bits == 4 || bits == 8) && layout == "pack-quantized" &&
               (strategy == "group" || strategy == "channel" || strategy == "tensor")) {
      scheme.kind = QuantScheme::PackedInt;
      scheme.bits = static_cast<int>(bits);
      scheme.name = bits == 4 ? "INT4" : "INT8";
      if (strategy == "group") scheme.group_size = weights->integer("group_size", 1, 1 << 20);
    } else {
      fail_load(
          "%s quantises weights to %s of %lld bits by %s in the format %s, needed is float8 by tensor, "
          "channel or block, float4 by tensor_group of 16, int4 or int8 pack-quantized, or int8 by tensor or "
          "channel int-quantized.",
          where.c_str(), quote(type).c_str(), static_cast<long long>(bits), quote(strategy).c_str(),
          quote(layout).c_str());
    }
    groups_.push_back(std::move(out));
  }
}

QuantScheme QuantConfig::modelopt_scheme(const std::string& algorithm, int64_t group_size) const {
  QuantScheme scheme;
  scheme.modelopt = true;
  if (algorithm == "FP8" || algorithm == "FP8_PER_CHANNEL_PER_TOKEN") {
    scheme.kind = QuantScheme::Fp8;
    scheme.name = algorithm == "FP8" ? "FP8 by tensor" : "FP8 by channel";
    scheme.activations = "W8A8";
  } else if (algorithm == "NVFP4" || algorithm == "W4A16_NVFP4") {
    if (group_size != 16)
      fail_load("%s: %s has groups of %lld inputs, needed are 16.", source_.c_str(), algorithm.c_str(),
                static_cast<long long>(group_size));
    scheme.kind = QuantScheme::Nvfp4;
    scheme.name = "NVFP4";
    if (algorithm == "NVFP4") scheme.activations = "W4A4";
  } else {
    fail_load(
        "%s: the quant_algo %s is not implemented, needed is FP8, NVFP4, W4A16_NVFP4 or MIXED_PRECISION.",
        source_.c_str(), quote(algorithm).c_str());
  }
  return scheme;
}

void QuantConfig::read_modelopt(const Json& settings) {
  const Fields fields(settings, source_);
  const std::string algorithm = fields.string("quant_algo");
  check_kv_scheme(settings, settings.contains("kv_cache_scheme") ? "kv_cache_scheme" : "kv_cache_quant_algo");
  read_patterns(settings, "exclude_modules", false, ignored_);
  read_patterns(settings, "ignore", false, ignored_);
  const int64_t group_size = fields.integer_or("group_size", 16, 1, 1 << 20);
  if (algorithm != "MIXED_PRECISION") {
    groups_.push_back({{}, modelopt_scheme(algorithm, group_size)});
    return;
  }
  by_module_ = true;
  const Json& layers = member(settings, "quantized_layers");
  if (!layers.is_object() || layers.empty()) fields.fail("quantized_layers", "an object of modules");
  for (const auto& [name, layer] : layers.get_ref<const Json::object_t&>()) {
    const std::string where = source_ + ".quantized_layers." + name;
    if (!layer.is_object()) fail_load("%s is no object.", where.c_str());
    const Fields layer_fields(layer, where);
    modules_[std::string(plain_name(name))] = modelopt_scheme(
        layer_fields.string("quant_algo"), layer_fields.integer_or("group_size", group_size, 1, 1 << 20));
  }
}

void QuantConfig::read_fp8(const Json& settings) {
  const Fields fields(settings, source_);
  if (fields.string_or("fmt", "e4m3") != "e4m3") fields.fail("fmt", "e4m3");
  read_patterns(settings, "modules_to_not_convert", false, ignored_);
  read_patterns(settings, "ignored_layers", false, ignored_);
  Group group;
  group.scheme.name = "FP8 by tensor";
  group.scheme.activations = "W8A8";
  const std::vector<int64_t> block = fields.integers("weight_block_size", 1, 1 << 20);
  if (!block.empty()) {
    if (block.size() != 2) fields.fail("weight_block_size", "two sizes");
    group.scheme.kind = QuantScheme::Fp8Block;
    group.scheme.name = "FP8 in blocks";
    group.scheme.block_rows = block[0];
    group.scheme.block_cols = block[1];
  }
  groups_.push_back(std::move(group));
}

void QuantConfig::read_gptq(const Json& settings) {
  const Fields fields(settings, source_);
  const int64_t bits = fields.integer("bits", 1, 64);
  if (bits != 4 && bits != 8) fields.fail("bits", "4 or 8");
  if (!is_empty(member(settings, "dynamic")))
    fields.fail("dynamic", "none: rules by module are not implemented");
  const std::string layout = fields.string_or("checkpoint_format", "gptq");
  if (layout != "gptq" && layout != "gptq_v2") fields.fail("checkpoint_format", "gptq or gptq_v2");
  Group group;
  group.scheme.kind = QuantScheme::Gptq;
  group.scheme.name = bits == 4 ? "GPTQ INT4" : "GPTQ INT8";
  group.scheme.bits = static_cast<int>(bits);
  group.scheme.group_size = std::max<int64_t>(0, fields.integer("group_size", -1, 1 << 20));
  group.scheme.act_order = fields.boolean_or("desc_act", false);
  group.scheme.zero_offset = layout == "gptq" ? 1 : 0;
  groups_.push_back(std::move(group));
}

void QuantConfig::read_awq(const Json& settings) {
  const Fields fields(settings, source_);
  const char* bits = settings.contains("w_bit") ? "w_bit" : "bits";
  if (fields.integer(bits, 1, 64) != 4) fields.fail(bits, "4");
  std::string version = fields.string_or("version", "gemm");
  std::ranges::transform(version, version.begin(), [](unsigned char c) { return std::tolower(c); });
  if (version != "gemm" && version != "gemv") fields.fail("version", "gemm or gemv");
  read_patterns(settings, "modules_to_not_convert", false, ignored_);
  Group group;
  group.scheme.kind = version == "gemm" ? QuantScheme::Awq : QuantScheme::AwqGemv;
  group.scheme.name = "AWQ INT4";
  group.scheme.group_size = std::max<int64_t>(
      0, fields.integer(settings.contains("q_group_size") ? "q_group_size" : "group_size", -1, 1 << 20));
  groups_.push_back(std::move(group));
}

const QuantScheme* QuantConfig::find(std::string_view module) const {
  const std::vector<std::string_view> components = split(plain_name(module));
  for (const Pattern& pattern : ignored_)
    if (pattern.matches(module, components)) return nullptr;
  if (by_module_) {
    for (std::string_view name = plain_name(module);;) {
      if (const auto it = modules_.find(name); it != modules_.end()) return &it->second;
      const size_t dot = name.rfind('.');
      if (dot == name.npos) return nullptr;
      name = name.substr(0, dot);
    }
  }
  // A name goes before an expression, and that before the class.
  const auto rank = [](const Pattern& pattern) { return pattern.all ? 2 : pattern.is_regex() ? 1 : 0; };
  const QuantScheme* best = nullptr;
  int best_rank = 3;
  for (const Group& group : groups_) {
    if (group.targets.empty()) return &group.scheme;
    for (const Pattern& pattern : group.targets) {
      if (rank(pattern) >= best_rank || !pattern.matches(module, components)) continue;
      best = &group.scheme;
      best_rank = rank(pattern);
    }
  }
  return best;
}

bool QuantConfig::is_complete(std::string_view module) const {
  // GPTQ and AWQ list no exceptions, and the FP8 of transformers passes over the output matrix unasked.
  if (method_ == "gptq" || method_ == "awq") return false;
  return method_ != "fp8" || !module.ends_with("lm_head");
}

}  // namespace vllm

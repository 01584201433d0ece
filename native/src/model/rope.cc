#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace vllm {
namespace {

constexpr double kMaxFactor = 1e6;
constexpr int kMaxContext = 1 << 30;

struct Yarn {
  double factor = 1;
  double context = 0;  // tokens the model was trained with before the extension
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;  // the ramp begins and ends at whole pairs
};

/// Pairs that turn more than beta_fast times within the original context are kept, those that turn less than
/// beta_slow times are slowed by `factor`, those between blended ("YaRN", arXiv 2309.00071).
void scale_yarn(std::vector<float>& inv_freq, double theta, const Yarn& yarn) {
  const auto dim = static_cast<double>(2 * inv_freq.size());
  const auto pair_of = [&](double turns) {
    return dim * std::log(yarn.context / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
  };
  double low = pair_of(yarn.beta_fast), high = pair_of(yarn.beta_slow);
  if (yarn.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    inv_freq[i] = static_cast<float>(inv_freq[i] * (ramp / yarn.factor + 1 - ramp));
  }
}

/// Growth of the attention scores' temperature with the context: 0.1 m ln(factor) + 1.
double yarn_magnitude(double factor, double m = 1) {
  return factor <= 1 ? 1.0 : 0.1 * m * std::log(factor) + 1;
}

void divide(std::vector<float>& inv_freq, const std::vector<double>& divisors) {
  for (size_t i = 0; i < inv_freq.size(); ++i) inv_freq[i] = static_cast<float>(inv_freq[i] / divisors[i]);
}

/// Whether longrope takes its long factors: where sequences may outgrow the original context. One choice for
/// all positions and requests, so that cached keys stay valid.
bool outgrows(const ModelSpec& spec, int64_t context) {
  return (spec.wanted_length > 0 ? spec.wanted_length : spec.max_position) > context;
}

/// The configuration's parts that a scaling reads.
struct HfRope {
  const Fields& config;
  const Fields& scaling;
  ModelSpec& spec;
  double theta;
  RopeSpec rope;

  double factor() const { return scaling.number("factor", 1e-3, kMaxFactor); }
  int64_t max_position() const { return config.integer("max_position_embeddings", 1, kMaxContext); }

  /// Phi-3 states it beside the rope parameters, which then wins.
  int64_t original_context() const {
    constexpr const char* kKey = "original_max_position_embeddings";
    if (config.has(kKey)) return config.integer(kKey, 2, kMaxContext);
    return scaling.integer_or(kKey, max_position(), 2, kMaxContext);
  }

  void extend(double positions) {
    spec.max_position = std::max(spec.max_position, static_cast<int>(std::min(positions, 0x1p30)));
  }

  void linear() {
    const double by = factor();
    for (float& f : rope.inv_freq) f = static_cast<float>(f / by);
  }

  /// The base that dynamic scaling reaches at factor times the trained length, for all positions.
  void dynamic() {
    if (scaling.has("alpha")) scaling.fail("alpha", "no alpha: only a dynamic scaling by factor is served");
    const double by = scaling.number("factor", 1, kMaxFactor);
    const auto dim = static_cast<int>(2 * rope.inv_freq.size());
    if (dim < 4)
      fail_load("%s: %d values of a head turn, needed for a dynamic rope are at least 4",
                config.source().c_str(), dim);
    rope.inv_freq = inverse_frequencies(theta * std::pow(by * by - (by - 1), dim / (dim - 2.0)), dim);
    extend(by * static_cast<double>(max_position()));
  }

  void yarn() {
    if (theta <= 1)
      fail_load("%s: rope_theta is %g, needed for yarn is a number above 1", config.source().c_str(), theta);
    Yarn y;
    y.factor = factor();
    y.context = static_cast<double>(original_context());
    y.beta_fast = scaling.number_or("beta_fast", y.beta_fast, 1e-6, kMaxFactor);
    y.beta_slow = scaling.number_or("beta_slow", y.beta_slow, 1e-6, y.beta_fast);
    y.truncate = scaling.boolean_or("truncate", true);
    scale_yarn(rope.inv_freq, theta, y);
    double magnitude = yarn_magnitude(y.factor);
    if (scaling.has("mscale") && scaling.has("mscale_all_dim"))
      magnitude = yarn_magnitude(y.factor, scaling.number("mscale", 1e-6, kMaxFactor)) /
                  yarn_magnitude(y.factor, scaling.number("mscale_all_dim", 1e-6, kMaxFactor));
    rope.magnitude = static_cast<float>(scaling.number_or("attention_factor", magnitude, 1e-6, kMaxFactor));
    extend(y.factor * y.context);
  }

  void longrope() {
    for (const char* key : {"short_mscale", "long_mscale"})
      if (scaling.has(key)) scaling.fail(key, "attention_factor: magnitudes by length are not served");
    const int64_t context = original_context();
    const double by = scaling.number_or(
        "factor", static_cast<double>(max_position()) / static_cast<double>(context), 1e-9, kMaxFactor);
    const double magnitude =
        by <= 1 ? 1.0 : std::sqrt(1 + std::log(by) / std::log(static_cast<double>(context)));
    rope.magnitude = static_cast<float>(scaling.number_or("attention_factor", magnitude, 1e-6, kMaxFactor));
    // Both lists are checked, so that a file does not depend on the length it is loaded with.
    const std::vector<double> short_factors = factors("short_factor"), long_factors = factors("long_factor");
    divide(rope.inv_freq, outgrows(spec, context) ? long_factors : short_factors);
  }

  std::vector<double> factors(const char* key) const {
    const std::vector<double> out = scaling.numbers(key);
    const auto bad = [](double f) { return f < 1e-3 || f > kMaxFactor; };
    if (out.size() != rope.inv_freq.size() || std::any_of(out.begin(), out.end(), bad))
      scaling.fail(key, format("a list of %zu numbers from 0.001 to 1e6", rope.inv_freq.size()));
    return out;
  }

  /// Long wavelengths are slowed by `factor`, short ones kept, those between blended (Llama 3.1).
  void llama3() {
    const double by = scaling.number("factor", 1, kMaxFactor);
    const double low = scaling.number("low_freq_factor", 1e-6, kMaxFactor);
    const double high = scaling.number("high_freq_factor", 1e-6, kMaxFactor);
    const auto context = static_cast<double>(original_context());
    if (high <= low) scaling.fail("high_freq_factor", format("a number above low_freq_factor (%g)", low));
    for (float& f : rope.inv_freq) {
      const double wavelength = 2 * std::numbers::pi / f;
      if (wavelength < context / high) continue;
      if (wavelength > context / low) {
        f = static_cast<float>(f / by);
      } else {
        const double smooth = (context / wavelength - low) / (high - low);
        f = static_cast<float>((1 - smooth) * f / by + smooth * f);
      }
    }
  }
};

/// The values of a GGUF vector of divisors; empty when it is absent.
std::vector<double> gguf_divisors(const Checkpoint& checkpoint, const char* name, size_t count) {
  const Weight* weight = checkpoint.find(name);
  if (weight == nullptr) return {};
  const WeightView view = weight->view();
  if (view.format != Format::F32 || view.rows != 1 || view.cols != static_cast<int64_t>(count))
    fail_load("%s: %s has %lld values of %s, needed are %zu of F32", checkpoint.path().c_str(), name,
              static_cast<long long>(view.rows * view.cols), format_info(view.format).name, count);
  std::vector<float> values(count);
  format_info(Format::F32).decode(weight->data, view.cols, values.data());
  for (float v : values)
    if (!(v > 0) || !std::isfinite(v))
      fail_load("%s: %s holds %g, needed are numbers above zero", checkpoint.path().c_str(), name, v);
  return {values.begin(), values.end()};
}

void read_gguf_yarn(const Fields& arch, double theta, ModelSpec& spec, RopeSpec& rope) {
  if (theta <= 1) arch.fail("rope.freq_base", "a number above 1 for yarn");
  if (arch.number_or("rope.scaling.yarn_ext_factor", 1, -1e6, 1e6) != 1)
    arch.fail("rope.scaling.yarn_ext_factor", "1");
  if (arch.number_or("rope.scaling.yarn_log_multiplier", 0, -1e6, 1e6) != 0)
    arch.fail("rope.scaling.yarn_log_multiplier", "0");
  Yarn y;
  y.factor = arch.number("rope.scaling.factor", 1e-3, kMaxFactor);
  y.context = static_cast<double>(
      arch.integer_or("rope.scaling.original_context_length", spec.max_position, 2, kMaxContext));
  y.beta_fast = arch.number_or("rope.scaling.yarn_beta_fast", y.beta_fast, 1e-6, kMaxFactor);
  y.beta_slow = arch.number_or("rope.scaling.yarn_beta_slow", y.beta_slow, 1e-6, y.beta_fast);
  scale_yarn(rope.inv_freq, theta, y);
  rope.magnitude *= static_cast<float>(yarn_magnitude(y.factor) *
                                       arch.number_or("rope.scaling.yarn_attn_factor", 1, 1e-6, kMaxFactor));
  spec.max_position = std::max(spec.max_position, static_cast<int>(std::min(y.factor * y.context, 0x1p30)));
}

}  // namespace

std::vector<float> inverse_frequencies(double theta, int dim) {
  std::vector<float> out(static_cast<size_t>(dim / 2));
  for (int i = 0; i < dim / 2; ++i) out[i] = static_cast<float>(std::pow(theta, -2.0 * i / dim));
  return out;
}

RopeSpec read_hf_rope(const Fields& config, ModelSpec& spec, const char* layer_type, double partial) {
  std::optional<Fields> parameters = config.object("rope_parameters");
  if (parameters && layer_type != nullptr && parameters->has(layer_type)) {
    const Fields of_type = *parameters->object(layer_type);
    parameters.emplace(of_type);
  }
  const std::optional<Fields> scaling = parameters ? parameters : config.object("rope_scaling");
  const double theta = parameters && parameters->has("rope_theta")
                           ? parameters->number("rope_theta", 1e-3, 1e15)
                           : config.number_or("rope_theta", 10000, 1e-3, 1e15);
  partial = config.number_or("partial_rotary_factor", partial, 0, 1);
  if (parameters) partial = parameters->number_or("partial_rotary_factor", partial, 0, 1);
  RopeSpec plain;
  plain.inv_freq = inverse_frequencies(theta, static_cast<int>(spec.head_dim * partial) / 2 * 2);
  if (!scaling) return plain;

  HfRope read{config, *scaling, spec, theta, std::move(plain)};
  const char* type_key = scaling->has("rope_type") ? "rope_type" : "type";
  const std::string type = scaling->string_or(type_key, "default");
  if (type == "linear") {
    read.linear();
  } else if (type == "dynamic") {
    read.dynamic();
  } else if (type == "yarn") {
    read.yarn();
  } else if (type == "longrope" || type == "su") {
    read.longrope();
  } else if (type == "llama3") {
    read.llama3();
  } else if (type != "default" && type != "mrope") {
    scaling->fail(type_key, "default, linear, dynamic, yarn, longrope, llama3 or mrope");
  }
  return read.rope;
}

RopeSpec read_gguf_rope(const Fields& arch, const Checkpoint& checkpoint, ModelSpec& spec) {
  const double theta = arch.number_or("rope.freq_base", 10000, 1e-3, 1e15);
  RopeSpec rope;
  rope.inv_freq = inverse_frequencies(
      theta,
      static_cast<int>(arch.integer_or("rope.dimension_count", spec.head_dim, 2, spec.head_dim)) / 2 * 2);
  rope.magnitude = static_cast<float>(arch.number_or("rope.scaling.attn_factor", 1, 1e-6, kMaxFactor));
  const std::string type =
      arch.string_or("rope.scaling.type", arch.has("rope.scaling.factor") ? "linear" : "none");
  if (type == "linear") {
    const double factor = arch.number("rope.scaling.factor", 1e-3, kMaxFactor);
    for (float& f : rope.inv_freq) f = static_cast<float>(f / factor);
  } else if (type == "yarn") {
    read_gguf_yarn(arch, theta, spec, rope);
  } else if (type != "none" && type != "longrope") {
    arch.fail("rope.scaling.type", "none, linear, yarn or longrope");
  }

  const size_t pairs = rope.inv_freq.size();
  const auto all = gguf_divisors(checkpoint, "rope_freqs.weight", pairs);
  if (!all.empty()) divide(rope.inv_freq, all);
  const auto short_factors = gguf_divisors(checkpoint, "rope_factors_short.weight", pairs);
  const auto long_factors = gguf_divisors(checkpoint, "rope_factors_long.weight", pairs);
  if (short_factors.empty() != long_factors.empty() || (type == "longrope" && short_factors.empty()))
    fail_load("%s: the tensor rope_factors_%s.weight is missing", checkpoint.path().c_str(),
              short_factors.empty() ? "short" : "long");
  if (!short_factors.empty()) {
    const int64_t context =
        arch.integer_or("rope.scaling.original_context_length", spec.max_position, 2, kMaxContext);
    divide(rope.inv_freq, outgrows(spec, context) ? long_factors : short_factors);
  }
  return rope;
}

}  // namespace vllm

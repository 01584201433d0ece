#include "weights/quantised_join.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace vllm {
namespace {

using ll = long long;

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

Weight weight_of(std::string name, const QuantPart& codes, Format format, std::vector<int64_t> shape) {
  Weight out;
  out.name = std::move(name);
  out.format = format;
  out.shape = std::move(shape);
  out.data = codes.data;
  out.bytes = codes.bytes;
  out.file = codes.file;
  return out;
}

/// The scale of the whole weight or of each row.
std::shared_ptr<const std::vector<float>> row_scales(const QuantPart& scale, int64_t rows) {
  if (scale.count() == 1) return one_scale(single_scale(scale));
  check_part(scale, "F32 F16 BF16",
             scale.shape.size() == 1 ? std::vector{rows} : std::vector{rows, int64_t{1}});
  std::vector<float> values(static_cast<size_t>(rows));
  for (size_t r = 0; r < values.size(); ++r) {
    values[r] = scale.number(static_cast<int64_t>(r));
    if (!std::isfinite(values[r]))
      fail_load("%s: tensor %s holds the scale %g at %zu, needed is a finite number.",
                scale.file->path().c_str(), quote(scale.name).c_str(), static_cast<double>(values[r]), r);
  }
  return std::make_shared<const std::vector<float>>(std::move(values));
}

Weight join_fp8(const QuantModule& module, const QuantScheme& scheme) {
  const QuantPart& codes = module.part("weight", scheme);
  check_matrix(codes, "F8_E4M3");
  Weight out = weight_of(module.weight_name(), codes, Format::F8_E4M3, codes.shape);
  const QuantPart& scale =
      module.part(module.has("weight_scale_inv") ? "weight_scale_inv" : "weight_scale", scheme);
  if (scheme.kind == QuantScheme::Fp8) {
    out.scale = row_scales(scale, out.shape[0]);
    return out;
  }
  Fp8Blocks blocks{codes, scale, scheme.block_rows, scheme.block_cols};
  check_part(blocks.scale, "F32 F16 BF16",
             {(out.shape[0] - 1) / scheme.block_rows + 1, (out.shape[1] - 1) / scheme.block_cols + 1});
  out.format = blocks.format();
  out.source = fp8_block_rows(std::move(blocks));
  return out;
}

Weight join_int8(const QuantModule& module, const QuantScheme& scheme) {
  const QuantPart& codes = module.part("weight", scheme);
  check_matrix(codes, "I8");
  check_multiple(codes, "inputs", codes.shape[1], 32);
  if (module.has("weight_zero_point"))
    fail_load("%s: the INT8 weight of %s has zero points, needed are symmetric codes.",
              codes.file->path().c_str(), quote(codes.name).c_str());
  Weight out = weight_of(module.weight_name(), codes, Format::Q8_0, codes.shape);
  out.scale = row_scales(module.part("weight_scale", scheme), out.shape[0]);
  out.source = int8_rows(codes);
  return out;
}

Weight join_nvfp4(const QuantModule& module, const QuantScheme& scheme) {
  const QuantPart& codes = module.part(scheme.modelopt ? "weight" : "weight_packed", scheme);
  const QuantPart& scale = module.part("weight_scale", scheme);
  const QuantPart& global = module.part(scheme.modelopt ? "weight_scale_2" : "weight_global_scale", scheme);
  check_matrix(codes, "U8");
  const int64_t rows = codes.shape[0], cols = 2 * codes.shape[1];
  check_multiple(codes, "inputs", cols, 64);
  check_part(scale, "F8_E4M3", {rows, cols / 16});
  Weight out = weight_of(module.weight_name(), codes, Format::NVFP4, {rows, cols});
  out.scale = one_scale(scheme.modelopt ? single_scale(global) : 1.0f / single_scale(global));
  out.source = nvfp4_rows(codes, scale);
  return out;
}

Weight join_packed(const QuantModule& module, const QuantScheme& scheme) {
  IntParts p;
  const bool packed = scheme.kind == QuantScheme::PackedInt;
  p.layout = packed                                ? IntParts::Packed
             : scheme.kind == QuantScheme::Gptq    ? IntParts::Gptq
             : scheme.kind == QuantScheme::AwqGemv ? IntParts::AwqGemv
                                                   : IntParts::Awq;
  p.bits = scheme.bits;
  p.codes = module.part(packed ? "weight_packed" : "qweight", scheme);
  p.scales = module.part(packed ? "weight_scale" : "scales", scheme);
  p.zero_offset = scheme.zero_offset;
  check_matrix(p.codes, "I32");
  const int64_t first = p.codes.shape[0], second = p.codes.shape[1], n = p.in_word();
  p.rows = p.layout == IntParts::Gptq ? second : p.layout == IntParts::Awq ? n * second : first;
  p.cols = p.layout == IntParts::Gptq ? n * first : p.layout == IntParts::Awq ? first : n * second;
  check_multiple(p.codes, "inputs", p.cols, 32);
  p.group_size = scheme.group_size == 0 ? p.cols : scheme.group_size;
  check_multiple(p.codes, "inputs", p.cols, p.group_size);
  const int64_t groups = p.cols / p.group_size;
  if (packed) {
    check_part(p.scales, "F32 F16 BF16", {p.rows, groups});
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
      check_part(*p.zeros, "I32", {(p.rows - 1) / n + 1, groups});
    }
    p.groups = module.part_or_null("weight_g_idx");
  } else if (p.layout == IntParts::AwqGemv) {
    // AutoAWQ leaves room for more groups than there are, how much depends on their size.
    p.zeros = std::make_unique<QuantPart>(module.part("qzeros", scheme));
    const int64_t words = (groups - 1) / n + 1;
    const auto stored = [](const QuantPart& part, int64_t least) {
      return part.shape.size() == 2 ? std::max(least, part.shape[1]) : least;
    };
    check_part(*p.zeros, "I32", {p.rows, stored(*p.zeros, words)});
    check_part(p.scales, "F32 F16 BF16", {p.rows, stored(p.scales, groups)});
  } else {
    check_multiple(p.codes, "outputs", p.rows, n);
    check_part(p.scales, "F32 F16 BF16", {groups, p.rows});
    p.zeros = std::make_unique<QuantPart>(module.part("qzeros", scheme));
    check_part(*p.zeros, "I32", {groups, p.rows / n});
    if (scheme.act_order) p.groups = std::make_unique<QuantPart>(module.part("g_idx", scheme));
  }
  if (p.groups) check_part(*p.groups, "I32", {p.cols});
  Weight out = weight_of(module.weight_name(), p.codes, Format::Q4_Z, {p.rows, p.cols});
  IntRows rows = int_rows(std::move(p));
  out.format = rows.format;
  out.source = std::move(rows.source);
  out.scale = std::move(rows.scale);
  out.order = std::move(rows.order);
  return out;
}

}  // namespace

const QuantPart& QuantModule::part(std::string_view key, const QuantScheme& scheme) const {
  const auto it = parts.find(key);
  if (it == parts.end())
    fail_load("%s: the configuration says %s for the module %s, whose tensor %s is missing.",
              file_path.c_str(), scheme.name.c_str(), quote(name).c_str(), quote(std::string(key)).c_str());
  return it->second;
}

std::unique_ptr<QuantPart> QuantModule::part_or_null(std::string_view key) const {
  const auto it = parts.find(key);
  return it == parts.end() ? nullptr : std::make_unique<QuantPart>(it->second);
}

Weight join_module(const QuantModule& module, const QuantScheme& scheme) {
  switch (scheme.kind) {
    case QuantScheme::Fp8:
    case QuantScheme::Fp8Block:
      return join_fp8(module, scheme);
    case QuantScheme::Int8:
      return join_int8(module, scheme);
    case QuantScheme::Nvfp4:
      return join_nvfp4(module, scheme);
    default:
      return join_packed(module, scheme);
  }
}

Weight join_stack(const QuantPart& codes, const QuantPart& scale, const QuantScheme& scheme) {
  const int64_t count = codes.shape[0], rows = codes.shape[1], cols = codes.shape[2];
  check_part(codes, "F8_E4M3",
             {std::max<int64_t>(count, 1), std::max<int64_t>(rows, 1), std::max<int64_t>(cols, 1)});
  Fp8Blocks blocks{codes, scale, rows, cols};
  int64_t high = 1;
  if (scheme.kind == QuantScheme::Fp8Block) {
    blocks.block_rows = scheme.block_rows;
    blocks.block_cols = scheme.block_cols;
    high = (rows - 1) / scheme.block_rows + 1;
  }
  // Gate and up together have at least one scale each.
  if (high == 1 && rows % 2 == 0 && scale.shape.size() == 3 && scale.shape[1] == 2) {
    blocks.block_rows = rows / 2;
    high = 2;
  }
  check_part(scale, "F32 F16 BF16", {count, high, (cols - 1) / blocks.block_cols + 1});
  Weight out = weight_of(codes.name, codes, blocks.format(), codes.shape);
  out.source = fp8_block_rows(std::move(blocks));
  return out;
}

}  // namespace vllm

#include "weights/quantised_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace vllm {
namespace {

using ll = long long;

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

template <typename T>
T load(const uint8_t* data, int64_t index) {
  T value;
  std::memcpy(&value, data + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

void refuse_scale(const QuantPart& part, int64_t index, float value) {
  fail_load("%s: tensor %s holds the scale %g at %lld, needed is a finite number (of NVFP4: from 0).",
            part.file->path().c_str(), quote(part.name).c_str(), static_cast<double>(value),
            static_cast<ll>(index));
}

/// Lets go of the pages of rows [first, first + count) of a part that is made of `rows` rows.
void release_rows(const QuantPart& part, int64_t rows, int64_t first, int64_t count) {
  const size_t row = part.bytes / static_cast<size_t>(rows);
  part.file->release(part.data + static_cast<size_t>(first) * row, static_cast<size_t>(count) * row);
}

/// The same where the rows are the first dimension.
void release_rows(const QuantPart& part, int64_t first, int64_t count) {
  release_rows(part, part.shape[0], first, count);
}

class Fp8BlockRows final : public RowSource {
 public:
  explicit Fp8BlockRows(Fp8Blocks blocks)
      : b_(std::move(blocks)),
        rows_(b_.codes.shape.end()[-2]),
        cols_(b_.codes.shape.end()[-1]),
        high_(b_.scale.shape.end()[-2]),
        wide_(b_.scale.shape.end()[-1]),
        format_(b_.format()) {}

  void read(int64_t first, int64_t count, uint8_t* out) const override {
    for (int64_t r = first; r < first + count; ++r) {
      const uint8_t* const codes = b_.codes.data + r * cols_;
      for (int64_t c = 0; c < cols_; ++c) {
        if ((codes[c] & 0x7f) == 0x7f)
          fail_load("%s: tensor %s holds NaN at row %lld, column %lld.", b_.codes.file->path().c_str(),
                    quote(b_.codes.name).c_str(), static_cast<ll>(r), static_cast<ll>(c));
      }
      if (format_ == Format::F32) {
        for (int64_t c = 0; c < cols_; ++c, out += 4) {
          const float value = e4m3_to_f32(codes[c]) * scale(r, c);
          std::memcpy(out, &value, 4);
        }
        continue;
      }
      for (int64_t c = 0; c < cols_; c += 64, out += 68) {
        const float factor = scale(r, c);
        std::memcpy(out, &factor, 4);
        std::memcpy(out + 4, codes + c, 64);
      }
    }
  }
  void release(int64_t first, int64_t count) const override {
    release_rows(b_.codes, b_.codes.count() / cols_, first, count);
    const int64_t from = scale_row(first);
    release_rows(b_.scale, b_.scale.count() / wide_, from, scale_row(first + count) - from);
  }

 private:
  int64_t scale_row(int64_t r) const { return r / rows_ * high_ + r % rows_ / b_.block_rows; }
  float scale(int64_t r, int64_t c) const {
    const int64_t at = scale_row(r) * wide_ + c / b_.block_cols;
    const float value = b_.scale.number(at);
    if (!std::isfinite(value)) refuse_scale(b_.scale, at, value);
    return value;
  }

  Fp8Blocks b_;
  int64_t rows_, cols_, high_, wide_;  // of one matrix
  Format format_;
};

class Nvfp4Rows final : public RowSource {
 public:
  Nvfp4Rows(QuantPart codes, QuantPart scale) : codes_(std::move(codes)), scale_(std::move(scale)) {}

  void read(int64_t first, int64_t count, uint8_t* out) const override {
    const int64_t groups = scale_.shape[1];
    for (int64_t g = first * groups; g < (first + count) * groups; ++g) {
      const int sub = static_cast<int>(g % 4);
      const uint8_t scale = scale_.data[g];
      if (scale > 0x80 || scale == 0x7f) refuse_scale(scale_, g, e4m3_to_f32(scale));
      out[sub] = scale & 0x7f;
      // Neighbours share a byte in the file, inputs j and j + 8 in the block.
      const uint8_t* in = codes_.data + 8 * g;
      uint8_t* qs = out + 4 + 8 * sub;
      for (int j = 0; j < 4; ++j) {
        const uint8_t low = in[j], high = in[j + 4];
        qs[2 * j] = static_cast<uint8_t>((low & 15) | high << 4);
        qs[2 * j + 1] = static_cast<uint8_t>(low >> 4 | (high & 0xf0));
      }
      if (sub == 3) out += 36;
    }
  }
  void release(int64_t first, int64_t count) const override {
    release_rows(codes_, first, count);
    release_rows(scale_, first, count);
  }

 private:
  QuantPart codes_, scale_;
};

class IntSource final : public RowSource {
 public:
  IntSource(IntParts parts, std::vector<int32_t> block_group, float factor,
            std::shared_ptr<const std::vector<int32_t>> order)
      : p_(std::move(parts)),
        block_group_(std::move(block_group)),
        order_(std::move(order)),
        factor_(factor),
        scale_cols_(p_.scales.shape[1]),
        by_rows_(p_.layout == IntParts::Packed || p_.layout == IntParts::AwqGemv) {}

  void read(int64_t first, int64_t count, uint8_t* out) const override {
    for (int64_t r = first; r < first + count; ++r) {
      for (int64_t b = 0; b < p_.cols / 32; ++b) {
        const int64_t group = block_group_[static_cast<size_t>(b)];
        const int64_t at = by_rows_ ? r * scale_cols_ + group : group * scale_cols_ + r;
        const float scale = p_.scales.number(at);
        if (!std::isfinite(scale)) refuse_scale(p_.scales, at, scale);
        out = p_.bits == 4 ? write_q4_z(r, b, scale, zero(r, group), out)
                           : write_q8_0(r, b, scale, zero(r, group), out);
      }
    }
  }
  void release(int64_t first, int64_t count) const override {
    for (const QuantPart* part :
         std::initializer_list<const QuantPart*>{&p_.codes, &p_.scales, p_.zeros.get(), p_.groups.get()}) {
      if (part == nullptr) continue;
      if (by_rows_ && part->shape[0] == p_.rows) {
        release_rows(*part, first, count);
      } else if (count == p_.rows) {
        release_rows(*part, 0, part->shape[0]);  // else other rows need the same pages
      }
    }
  }

 private:
  uint8_t* write_q4_z(int64_t r, int64_t b, float scale, int zero, uint8_t* out) const {
    std::memcpy(out, &scale, 4);
    out[4] = static_cast<uint8_t>(zero);
    for (int j = 0; j < 16; ++j)
      out[5 + j] = static_cast<uint8_t>(code(r, 32 * b + j) | code(r, 32 * b + j + 16) << 4);
    return out + 21;
  }

  uint8_t* write_q8_0(int64_t r, int64_t b, float scale, int zero, uint8_t* out) const {
    const uint16_t bits = f32_to_f16(scale * factor_);
    std::memcpy(out, &bits, 2);
    for (int j = 0; j < 32; ++j) {
      const int value = code(r, 32 * b + j) - zero;
      if (value < -128 || value > 127)
        fail_load(
            "%s: tensor %s gives %d less its zero point at output %lld, input %lld, needed is -128 to 127.",
            p_.codes.file->path().c_str(), quote(p_.codes.name).c_str(), value, static_cast<ll>(r),
            static_cast<ll>(32 * b + j));
      out[2 + j] = static_cast<uint8_t>(value);
    }
    return out + 34;
  }

  /// Where in a word AWQ keeps output 8c + i.
  static int awq_nibble(int64_t i) {
    static constexpr int kNibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    return kNibble[i & 7];
  }
  int field(const QuantPart& part, int64_t word, int64_t k) const {
    return static_cast<int>(load<uint32_t>(part.data, word) >> (p_.bits * k) & ((1u << p_.bits) - 1));
  }

  /// Of column c of the rows that are made.
  int code(int64_t r, int64_t c) const {
    if (order_) c = (*order_)[static_cast<size_t>(c)];
    const int64_t n = p_.in_word();
    if (by_rows_) return field(p_.codes, r * (p_.cols / n) + c / n, c % n);
    if (p_.layout == IntParts::Gptq) return field(p_.codes, c / n * p_.rows + r, c % n);
    return field(p_.codes, c * (p_.rows / n) + r / n, awq_nibble(r));
  }

  int zero(int64_t r, int64_t group) const {
    const int middle = 1 << (p_.bits - 1);
    if (!p_.zeros) return middle;
    const int64_t n = p_.in_word(), groups = p_.cols / p_.group_size;
    switch (p_.layout) {
      case IntParts::Packed:
        if (p_.zeros->type == "I8") return load<int8_t>(p_.zeros->data, r * groups + group) + middle;
        return field(*p_.zeros, r / n * groups + group, r % n);
      case IntParts::AwqGemv:
        return field(*p_.zeros, r * p_.zeros->shape[1] + group / n, group % n);
      case IntParts::Awq:
        return field(*p_.zeros, group * (p_.rows / n) + r / n, awq_nibble(r));
      case IntParts::Gptq:
        break;
    }
    // A zero point of 0, less 1, was stored as the largest code.
    return (field(*p_.zeros, group * (p_.rows / n) + r / n, r % n) + p_.zero_offset) & ((1 << p_.bits) - 1);
  }

  IntParts p_;
  std::vector<int32_t> block_group_;  // of each 32 columns
  std::shared_ptr<const std::vector<int32_t>> order_;
  float factor_;
  int64_t scale_cols_;
  bool by_rows_;
};

class Int8Rows final : public RowSource {
 public:
  explicit Int8Rows(QuantPart codes) : codes_(std::move(codes)) {}

  void read(int64_t first, int64_t count, uint8_t* out) const override {
    static constexpr uint16_t kOne = 0x3c00;
    const int64_t blocks = codes_.shape[1] / 32;
    for (int64_t b = first * blocks; b < (first + count) * blocks; ++b, out += 34) {
      std::memcpy(out, &kOne, 2);
      std::memcpy(out + 2, codes_.data + 32 * b, 32);
    }
  }
  void release(int64_t first, int64_t count) const override { release_rows(codes_, first, count); }

 private:
  QuantPart codes_;
};

/// The power of two with which the largest scale of a tensor is about 2^10, so that as many of them as can be
/// are exact in f16.
float f16_factor(const QuantPart& scales) {
  float top = 0;
  for (int64_t i = 0; i < scales.count(); ++i) {
    const float value = std::fabs(scales.number(i));
    if (std::isfinite(value)) top = std::max(top, value);
  }
  int exponent = 0;
  if (top > 0) std::frexp(top, &exponent);
  return std::ldexp(1.0f, std::clamp(10 - exponent, -100, 100));
}

}  // namespace

int64_t QuantPart::count() const {
  int64_t out = 1;
  for (const int64_t size : shape) out *= size;
  return out;
}

float QuantPart::number(int64_t index) const {
  if (type == "F32") return load<float>(data, index);
  const auto bits = load<uint16_t>(data, index);
  return type == "F16" ? f16_to_f32(bits) : bf16_to_f32(bits);
}

void check_part(const QuantPart& part, std::string_view types, const std::vector<int64_t>& shape) {
  bool known = false;
  for (size_t begin = 0; begin < types.size();) {
    const size_t end = std::min(types.find(' ', begin), types.size());
    known = known || types.substr(begin, end - begin) == part.type;
    begin = end + 1;
  }
  if (known && part.shape == shape) return;
  fail_load("%s: tensor %s is %s %s, needed is %s %s.", part.file->path().c_str(), quote(part.name).c_str(),
            part.type.c_str(), shape_text(part.shape).c_str(), std::string(types).c_str(),
            shape_text(shape).c_str());
}

Format Fp8Blocks::format() const {
  const int64_t cols = codes.shape.back();
  return cols % 64 == 0 && (block_cols % 64 == 0 || block_cols >= cols) ? Format::F8_E4M3_64 : Format::F32;
}

std::shared_ptr<const RowSource> fp8_block_rows(Fp8Blocks blocks) {
  return std::make_shared<Fp8BlockRows>(std::move(blocks));
}

std::shared_ptr<const RowSource> int8_rows(QuantPart codes) {
  return std::make_shared<Int8Rows>(std::move(codes));
}

std::shared_ptr<const RowSource> nvfp4_rows(QuantPart codes, QuantPart scale) {
  return std::make_shared<Nvfp4Rows>(std::move(codes), std::move(scale));
}

IntRows int_rows(IntParts parts) {
  const int64_t cols = parts.cols, groups = cols / parts.group_size;
  std::vector<int32_t> group_of(static_cast<size_t>(cols));
  for (int64_t c = 0; c < cols; ++c)
    group_of[static_cast<size_t>(c)] = static_cast<int32_t>(c / parts.group_size);
  IntRows out;
  out.format = parts.bits == 4 ? Format::Q4_Z : Format::Q8_0;
  if (parts.groups) {
    const std::vector<int32_t> natural = group_of;
    for (int64_t c = 0; c < cols; ++c) {
      const auto group = load<int32_t>(parts.groups->data, c);
      if (group < 0 || group >= groups)
        fail_load("%s: tensor %s puts input %lld into group %d, there are %lld.",
                  parts.groups->file->path().c_str(), quote(parts.groups->name).c_str(), static_cast<ll>(c),
                  group, static_cast<ll>(groups));
      group_of[static_cast<size_t>(c)] = group;
    }
    if (group_of != natural) {
      std::vector<int32_t> order(static_cast<size_t>(cols));
      std::iota(order.begin(), order.end(), 0);
      std::ranges::stable_sort(order, {}, [&](int32_t c) { return group_of[static_cast<size_t>(c)]; });
      std::ranges::sort(group_of);
      out.order = std::make_shared<const std::vector<int32_t>>(std::move(order));
    }
  }
  std::vector<int32_t> block_group;
  for (size_t c = 0; c < static_cast<size_t>(cols); c += 32) {
    if (group_of[c] != group_of[c + 31])
      fail_load("%s: tensor %s needs groups of a multiple of 32 inputs, group %d has others.",
                parts.codes.file->path().c_str(), quote(parts.codes.name).c_str(), group_of[c]);
    block_group.push_back(group_of[c]);
  }
  float factor = 1;
  if (parts.bits == 8) {
    factor = f16_factor(parts.scales);
    out.scale = std::make_shared<const std::vector<float>>(1, 1 / factor);
  }
  out.source = std::make_shared<IntSource>(std::move(parts), std::move(block_group), factor, out.order);
  return out;
}

}  // namespace vllm

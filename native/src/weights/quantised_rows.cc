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

/// Lets go of the pages of rows [first, first + count) of a part whose first dimension is the rows.
void release_rows(const QuantPart& part, int64_t first, int64_t count) {
  const size_t row = part.bytes / static_cast<size_t>(part.shape[0]);
  part.file->release(part.data + static_cast<size_t>(first) * row, static_cast<size_t>(count) * row);
}

class Fp8BlockRows final : public RowSource {
 public:
  Fp8BlockRows(QuantPart codes, QuantPart scale, int64_t block_rows, int64_t block_cols)
      : codes_(std::move(codes)),
        scale_(std::move(scale)),
        cols_(codes_.shape[1]),
        block_rows_(block_rows),
        block_cols_(block_cols),
        scale_cols_((cols_ - 1) / block_cols + 1) {}

  void read(int64_t first, int64_t count, uint8_t* out) const override {
    for (int64_t r = first; r < first + count; ++r) {
      const uint8_t* codes = codes_.data + r * cols_;
      for (int64_t c = 0; c < cols_; c += 64, out += 68) {
        const int64_t at = r / block_rows_ * scale_cols_ + c / block_cols_;
        const float scale = scale_.number(at);
        if (!std::isfinite(scale)) refuse_scale(scale_, at, scale);
        std::memcpy(out, &scale, 4);
        std::memcpy(out + 4, codes + c, 64);
        for (int k = 0; k < 64; ++k) {
          if ((codes[c + k] & 0x7f) == 0x7f)
            fail_load("%s: tensor %s holds NaN at row %lld, column %lld.", codes_.file->path().c_str(),
                      quote(codes_.name).c_str(), static_cast<ll>(r), static_cast<ll>(c + k));
        }
      }
    }
  }
  void release(int64_t first, int64_t count) const override { release_rows(codes_, first, count); }

 private:
  QuantPart codes_, scale_;
  int64_t cols_, block_rows_, block_cols_, scale_cols_;
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

class Int4Source final : public RowSource {
 public:
  Int4Source(Int4Parts parts, std::vector<int32_t> block_group,
             std::shared_ptr<const std::vector<int32_t>> order)
      : p_(std::move(parts)), block_group_(std::move(block_group)), order_(std::move(order)) {}

  void read(int64_t first, int64_t count, uint8_t* out) const override {
    for (int64_t r = first; r < first + count; ++r) {
      for (int64_t b = 0; b < p_.cols / 32; ++b, out += 21) {
        const int64_t group = block_group_[static_cast<size_t>(b)];
        const int64_t at = p_.layout == Int4Parts::Packed ? r * groups() + group : group * p_.rows + r;
        const float scale = p_.scales.number(at);
        if (!std::isfinite(scale)) refuse_scale(p_.scales, at, scale);
        std::memcpy(out, &scale, 4);
        out[4] = static_cast<uint8_t>(zero(r, group));
        uint8_t codes[32];
        for (int j = 0; j < 32; ++j) {
          const int64_t c = 32 * b + j;
          codes[j] = static_cast<uint8_t>(code(r, order_ ? (*order_)[static_cast<size_t>(c)] : c));
        }
        for (int j = 0; j < 16; ++j) out[5 + j] = static_cast<uint8_t>(codes[j] | codes[j + 16] << 4);
      }
    }
  }
  void release(int64_t first, int64_t count) const override {
    if (p_.layout == Int4Parts::Packed) release_rows(p_.codes, first, count);
  }

 private:
  int64_t groups() const { return p_.cols / p_.group_size; }

  /// Where in a word AWQ keeps output 8c + i.
  static int awq_nibble(int64_t i) {
    static constexpr int kNibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    return kNibble[i & 7];
  }
  static int nibble(const QuantPart& part, int64_t word, int64_t k) {
    return static_cast<int>(load<uint32_t>(part.data, word) >> (4 * k) & 15);
  }

  int code(int64_t r, int64_t c) const {
    switch (p_.layout) {
      case Int4Parts::Packed:
        return nibble(p_.codes, r * (p_.cols / 8) + c / 8, c % 8);
      case Int4Parts::Gptq:
        return nibble(p_.codes, c / 8 * p_.rows + r, c % 8);
      case Int4Parts::Awq:
        break;
    }
    return nibble(p_.codes, c * (p_.rows / 8) + r / 8, awq_nibble(r));
  }

  int zero(int64_t r, int64_t group) const {
    if (!p_.zeros) return 8;
    if (p_.layout == Int4Parts::Packed) {
      if (p_.zeros->type == "I8") return load<int8_t>(p_.zeros->data, r * groups() + group) + 8;
      return nibble(*p_.zeros, r / 8 * groups() + group, r % 8);
    }
    const int64_t word = group * (p_.rows / 8) + r / 8;
    // A zero point of 0, less 1, was stored as 15.
    return (nibble(*p_.zeros, word, p_.layout == Int4Parts::Awq ? awq_nibble(r) : r % 8) + p_.zero_offset) &
           15;
  }

  Int4Parts p_;
  std::vector<int32_t> block_group_;  // of each 32 columns
  std::shared_ptr<const std::vector<int32_t>> order_;
};

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

std::shared_ptr<const RowSource> fp8_block_rows(QuantPart codes, QuantPart scale, int64_t block_rows,
                                                int64_t block_cols) {
  return std::make_shared<Fp8BlockRows>(std::move(codes), std::move(scale), block_rows, block_cols);
}

std::shared_ptr<const RowSource> nvfp4_rows(QuantPart codes, QuantPart scale) {
  return std::make_shared<Nvfp4Rows>(std::move(codes), std::move(scale));
}

Int4Rows int4_rows(Int4Parts parts) {
  const int64_t cols = parts.cols, groups = cols / parts.group_size;
  std::vector<int32_t> group_of(static_cast<size_t>(cols));
  for (int64_t c = 0; c < cols; ++c)
    group_of[static_cast<size_t>(c)] = static_cast<int32_t>(c / parts.group_size);
  Int4Rows out;
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
  out.source = std::make_shared<Int4Source>(std::move(parts), std::move(block_group), out.order);
  return out;
}

}  // namespace vllm

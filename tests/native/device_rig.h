// Helpers of the device tests: deterministic data, tensors on any device, and comparison with a stated
// tolerance.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/formats.h"
#include "device/device.h"

namespace vllm::test {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ull + 1) {}
  uint64_t bits() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  float gauss() {
    return static_cast<float>(std::sqrt(-2 * std::log(uniform() + 1e-12)) *
                              std::cos(6.283185307179586 * uniform()));
  }
  std::vector<float> gauss(size_t n, float scale = 1.0f) {
    std::vector<float> out(n);
    for (float& x : out) x = scale * gauss();
    return out;
  }

 private:
  uint64_t state_;
};

/// `rows` x `cols` weights in any format: random blocks whose scales are of moderate size.
struct Weights {
  std::shared_ptr<std::vector<uint8_t>> data = std::make_shared<std::vector<uint8_t>>();
  WeightView view;

  Weights(Format format, int64_t rows, int64_t cols, uint64_t seed) {
    Random random(seed);
    data->resize(rows * row_bytes(format, cols));
    const FormatInfo& info = format_info(format);
    for (size_t at = 0; at < data->size(); at += info.block_bytes) {
      uint8_t* block = data->data() + at;
      for (int i = 0; i < info.block_bytes; ++i) block[i] = static_cast<uint8_t>(random.bits() >> 32);
      const auto half = [&](int offset, double value) {
        const uint16_t bits = f32_to_f16(static_cast<float>(value));
        std::memcpy(block + offset, &bits, 2);
      };
      const double d = 0.002 + 0.004 * random.uniform();
      const float x = 0.03f * random.gauss();
      const uint16_t x16 = f32_to_f16(x), xb = f32_to_bf16(x);
      switch (format) {
        case Format::F32:
          std::memcpy(block, &x, 4);
          break;
        case Format::F16:
          std::memcpy(block, &x16, 2);
          break;
        case Format::BF16:
          std::memcpy(block, &xb, 2);
          break;
        case Format::Q4_0:
        case Format::Q5_0:
        case Format::Q8_0:
          half(0, d);
          break;
        case Format::Q4_1:
        case Format::Q5_1:
          half(0, d);
          half(2, -(format == Format::Q4_1 ? 8 : 16) * d);
          break;
        case Format::Q4_K:
        case Format::Q5_K:
          half(0, d / 32);
          half(2, d / 4);
          break;
        case Format::Q6_K:
          half(208, d / 64);
          break;
        case Format::F8_E4M3:
          block[0] = block[0] % 128 > 0x38 ? block[0] & 0xb7 : block[0];
          break;
        case Format::F8_E4M3_64: {
          const auto scale = static_cast<float>(d / 16);
          for (int i = 4; i < 68; ++i) block[i] = block[i] % 128 > 0x70 ? block[i] & 0x8f : block[i];
          std::memcpy(block, &scale, 4);
          break;
        }
        case Format::Q4_Z: {
          const auto scale = static_cast<float>(d);
          std::memcpy(block, &scale, 4);
          block[4] %= 17;
          break;
        }
        case Format::IQ4_NL:
          half(0, d / 8);
          break;
        case Format::MXFP4:
          block[0] = 116 + block[0] % 4;
          break;
        case Format::NVFP4:
          for (int i = 0; i < 4; ++i) block[i] %= 32;
          break;
        case Format::Q2_K:
          half(80, d / 4);
          half(82, d / 3);
          break;
        case Format::Q3_K:
          half(108, d / 16);
          break;
        case Format::TQ1_0:
          half(52, 4 * d);
          break;
        case Format::TQ2_0:
          half(64, 4 * d);
          break;
        case Format::IQ1_M:
          for (int k = 0; k < 4; ++k)
            block[49 + 2 * k] = (block[49 + 2 * k] & 15) | (f32_to_f16(d) >> (4 * k) & 15) << 4;
          break;
        case Format::IQ4_XS:
          half(0, d / 128);
          break;
        case Format::IQ2_XXS:
        case Format::IQ2_XS:
        case Format::IQ2_S:
        case Format::IQ3_XXS:
        case Format::IQ3_S:
          half(0, d / 16);
          break;
        case Format::IQ1_S:
        case Format::Q1_0:
          half(0, d);
          break;
      }
    }
    view = {format, rows, cols, data->data(), data};
  }
};

/// Tensors of one device, freed together. Rows are `gap` elements further apart than dense.
class Rig {
 public:
  explicit Rig(Device& device) : device(device) {}

  Tensor tensor(int64_t rows, int64_t cols, const std::vector<float>& values, int64_t gap = 0) {
    buffers_.push_back(device.allocate(static_cast<size_t>(rows * (cols + gap)) * sizeof(float)));
    const Tensor tensor{buffers_.back().get(), 0, rows, cols, cols + gap};
    if (!values.empty()) device.write(tensor, values.data());
    return tensor;
  }
  std::vector<float> read(const Tensor& tensor) {
    std::vector<float> out(tensor.rows * tensor.cols);
    device.read(tensor, out.data());
    return out;
  }

  Device& device;

 private:
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

/// One sequence of `rows` tokens from `position` on, over blocks 0, 1, ... of a cache.
inline StepBatch rows_from(int position, int rows, int blocks = 0) {
  StepBatch batch;
  for (int i = 0; i < rows; ++i) {
    batch.token_ids.push_back(i);
    batch.positions.push_back(position + i);
  }
  batch.seq_start = {0, rows};
  batch.state_slots = {-1};
  batch.max_blocks = blocks;
  for (int b = 0; b < blocks; ++b) batch.block_table.push_back(b);
  return batch;
}

inline double rms(const std::vector<float>& x) {
  double sum = 0;
  for (float v : x) sum += static_cast<double>(v) * v;
  return std::sqrt(sum / static_cast<double>(std::max<size_t>(1, x.size())));
}

/// Every value within `relative` of the wanted one or within `absolute`; infinities and NaN must be the same.
inline void expect_close(const std::vector<float>& want, const std::vector<float>& got, double relative,
                         double absolute) {
  REQUIRE(want.size() == got.size());
  size_t bad = 0, first = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const bool same = std::isfinite(want[i]) ? std::abs(static_cast<double>(got[i]) - want[i]) <=
                                                   relative * std::abs(want[i]) + absolute
                                             : (std::isnan(want[i]) ? std::isnan(got[i]) : want[i] == got[i]);
    if (!same && bad++ == 0) first = i;
  }
  INFO("element " << first << " of " << want.size() << ": want " << (want.empty() ? 0 : want[first])
                  << ", got " << (got.empty() ? 0 : got[first]));
  CHECK(bad == 0);
}

/// Relative error over all values, in RMS, below `tolerance`, and no single error above `worst` (0: 8 times
/// what the tolerance means for a value of RMS size).
inline void expect_close_rms(const std::vector<float>& want, const std::vector<float>& got, double tolerance,
                             double worst = 0) {
  REQUIRE(want.size() == got.size());
  std::vector<float> difference(want.size());
  for (size_t i = 0; i < want.size(); ++i) difference[i] = got[i] - want[i];
  const double error = rms(difference) / rms(want);
  CHECK(error <= tolerance);
  expect_close(want, got, 0.0, worst > 0 ? worst : 8 * tolerance * rms(want));
}

/// The same bits.
inline void expect_equal(const std::vector<float>& want, const std::vector<float>& got) {
  REQUIRE(want.size() == got.size());
  size_t bad = 0, first = 0;
  for (size_t i = 0; i < want.size(); ++i)
    if (std::memcmp(&want[i], &got[i], sizeof(float)) != 0 && bad++ == 0) first = i;
  INFO("element " << first << " of " << want.size() << ": want " << (want.empty() ? 0 : want[first])
                  << ", got " << (got.empty() ? 0 : got[first]));
  CHECK(bad == 0);
}

}  // namespace vllm::test

// Packed weights and products of the CPU device against sums in f64 over the decoded rows, on every
// instruction set of this machine.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "device/cpu/matmul.h"

using namespace vllm;
using namespace vllm::cpu;

namespace {

struct Random {
  std::mt19937_64 engine;
  explicit Random(uint64_t seed) : engine(seed) {}
  uint8_t byte() { return static_cast<uint8_t>(engine() >> 32); }
  float uniform() { return static_cast<float>(engine() >> 40) * 0x1p-24f; }
  float normal() { return std::normal_distribution<float>()(engine); }
};

void put16(uint8_t* p, uint16_t v) { std::memcpy(p, &v, 2); }

/// A matrix in its file form with random quanta and scales of a model's size, and its decoded values.
struct Matrix {
  Format format;
  int64_t rows, cols;
  std::shared_ptr<std::vector<uint8_t>> file;
  std::vector<float> values;

  Matrix(Format f, int64_t r, int64_t c, uint64_t seed) : format(f), rows(r), cols(c) {
    Random random(seed);
    const FormatInfo& info = format_info(f);
    const int64_t blocks = rows * cols / info.block_size;
    file = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(blocks * info.block_bytes));
    for (int64_t b = 0; b < blocks; b++) {
      uint8_t* p = file->data() + b * info.block_bytes;
      if (f == Format::F32) {
        const float v = random.normal() * 0.05f;
        std::memcpy(p, &v, 4);
        continue;
      }
      if (f == Format::F16 || f == Format::BF16) {
        const float v = random.normal() * 0.05f;
        put16(p, f == Format::F16 ? f32_to_f16(v) : f32_to_bf16(v));
        continue;
      }
      for (int i = 0; i < info.block_bytes; i++) p[i] = random.byte();
      const float d = (random.uniform() + 0.5f) * (random.byte() & 1 ? 1.0f : -1.0f),
                  m = random.uniform() - 0.5f;
      switch (f) {
        case Format::Q8_0:
          put16(p, f32_to_f16(d * 5e-4f));
          break;
        case Format::Q4_0:
        case Format::Q5_0:
          put16(p, f32_to_f16(d * 8e-3f));
          break;
        case Format::IQ4_NL:
          put16(p, f32_to_f16(d * 8e-4f));
          break;
        case Format::MXFP4:
          p[0] = 116 + p[0] % 5;
          break;
        case Format::NVFP4:  // E4M3 scales from 2^-9 to 2^-3, the smallest subnormal, and the zero for NaN
          for (int i = 0; i < 4; i++) p[i] = b % 13 != 5 ? p[i] % 40 | (p[i] & 0x80) : 0x7f;
          break;
        case Format::F8_E4M3:
          p[0] &= 0x9f;  // below 1/8, also subnormal
          break;
        case Format::F8_E4M3_64: {
          const float scale = d * 1e-3f;
          for (int i = 4; i < info.block_bytes; i++) p[i] = p[i] % 128 == 127 ? 0x75 : p[i];
          std::memcpy(p, &scale, 4);
          break;
        }
        case Format::Q4_Z: {
          const float scale = d * 8e-3f;
          std::memcpy(p, &scale, 4);
          p[4] %= 17;
          break;
        }
        case Format::Q4_1:
        case Format::Q5_1:
          put16(p, f32_to_f16(d * 8e-3f));
          put16(p + 2, f32_to_f16(m * 0.1f));
          break;
        case Format::Q4_K:
        case Format::Q5_K:
          put16(p, f32_to_f16(d * 2e-4f));
          put16(p + 2, f32_to_f16(m * 2e-3f));
          break;
        case Format::Q2_K:
          put16(p + 80, f32_to_f16(d * 4e-3f));
          put16(p + 82, f32_to_f16(m * 8e-3f));
          break;
        case Format::Q3_K:
          put16(p + 108, f32_to_f16(d * 6e-4f));
          break;
        case Format::TQ1_0:
          put16(p + 52, f32_to_f16(d * 3e-2f));
          break;
        case Format::TQ2_0:
          put16(p + 64, f32_to_f16(d * 3e-2f));
          break;
        case Format::IQ4_XS:
          put16(p, f32_to_f16(d * 4e-5f));
          break;
        case Format::IQ2_XXS:
        case Format::IQ2_XS:
        case Format::IQ2_S:
        case Format::IQ3_XXS:
        case Format::IQ3_S:
          put16(p, f32_to_f16(d * 4e-4f));
          break;
        case Format::IQ1_S:
        case Format::Q1_0:
          put16(p, f32_to_f16(d * 8e-3f));
          break;
        case Format::IQ1_M:  // its scale in four nibbles
          for (int i = 0; i < 4; i++)
            p[49 + 2 * i] = (p[49 + 2 * i] & 15) | (f32_to_f16(d * 8e-3f) >> 4 * i & 15) << 4;
          break;
        case Format::Q6_K:
          put16(p + 208, f32_to_f16(d * 2e-5f));
          break;
        default:
          FAIL("a format without random blocks");
      }
    }
    values.resize(static_cast<size_t>(rows * cols));
    info.decode(file->data(), rows * cols, values.data());
  }
  WeightView view() const { return {format, rows, cols, file->data(), file}; }
};

std::vector<float> activations(int64_t rows, int64_t cols, uint64_t seed) {
  Random random(seed);
  std::vector<float> x(static_cast<size_t>(rows * cols));
  for (float& v : x) v = random.normal();
  return x;
}

bool k_quant(Format f) { return format_info(f).block_size == 256; }
bool quantised(Format f) { return f >= Format::Q4_0 && f != Format::F8_E4M3 && f != Format::F8_E4M3_64; }

/// Whether bf16 weights meet activations that are rounded to bf16.
bool rounds_to_bf16(Format f, Isa isa) {
  return f == Format::BF16 && (isa == Isa::Avx512Bf16 || isa == Isa::Amx || isa == Isa::NeonBf16);
}

/// What the kernels are meant to see of the activations: int8 with one scale for 32 or 256 inputs, bf16 or
/// f32.
std::vector<float> seen(Format f, Isa isa, const std::vector<float>& x, int64_t cols) {
  std::vector<float> out = x;
  if (rounds_to_bf16(f, isa)) {
    for (float& v : out) v = bf16_to_f32(f32_to_bf16(v));
  }
  if (!quantised(f)) return out;
  const int64_t group = k_quant(f) ? 256 : 32;
  REQUIRE(cols % group == 0);
  for (size_t i = 0; i < x.size(); i += group) {
    float top = 0;
    for (int64_t j = 0; j < group; j++) top = std::max(top, std::fabs(x[i + j]));
    const float inverse = top > 0 ? 127 / top : 0;
    for (int64_t j = 0; j < group; j++) out[i + j] = std::nearbyint(x[i + j] * inverse) * (top / 127);
  }
  return out;
}

std::vector<double> exact(const std::vector<float>& x, const Matrix& w) {
  const int64_t tokens = static_cast<int64_t>(x.size()) / w.cols;
  std::vector<double> out(static_cast<size_t>(tokens * w.rows));
  for (int64_t t = 0; t < tokens; t++) {
    for (int64_t r = 0; r < w.rows; r++) {
      double sum = 0;
      const float *a = x.data() + t * w.cols, *b = w.values.data() + r * w.cols;
      for (int64_t k = 0; k < w.cols; k++) sum += static_cast<double>(a[k]) * b[k];
      out[t * w.rows + r] = sum;
    }
  }
  return out;
}

double relative_rms(const std::vector<float>& got, const std::vector<double>& want) {
  double error = 0, scale = 0;
  for (size_t i = 0; i < want.size(); i++) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    scale += want[i] * want[i];
  }
  return std::sqrt(error / scale);
}

std::vector<float> product(ThreadPool& pool, Isa isa, const Matrix& w, const std::vector<float>& x) {
  const auto packed = pack_weight(pool, w.view(), isa, false);
  const int64_t tokens = static_cast<int64_t>(x.size()) / w.cols;
  std::vector<float> out(static_cast<size_t>(tokens * w.rows), std::numeric_limits<float>::quiet_NaN());
  const DeviceWeight* weights[] = {packed.get()};
  MatmulScratch scratch;
  matmul(pool, isa, weights, x.data(), w.cols, tokens, nullptr, false, out.data(), w.rows, scratch);
  return out;
}

bool same_bits(const float* a, const float* b, int64_t n) {
  return std::memcmp(a, b, static_cast<size_t>(n) * 4) == 0;
}

std::string label(const FormatInfo& info, Isa isa, int64_t rows, int64_t cols, int64_t tokens) {
  return std::string(info.name) + " on " + isa_name(isa) + ", " + std::to_string(rows) + " x " +
         std::to_string(cols) + ", tokens " + std::to_string(tokens);
}

}  // namespace

TEST_CASE("products equal the f64 sum over decoded weights and the activations the kernel sees") {
  ThreadPool pool(2);
  for (const FormatInfo& info : all_formats()) {
    std::vector<int64_t> depths = {576, 640, 1536};
    if (info.block_size > 1)
      depths = k_quant(info.format)     ? std::vector<int64_t>{256, 768, 1536}
               : info.block_size == 128 ? std::vector<int64_t>{128, 384, 640, 1536}
               : info.block_size == 64  ? std::vector<int64_t>{64, 192, 576, 640, 1536}
                                        : std::vector<int64_t>{32, 96, 576, 640, 1536};
    else
      depths.insert(depths.end(), {1, 2, 3, 33});
    for (int64_t rows : {1, 7, 16, 17, 32, 33, 100}) {
      for (int64_t cols : depths) {
        const Matrix w(info.format, rows, cols, static_cast<uint64_t>(rows * 10000 + cols));
        const std::vector<float> x = activations(21, cols, 5);
        for (Isa isa : available_isas()) {
          const std::vector<float> got = product(pool, isa, w, x);
          const double error = relative_rms(got, exact(seen(info.format, isa, x, cols), w));
          INFO(label(info, isa, rows, cols, 21), ", relative RMS error ", error);
          CHECK(error < (quantised(info.format) ? 3e-7 : 1.5e-6));
        }
      }
    }
  }
}

TEST_CASE("the error against f32 activations stays within what the activation formats cost") {
  ThreadPool pool(2);
  const int64_t rows = 64, cols = 1024, tokens = 16;
  const std::vector<float> gauss = activations(tokens, cols, 11);
  std::vector<float> outliers = gauss;  // 1 % of the channels 20 times as large
  for (size_t i = 0; i < outliers.size(); i++) {
    if (i % cols % 100 == 37) outliers[i] *= 20;
  }
  for (const FormatInfo& info : all_formats()) {
    const Matrix w(info.format, rows, cols, 77);
    for (Isa isa : available_isas()) {
      const double on_gauss = relative_rms(product(pool, isa, w, gauss), exact(gauss, w));
      const double on_outliers = relative_rms(product(pool, isa, w, outliers), exact(outliers, w));
      INFO(label(info, isa, rows, cols, tokens), ", relative RMS errors ", on_gauss, " and ", on_outliers);
      const bool bf16 = rounds_to_bf16(info.format, isa);
      CHECK(on_gauss < (quantised(info.format) ? 8e-3 : bf16 ? 2.5e-3 : 1e-6));
      CHECK(on_outliers < (k_quant(info.format)     ? 4e-2
                           : quantised(info.format) ? 1.3e-2
                           : bf16                   ? 2.5e-3
                                                    : 1e-6));
    }
  }
}

TEST_CASE("a row's bits depend neither on the other rows, nor on its place, nor on the threads") {
  const int64_t rows = 113, most = 130;
  for (const FormatInfo& info : all_formats()) {
    const int64_t cols = k_quant(info.format)     ? 768
                         : info.block_size == 128 ? 640
                         : info.block_size > 1    ? 576
                                                  : 579;
    const Matrix w(info.format, rows, cols, 3);
    const std::vector<float> x = activations(most, cols, 9);
    for (Isa isa : available_isas()) {
      std::vector<float> alone(static_cast<size_t>(most * rows));
      {
        ThreadPool pool(1);
        const auto packed = pack_weight(pool, w.view(), isa, false);
        const DeviceWeight* weights[] = {packed.get()};
        MatmulScratch scratch;
        for (int64_t t = 0; t < most; t++) {
          matmul(pool, isa, weights, x.data() + t * cols, cols, 1, nullptr, false, alone.data() + t * rows,
                 rows, scratch);
        }
      }
      for (int threads : {1, 2, 3}) {
        ThreadPool pool(threads);
        const auto packed = pack_weight(pool, w.view(), isa, false);
        const DeviceWeight* weights[] = {packed.get()};
        MatmulScratch scratch;
        for (int64_t tokens : {1, 2, 3, 5, 8, 9, 12, 16, 20, 37, 130}) {
          const int64_t first = tokens == most ? 0 : tokens % 4;
          std::vector<float> out(static_cast<size_t>(tokens * rows));
          matmul(pool, isa, weights, x.data() + first * cols, cols, tokens, nullptr, false, out.data(), rows,
                 scratch);
          INFO(label(info, isa, rows, cols, tokens), ", threads ", threads);
          CHECK(same_bits(out.data(), alone.data() + first * rows, tokens * rows));
        }
      }
    }
  }
}

TEST_CASE("token blocks of a long prompt give the bits of single rows") {
  ThreadPool pool(2);
  const int64_t rows = 33, cols = 12288, tokens = 211;
  for (Format format : {Format::F32, Format::BF16, Format::Q8_0, Format::Q4_K}) {
    const Matrix w(format, rows, cols, 3);
    const std::vector<float> x = activations(tokens, cols, 9);
    const Isa isa = best_isa();
    const auto packed = pack_weight(pool, w.view(), isa, false);
    const DeviceWeight* weights[] = {packed.get()};
    MatmulScratch scratch;
    std::vector<float> all(static_cast<size_t>(tokens * rows)), one(static_cast<size_t>(rows));
    matmul(pool, isa, weights, x.data(), cols, tokens, nullptr, false, all.data(), rows, scratch);
    for (int64_t t : {0, 71, 72, 95, 96, 97, 143, 144, 191, 192, 210}) {
      matmul(pool, isa, weights, x.data() + t * cols, cols, 1, nullptr, false, one.data(), rows, scratch);
      CHECK(same_bits(one.data(), all.data() + t * rows, rows));
    }
    CHECK(scratch.bytes() >= static_cast<size_t>(tokens * cols));
  }
}

TEST_CASE("stacked weights of different formats, with bias, accumulation and strides") {
  const int64_t cols = 768, ldx = 801, tokens = 19;
  std::vector<Matrix> matrices;
  int64_t columns = 0;
  for (const FormatInfo& info : all_formats()) {
    matrices.emplace_back(info.format, 5 + 9 * static_cast<int64_t>(matrices.size()), cols,
                          40 + matrices.size());
    columns += matrices.back().rows;
  }
  const int64_t ldo = columns + 13;
  const std::vector<float> strided = activations(tokens, ldx, 4), bias = activations(1, columns, 6);
  std::vector<float> x;
  for (int64_t t = 0; t < tokens; t++)
    x.insert(x.end(), strided.begin() + t * ldx, strided.begin() + t * ldx + cols);
  for (Isa isa : available_isas()) {
    for (int threads : {1, 3}) {
      ThreadPool pool(threads);
      std::vector<std::unique_ptr<DeviceWeight>> packed;
      std::vector<const DeviceWeight*> weights;
      for (const Matrix& m : matrices) {
        packed.push_back(pack_weight(pool, m.view(), isa, false));
        weights.push_back(packed.back().get());
      }
      for (int64_t count : {int64_t{1}, int64_t{7}, tokens}) {
        for (bool accumulate : {false, true}) {
          for (bool with_bias : {false, true}) {
            MatmulScratch scratch;
            std::vector<float> out(static_cast<size_t>(tokens * ldo), 0.25f);
            matmul(pool, isa, weights, strided.data(), ldx, count, with_bias ? bias.data() : nullptr,
                   accumulate, out.data(), ldo, scratch);
            int64_t column = 0;
            for (const Matrix& m : matrices) {
              const std::vector<double> want = exact(seen(m.format, isa, x, cols), m);
              double worst = 0;
              for (int64_t t = 0; t < count; t++) {
                for (int64_t r = 0; r < m.rows; r++) {
                  double y = want[t * m.rows + r] + (with_bias ? bias[column + r] : 0.0f) +
                             (accumulate ? 0.25 : 0.0);
                  worst = std::max(worst, std::fabs(out[t * ldo + column + r] - y));
                }
              }
              INFO(label(format_info(m.format), isa, m.rows, cols, count));
              CHECK(worst < 2e-5);
              column += m.rows;
            }
            bool untouched = true;  // what lies beside and below the result
            for (int64_t t = 0; t < tokens; t++) {
              for (int64_t c = t < count ? columns : 0; c < ldo; c++) untouched &= out[t * ldo + c] == 0.25f;
            }
            CHECK(untouched);
          }
        }
      }
    }
  }
}

TEST_CASE("a vocabulary of odd size") {
  ThreadPool pool(2);
  for (Format format : {Format::BF16, Format::Q8_0, Format::Q6_K}) {
    const int64_t rows = 49159, cols = 256;
    const Matrix w(format, rows, cols, 8);
    const std::vector<float> x = activations(3, cols, 2);
    for (Isa isa : available_isas()) {
      CHECK(relative_rms(product(pool, isa, w, x), exact(seen(format, isa, x, cols), w)) < 6e-7);
    }
  }
}

TEST_CASE("infinite and NaN activations spoil their own row and no other") {
  ThreadPool pool(2);
  for (const FormatInfo& info : all_formats()) {
    const int64_t cols = 768, rows = 40;
    const Matrix w(info.format, rows, cols, 21);
    const std::vector<float> clean = activations(20, cols, 2);
    for (Isa isa : available_isas()) {
      const std::vector<float> want = product(pool, isa, w, clean);
      for (float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                        std::numeric_limits<float>::quiet_NaN()}) {
        std::vector<float> x = clean;
        for (int64_t row : {4, 11, 19}) x[row * cols + 300 + row] = bad;
        const std::vector<float> got = product(pool, isa, w, x);
        INFO(label(info, isa, rows, cols, 20));
        int64_t wrong = 0;
        for (int64_t t = 0; t < 20; t++) {
          const bool spoilt = t == 4 || t == 11 || t == 19;
          for (int64_t r = 0; r < rows; r++) {
            const float v = got[t * rows + r];
            wrong += spoilt ? std::isfinite(v) : std::memcmp(&v, &want[t * rows + r], 4) != 0;
          }
        }
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE("activations from the smallest to the largest numbers") {
  ThreadPool pool(1);
  for (Format format : {Format::F32, Format::Q8_0, Format::Q4_1, Format::Q6_K}) {
    const Matrix w(format, 16, 768, 21);
    const std::vector<float> base = activations(2, 768, 2);
    for (Isa isa : available_isas()) {
      for (float scale : {0.0f, 1e-44f, 1e-38f, 1e-30f, 1e30f}) {
        std::vector<float> x = base;
        for (float& v : x) v *= scale;
        const std::vector<float> got = product(pool, isa, w, x);
        const std::vector<double> want = exact(x, w);
        INFO(label(format_info(format), isa, 16, 768, 2), ", scale ", scale);
        for (float v : got) CHECK(std::isfinite(v));
        if (scale == 0) CHECK(relative_rms(got, std::vector<double>(got.size(), 1.0)) == doctest::Approx(1));
        if (scale == 1e-30f || scale == 1e30f) CHECK(relative_rms(got, want) < 2e-2);
      }
    }
  }
}

TEST_CASE("lookups decode the file's row") {
  ThreadPool pool(2);
  for (const FormatInfo& info : all_formats()) {
    const Matrix w(info.format, 37, 512, 14);
    std::weak_ptr<std::vector<uint8_t>> owner = w.file;
    for (bool lookup_only : {false, true}) {
      const auto packed = pack_weight(pool, w.view(), best_isa(), lookup_only);
      CHECK(owner.use_count() == 2);
      CHECK(packed->format == info.format);
      CHECK(packed->rows == 37);
      CHECK(packed->cols == 512);
      if (lookup_only) CHECK(packed->bytes == 0);
      std::vector<float> row(512);
      for (int32_t id : {0, 17, 36}) {
        embed_row(*packed, id, 1.0f, row.data());
        CHECK(same_bits(row.data(), w.values.data() + id * 512, 512));
        embed_row(*packed, id, 2.5f, row.data());
        for (int k = 0; k < 512; k++) CHECK(row[k] == w.values[id * 512 + k] * 2.5f);
      }
      CHECK_THROWS_AS(embed_row(*packed, 37, 1.0f, row.data()), Error);
      CHECK_THROWS_AS(embed_row(*packed, -1, 1.0f, row.data()), Error);
      if (lookup_only) {
        const DeviceWeight* weights[] = {packed.get()};
        MatmulScratch scratch;
        std::vector<float> x(512), out(37);
        CHECK_THROWS_AS(
            matmul(pool, best_isa(), weights, x.data(), 512, 1, nullptr, false, out.data(), 37, scratch),
            Error);
      }
    }
    CHECK(owner.use_count() == 1);
  }
}

TEST_CASE("columns stand for the inputs of their order and outputs are scaled before the bias") {
  ThreadPool pool(2);
  const int64_t cols = 256, rows = 37, tokens = 21;
  const std::vector<float> x = activations(tokens, cols, 31);
  auto order = std::make_shared<std::vector<int32_t>>(static_cast<size_t>(cols));
  for (size_t c = 0; c < order->size(); c++) (*order)[c] = static_cast<int32_t>(c * 37 % order->size());
  auto scale = std::make_shared<std::vector<float>>(static_cast<size_t>(rows));
  for (size_t r = 0; r < scale->size(); r++) (*scale)[r] = 0.25f * static_cast<float>(r % 7) - 0.5f;
  for (Format format : {Format::F32, Format::F8_E4M3, Format::F8_E4M3_64, Format::Q4_Z, Format::NVFP4}) {
    const Matrix w(format, rows, cols, 5);
    WeightView plain = w.view(), scaled = w.view(), ordered = w.view();
    scaled.scale = scale;
    ordered.order = order;
    ordered.scale = std::make_shared<std::vector<float>>(1, 3.0f);
    const WeightView views[] = {plain, ordered, scaled};
    std::vector<float> bias(3 * rows), before(static_cast<size_t>(tokens * 3 * rows), 2.0f);
    for (size_t i = 0; i < bias.size(); i++) bias[i] = static_cast<float>(i % 5);
    for (Isa isa : available_isas()) {
      std::vector<std::unique_ptr<DeviceWeight>> packed;
      std::vector<const DeviceWeight*> weights;
      for (const WeightView& view : views) {
        packed.push_back(pack_weight(pool, view, isa, false));
        weights.push_back(packed.back().get());
      }
      std::vector<float> out = before;
      MatmulScratch scratch;
      matmul(pool, isa, weights, x.data(), cols, tokens, bias.data(), true, out.data(), 3 * rows, scratch);
      double error = 0, norm = 0;
      std::vector<float> row(static_cast<size_t>(cols)), in_order(x.size());
      for (size_t i = 0; i < x.size(); i++)
        in_order[i] = x[i / 256 * 256 + static_cast<size_t>((*order)[i % 256])];
      const std::vector<float> natural = seen(format, isa, x, cols),
                               permuted = seen(format, isa, in_order, cols);
      for (int64_t t = 0; t < tokens; t++) {
        for (int64_t r = 0; r < 3 * rows; r++) {
          const int64_t v = r / rows;
          views[v].decode_row(r % rows, row.data());
          double sum = 2.0 + bias[static_cast<size_t>(r)];
          for (size_t c = 0; c < row.size(); c++) {
            const size_t at = static_cast<size_t>(t * cols) + c;
            const auto input = static_cast<size_t>((*order)[c]);
            sum += v == 1 ? static_cast<double>(permuted[at]) * row[input]
                          : static_cast<double>(natural[at]) * row[c];
          }
          error += std::pow(out[static_cast<size_t>(t * 3 * rows + r)] - sum, 2);
          norm += sum * sum;
        }
      }
      INFO(label(format_info(format), isa, rows, cols, tokens));
      CHECK(std::sqrt(error / norm) < 1e-6);
    }
  }
}

TEST_CASE("a packed weight is hardly larger than its file form") {
  ThreadPool pool(2);
  for (const FormatInfo& info : all_formats()) {
    const Matrix w(info.format, 640, 1536, 14);
    const auto packed = pack_weight(pool, w.view(), best_isa(), false);
    double most = 1.03;
    switch (info.format) {  // codes of grid points grow to 2, 3 or 4 bits for each value
      case Format::MXFP4:
      case Format::Q3_K:
      case Format::TQ2_0:
        most = 1.06;
        break;
      case Format::Q1_0:
        most = 1.12;
        break;
      case Format::IQ3_S:
        most = 1.28;
        break;
      case Format::TQ1_0:
        most = 1.27;
        break;
      case Format::IQ2_S:
        most = 1.33;
        break;
      case Format::IQ3_XXS:
        most = 1.43;
        break;
      case Format::IQ2_XS:
        most = 1.47;
        break;
      case Format::IQ1_M:
        most = 1.51;
        break;
      case Format::IQ1_S:
        most = 1.53;
        break;
      case Format::IQ2_XXS:
        most = 1.64;
        break;
      default:
        break;
    }
    const double scales = 640 * sizeof(float);
    CHECK(static_cast<double>(packed->bytes) <= most * static_cast<double>(w.file->size()) + scales);
    CHECK(static_cast<double>(packed->bytes) >= static_cast<double>(w.file->size()));
  }
}

TEST_CASE("weights of impossible shape are refused by name") {
  ThreadPool pool(1);
  const std::vector<uint8_t> bytes(4096);
  const auto refuse = [&](Format format, int64_t rows, int64_t cols) {
    const WeightView view{format, rows, cols, bytes.data(), nullptr};
    try {
      pack_weight(pool, view, Isa::Baseline, false);
      FAIL("accepted");
    } catch (const Error& error) {
      CHECK(error.status() == Status::ModelLoad);
      CHECK(error.message().find(format_info(format).name) != std::string::npos);
    }
  };
  refuse(Format::Q4_K, 1, 128);
  refuse(Format::Q8_0, 1, 31);
  refuse(Format::F32, 0, 8);
  refuse(Format::F32, 8, 0);
  refuse(Format::F32, -1, 8);
}

TEST_CASE("a weight that no memory can hold is refused with the bytes it needs") {
  ThreadPool pool(1);
  const std::vector<uint8_t> bytes(4096);
  for (int64_t rows : {int64_t{1} << 42, int64_t{1} << 60}) {
    try {
      pack_weight(pool, {Format::F32, rows, 64, bytes.data(), nullptr}, Isa::Baseline, false);
      FAIL("accepted");
    } catch (const Error& error) {
      CHECK(error.status() == Status::ModelLoad);
      if (rows == int64_t{1} << 42)
        CHECK(error.message().find(std::to_string(rows * 256)) != std::string::npos);
    }
  }
  const Matrix w(Format::Q8_0, 16, 64, 1);  // and the next one still fits
  CHECK(pack_weight(pool, w.view(), Isa::Baseline, false)->bytes == 1088);
}

TEST_CASE("no rows, no work") {
  ThreadPool pool(2);
  const Matrix w(Format::Q8_0, 16, 64, 1);
  const auto packed = pack_weight(pool, w.view(), best_isa(), false);
  const DeviceWeight* weights[] = {packed.get()};
  MatmulScratch scratch;
  matmul(pool, best_isa(), weights, nullptr, 64, 0, nullptr, false, nullptr, 16, scratch);
  CHECK(scratch.bytes() == 0);
}

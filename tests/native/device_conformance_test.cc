// One suite over every device that is present: each operation, odd shapes and every format, against the
// reference device; and the promise that a row's result does not depend on batch, cut into steps or threads,
// bit for bit.
#include <optional>

#include "device_candidates.h"

using namespace vllm;
using namespace vllm::test;

namespace {

/// Floats of every size and sign: all exponents in steps, infinities and NaN.
std::vector<float> all_sizes() {
  std::vector<float> out = {0.0f, -0.0f, INFINITY, -INFINITY, NAN};
  for (uint32_t bits = 0; bits < 0x7f800000u; bits += 0x7a123) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    out.push_back(x);
    out.push_back(-x);
  }
  for (float x = -105.0f; x < 105.0f; x += 0.0371f) out.push_back(x);
  return out;
}

}  // namespace

// Elementwise f32 functions: a handful of roundings of 6e-8 and polynomials of 1e-7.

TEST_CASE("rms_norm") {
  for (int cols : {1, 33, 576, 640, 4099}) {
    for (int rows : {1, 5, 40}) {
      for (bool accumulate : {false, true}) {
        CAPTURE(cols);
        CAPTURE(rows);
        CAPTURE(accumulate);
        Random random(cols * 100 + rows);
        const auto x = random.gauss(rows * cols, 3.0f), w = random.gauss(cols), y = random.gauss(rows * cols);
        against_reference(
            [&](Device& device) {
              Rig rig(device);
              const Tensor out = rig.tensor(rows, cols, y, 7);
              device.rms_norm(rig.tensor(rows, cols, x, 3), rig.tensor(1, cols, w), 1e-5f, accumulate, out);
              return rig.read(out);
            },
            2e-6, 1e-6);
      }
    }
  }
}

TEST_CASE("rms_norm in place, of tiny and of zero rows") {
  std::vector<float> x(3 * 65, 0.0f);
  for (int i = 0; i < 65; ++i)
    x[65 + i] = 1e-12f * static_cast<float>(i), x[130 + i] = 1e15f * static_cast<float>(i - 30);
  against_reference(
      [&](Device& device) {
        Rig rig(device);
        const Tensor t = rig.tensor(3, 65, x);
        device.rms_norm(t, rig.tensor(1, 65, std::vector<float>(65, 0.5f)), 1e-6f, false, t);
        return rig.read(t);
      },
      2e-6, 1e-14);
}

TEST_CASE("norm_rope") {
  struct Case {
    int heads, head_dim, rotary, position;
    bool norm, interleaved;
    float magnitude;
  };
  for (const Case& c : {Case{9, 64, 64, 0, false, false, 1}, Case{3, 64, 64, 131000, false, true, 1},
                        Case{16, 128, 128, 5, true, false, 1}, Case{1, 256, 256, 40000, true, false, 1.19f},
                        Case{4, 80, 32, 17, true, false, 1}, Case{4, 96, 96, 100, false, false, 1},
                        Case{2, 33, 6, 9, true, true, 1}, Case{5, 1, 0, 3, true, false, 1},
                        Case{2, 7, 6, 9, false, false, 1}}) {
    for (int rows : {1, 6, 50}) {
      CAPTURE(c.heads);
      CAPTURE(c.head_dim);
      CAPTURE(rows);
      Random random(c.head_dim + rows);
      const auto x = random.gauss(rows * c.heads * c.head_dim), w = random.gauss(c.head_dim);
      RopeSpec rope;
      for (int i = 0; i < c.rotary / 2; ++i)
        rope.inv_freq.push_back(static_cast<float>(std::pow(10000.0, -2.0 * i / c.rotary)));
      rope.interleaved = c.interleaved;
      rope.magnitude = c.magnitude;
      const StepBatch batch = rows_from(c.position, rows);
      against_reference(
          [&](Device& device) {
            Rig rig(device);
            const Tensor t = rig.tensor(rows, c.heads * c.head_dim, x, 5),
                         norm = rig.tensor(1, c.head_dim, w);
            device.begin_step(batch);
            device.norm_rope(t, c.heads, c.norm ? &norm : nullptr, 1e-6f, rope);
            device.end_step();
            return rig.read(t);
          },
          2e-6, 1e-6);
    }
  }
}

TEST_CASE("norm_rope keeps the tables of two specs and of two steps apart") {
  Random random(3);
  const auto x = random.gauss(4 * 64);
  RopeSpec slow, fast;
  for (int i = 0; i < 32; ++i) {
    slow.inv_freq.push_back(static_cast<float>(std::pow(1e6, -i / 32.0)));
    fast.inv_freq.push_back(static_cast<float>(std::pow(1e4, -i / 32.0)));
  }
  RopeSpec turned = fast;
  turned.interleaved = true;
  const StepBatch first = rows_from(10, 4), second = rows_from(900, 4);
  against_reference(
      [&](Device& device) {
        Rig rig(device);
        std::vector<float> all;
        for (const StepBatch* batch : {&first, &second}) {
          device.begin_step(*batch);
          for (const RopeSpec* rope : {&slow, &fast, &turned, &slow}) {
            const Tensor t = rig.tensor(4, 64, x);
            device.norm_rope(t, 1, nullptr, 0, *rope);
            const auto got = rig.read(t);
            all.insert(all.end(), got.begin(), got.end());
          }
          device.end_step();
        }
        return all;
      },
      2e-6, 1e-6);
}

TEST_CASE("gated activations over the whole range of floats") {
  const std::vector<float> x = all_sizes();
  const int cols = static_cast<int>(x.size());
  for (Activation act : {Activation::Silu, Activation::GeluTanh, Activation::Sigmoid}) {
    CAPTURE(static_cast<int>(act));
    // silu: exp(-x) overflows where the result falls below 3e-37. gelu: a rounding of u is multiplied by 2u
    // in the exponent, more than 1e-6 of the result where that is below 1e-5.
    const double absolute = act == Activation::Silu ? 3e-37 : 1e-11;
    against_reference(
        [&](Device& device) {
          Rig rig(device);
          const Tensor out = rig.tensor(1, cols, {});
          device.gated(act, rig.tensor(1, cols, x), rig.tensor(1, cols, std::vector<float>(cols, 1.0f)), out);
          return rig.read(out);
        },
        1e-6, absolute);
  }
}

TEST_CASE("gated over rows, in place") {
  for (int cols : {1, 33, 576, 640, 20011}) {
    for (int rows : {1, 9}) {
      CAPTURE(cols);
      Random random(cols);
      const auto both = random.gauss(rows * cols * 2, 2.0f);
      against_reference(
          [&](Device& device) {
            Rig rig(device);
            const Tensor t = rig.tensor(rows, 2 * cols, both, 1);
            device.gated(Activation::Silu, t.columns(0, cols), t.columns(cols, cols), t.columns(0, cols));
            return rig.read(t);
          },
          1e-6, 1e-37);
    }
  }
}

TEST_CASE("softcap over the whole range of floats") {
  const std::vector<float> x = all_sizes();
  for (float cap : {30.0f, 1.0f}) {
    against_reference(
        [&](Device& device) {
          Rig rig(device);
          const Tensor t = rig.tensor(1, static_cast<int64_t>(x.size()), x);
          device.softcap(cap, t);
          return rig.read(t);
        },
        1e-6, 1e-37);
  }
}

TEST_CASE("gather_logit_rows") {
  Random random(8);
  const auto x = random.gauss(6 * 33);
  StepBatch batch = rows_from(0, 6);
  batch.logit_rows = {0, 2, 5};
  against_reference(
      [&](Device& device) {
        Rig rig(device);
        const Tensor out = rig.tensor(3, 33, {}, 2);
        device.begin_step(batch);
        device.gather_logit_rows(rig.tensor(6, 33, x, 4), out);
        device.end_step();
        return rig.read(out);
      },
      0, 0);
}

TEST_CASE("read_largest gives the largest values of rows in order, the lower column of equal ones first") {
  const auto largest = [](Device& device, int64_t rows, int64_t cols, const std::vector<float>& x,
                          int count) {
    Rig rig(device);
    // Columns of a wider matrix, so that rows lie apart and begin anywhere.
    const Tensor all = rig.tensor(rows, cols + 5,
                                  std::vector<float>(static_cast<size_t>(rows * (cols + 5)), 1e30f)),
                 src = all.columns(3, cols);
    device.write(src, x.data());
    std::vector<RankedValue> out(static_cast<size_t>(rows) * static_cast<size_t>(count));
    device.read_largest(src, count, out.data());
    std::vector<float> flat;
    for (const RankedValue& each : out) {
      flat.push_back(static_cast<float>(each.column));
      flat.push_back(each.value);
    }
    return flat;
  };
  const auto check = [&](int64_t rows, int64_t cols, const std::vector<float>& x, int count) {
    CAPTURE(cols);
    CAPTURE(count);
    against_reference([&](Device& device) { return largest(device, rows, cols, x, count); },
                      [](const auto& want, const auto& got, const Candidate&) { expect_equal(want, got); });
  };
  Random random(10);
  for (const int64_t cols : {1, 2, 31, 127, 2047, 2048, 2049, 49159, 151936, 262147}) {
    const int64_t rows = cols > 3000 ? 2 : 3;
    const auto x = random.gauss(static_cast<size_t>(rows * cols));
    for (const int count : {1, 2, 41, 65})
      if (count <= cols) check(rows, cols, x, count);
    // Few values, so nearly all are equal to others.
    auto ties = x;
    for (float& value : ties) value = std::round(value);
    for (const int count : {1, 65})
      if (count <= cols) check(rows, cols, ties, count);
  }
  for (const int64_t cols : {5, 300})
    check(2, cols, random.gauss(static_cast<size_t>(2 * cols)), static_cast<int>(cols));
  const std::vector<float> equal(6000, -INFINITY);
  check(2, 3000, equal, 65);
  // Zeros of both signs and numbers that some devices flush to them.
  std::vector<float> tiny(4100, -1.0f);
  tiny[7] = -0.0f, tiny[9] = 0.0f, tiny[4000] = 1e-44f, tiny[4001] = -1e-44f, tiny[3000] = 2e-44f,
  tiny[2] = -0.0f;
  check(1, 4100, tiny, 8);
  // What is not finite.
  const std::vector<float> sizes = all_sizes();
  check(1, static_cast<int64_t>(sizes.size()), sizes, 65);
  std::vector<float> broken(2 * 2500, 1.0f);
  broken[2400] = broken[17] = NAN, broken[100] = INFINITY, broken[2500 + 5] = INFINITY,
  broken[2500 + 9] = -NAN;
  check(2, 2500, broken, 4);

  for (const Candidate& candidate : candidates()) {
    INFO(candidate.name);
    std::vector<RankedValue> out(8);
    Rig rig(*candidate.device);
    const Tensor x = rig.tensor(1, 4, {1, 2, 3, 4});
    CHECK_THROWS_AS(candidate.device->read_largest(x, 5, out.data()), Error);
    CHECK_THROWS_AS(candidate.device->read_largest(x, 0, out.data()), Error);
    candidate.device->read_largest(x.head(0), 2, out.data());
  }
}

TEST_CASE("embed in every format") {
  for (const FormatInfo& format : all_formats()) {
    for (bool lookup_only : {false, true}) {
      CAPTURE(std::string(format.name));
      const int64_t cols = format.block_size == 1 ? 33 : 3 * format.block_size;
      const Weights table(format.format, 70, cols, 5);
      StepBatch batch = rows_from(0, 4);
      batch.token_ids = {69, 0, 31, 69};
      against_reference(
          [&](Device& device) {
            Rig rig(device);
            const auto packed = device.pack(table.view, lookup_only);
            const Tensor out = rig.tensor(4, cols, {}, 1);
            device.begin_step(batch);
            device.embed(*packed, 1.7f, out);
            device.end_step();
            return rig.read(out);
          },
          [](const auto& want, const auto& got, const Candidate&) {
            expect_close(want, got, 2e-7, 0);  // one product in f32
          },
          [](const Candidate& each) { return !each.variant; });
    }
  }
}

namespace {

/// Relative RMS error that a product with f32 activations may differ by: f32 sums only for f32 and f16
/// weights, activations rounded to bf16 (0.17 % on Gaussian input) for bf16 weights, and to int8 with a scale
/// per block of 32 or 256 (0.54 % and 0.70 %) for the quantised formats. A half more for the scatter of a few
/// rows.
double product_tolerance(Format format) {
  if (format == Format::F32 || format == Format::F16) return 3e-6;
  return format == Format::BF16 ? 0.003 : 0.011;
}

}  // namespace

namespace {

/// Whether a format holds whole numbers and scales, which is where the products of variants differ.
bool has_codes(Format format) {
  return product_tolerance(format) > 0.01 && format != Format::F8_E4M3 && format != Format::F8_E4M3_64;
}

/// One format of each kind of code: plain and signed, with a minimum, with two scales, from a table, with a
/// zero of its own.
constexpr Format kCodes[] = {Format::Q5_0, Format::Q8_0,  Format::Q4_K,
                             Format::Q6_K, Format::NVFP4, Format::IQ1_S};

}  // namespace

TEST_CASE("matmul in every format") {
  for (const FormatInfo& format : all_formats()) {
    std::vector<int64_t> widths = format.block_size == 1     ? std::vector<int64_t>{1, 33, 576, 640}
                                  : format.block_size == 32  ? std::vector<int64_t>{32, 576, 640}
                                  : format.block_size == 64  ? std::vector<int64_t>{64, 576, 640}
                                  : format.block_size == 128 ? std::vector<int64_t>{128, 640}
                                                             : std::vector<int64_t>{256, 768};
    for (int64_t cols : widths) {
      for (int rows : {1, 3, 8, 29}) {
        CAPTURE(std::string(format.name));
        CAPTURE(cols);
        CAPTURE(rows);
        const int64_t outputs = 7 + 48;
        const Weights weights(format.format, outputs, cols, cols);
        Random random(rows);
        const auto x = random.gauss(rows * cols);
        // A single input has no other errors to average with: x of one rounding each.
        const double tolerance = product_tolerance(format.format) * (cols == 1 ? 2 : 1);
        against_reference(
            [&](Device& device) {
              Rig rig(device);
              const auto packed = device.pack(weights.view, false);
              const DeviceWeight* list[] = {packed.get()};
              const Tensor out = rig.tensor(rows, outputs, {}, 3);
              device.matmul(list, rig.tensor(rows, cols, x, 5), nullptr, false, out);
              return rig.read(out);
            },
            [&](const auto& want, const auto& got, const Candidate&) {
              expect_close_rms(want, got, tolerance);
            },
            // Of the kernels of a variant one for few rows and one for many.
            [&](const Candidate& each) {
              return !each.variant ||
                     (has_codes(format.format) && cols == widths.back() && rows != 3 && rows != 8);
            });
      }
    }
  }
}

TEST_CASE("matmul of stacked weights with bias, added to the output") {
  const int rows = 5, cols = 576;
  Random random(77);
  const auto x = random.gauss(rows * cols), y = random.gauss(rows * 132), b = random.gauss(132);
  for (const FormatInfo& format : all_formats()) {
    if (cols % format.block_size) continue;
    for (bool accumulate : {false, true}) {
      CAPTURE(std::string(format.name));
      const Weights one(format.format, 96, cols, 1), two(Format::Q8_0, 33, cols, 2),
          three(format.format, 3, cols, 3);
      against_reference(
          [&](Device& device) {
            Rig rig(device);
            const auto a = device.pack(one.view, false), c = device.pack(two.view, false),
                       d = device.pack(three.view, false);
            const DeviceWeight* list[] = {a.get(), c.get(), d.get()};
            const Tensor out = rig.tensor(rows, 132, y, 1), bias = rig.tensor(1, 132, b);
            device.matmul(list, rig.tensor(rows, cols, x), &bias, accumulate, out);
            return rig.read(out);
          },
          [](const auto& want, const auto& got, const Candidate&) { expect_close_rms(want, got, 0.011); });
    }
  }
}

TEST_CASE("matmul over a vocabulary of an odd size") {
  const int rows = 2, cols = 64, outputs = 49152 + 7;
  const Weights table(Format::Q8_0, outputs, cols, 9);
  const auto x = Random(4).gauss(rows * cols);
  against_reference(
      [&](Device& device) {
        Rig rig(device);
        const auto packed = device.pack(table.view, false);
        const DeviceWeight* list[] = {packed.get()};
        const Tensor out = rig.tensor(rows, outputs, {});
        device.matmul(list, rig.tensor(rows, cols, x), nullptr, false, out);
        return rig.read(out);
      },
      [](const auto& want, const auto& got, const Candidate&) { expect_close_rms(want, got, 0.011); });
}

TEST_CASE("a row of a product has the same bits alone, in any batch and with any number of threads") {
  const int rows = 37, cols = 768, outputs = 83;
  const auto x = Random(6).gauss(rows * cols);
  for (const FormatInfo& format : all_formats()) {
    CAPTURE(std::string(format.name));
    const Weights weights(format.format, outputs, cols, 11);
    std::string kind;
    std::vector<float> want;
    for (const Candidate& candidate : candidates()) {
      if (candidate.variant && std::count(std::begin(kCodes), std::end(kCodes), format.format) == 0) continue;
      INFO(candidate.name);
      Device& device = *candidate.device;
      Rig rig(device);
      const auto packed = device.pack(weights.view, false);
      const DeviceWeight* list[] = {packed.get()};
      const Tensor in = rig.tensor(rows, cols, x), out = rig.tensor(rows, outputs, {});
      device.matmul(list, in, nullptr, false, out);
      const auto whole = rig.read(out);
      if (candidate.kind != kind) want = whole, kind = candidate.kind;
      expect_equal(want, whole);
      std::vector<float> pieces;
      const int sizes[] = {1, 2, 1, 3, 5, 8, 17};
      int at = 0;
      for (int size : sizes) {
        const Tensor part{in.buffer, at * in.stride, size, cols, in.stride},
            result = rig.tensor(size, outputs, {});
        device.matmul(list, part, nullptr, false, result);
        const auto got = rig.read(result);
        pieces.insert(pieces.end(), got.begin(), got.end());
        at += size;
      }
      REQUIRE(at == rows);
      expect_equal(want, pieces);
    }
  }
}

TEST_CASE("a product has the same bits wherever its rows lie and however many outputs there are") {
  const int rows = 40, some = 5;
  for (const auto& [format, cols, outputs] :
       {std::tuple{Format::F16, 4651, 21}, {Format::Q5_0, 2336, 70}, {Format::Q8_0, 64, 8200}}) {
    CAPTURE(std::string(format_info(format).name));
    const Weights all(format, outputs, cols, 12);
    WeightView first = all.view;
    first.rows = some;
    const auto x = Random(cols).gauss(rows * cols);
    const auto product = [&, cols = cols](Device& device, const WeightView& view, int of, int gap) {
      Rig rig(device);
      const auto packed = device.pack(view, false);
      const DeviceWeight* list[] = {packed.get()};
      Tensor in = rig.tensor(rows, cols, x, gap);
      in.rows = of;
      const Tensor out = rig.tensor(of, view.rows, {});
      device.matmul(list, in, nullptr, false, out);
      return rig.read(out);
    };
    const auto wanted = product(reference(), first, rows, 0);
    for (const Candidate& candidate : candidates()) {
      INFO(candidate.name);
      Device& device = *candidate.device;
      const auto want = product(device, first, rows, 0);
      expect_close_rms(wanted, want, product_tolerance(format));
      for (const int of : {1, 2, 3, 11, 17, rows}) {
        CAPTURE(of);
        const std::vector<float> part(want.begin(), want.begin() + of * some);
        expect_equal(part, product(device, first, of, 1));
        if (outputs > 1000 && of > 3) continue;  // takes long where a CPU plays a GPU
        const auto whole = product(device, all.view, of, 4);
        std::vector<float> start;
        for (int r = 0; r < of; ++r)
          start.insert(start.end(), whole.begin() + r * outputs, whole.begin() + r * outputs + some);
        expect_equal(part, start);
      }
    }
  }
}

namespace {

struct ExpertsCase {
  int experts, used;
  int64_t hidden, inner;
  Format gate, down;
  bool renormalise;
  Activation act = Activation::Silu;
  bool ordered = false;              // weights have scales and, all but every fourth, an order of their own
  std::optional<Format> other = {};  // of the matrices of every third expert

  bool has(Format format) const { return gate == format || down == format || other == format; }
  /// Of two products in a row. Where activations may have one scale for 256 inputs, those between the
  /// products, a few of which are large, lose up to 0.025 by their rounding to int8 alone.
  double tolerance() const {
    const auto of = [](Format f) {
      return (format_info(f).block_size == 256 ? 2.5 : 2.0) * product_tolerance(f);
    };
    return std::max({of(gate), of(down), other ? of(*other) : 0.0});
  }
};

const ExpertsCase kExpertsCases[] = {
    {1, 1, 33, 7, Format::F32, Format::F32, true},
    {5, 2, 48, 31, Format::F32, Format::F16, false, Activation::GeluTanh},
    {7, 7, 70, 97, Format::BF16, Format::BF16, true},
    {128, 8, 64, 32, Format::Q8_0, Format::Q8_0, true},
    {60, 4, 96, 160, Format::Q4_1, Format::Q5_0, false},
    {16, 3, 256, 256, Format::Q4_K, Format::Q6_K, true},
    {6, 2, 512, 64, Format::Q5_K, Format::Q4_0, true},
    {9, 3, 96, 160, Format::Q4_Z, Format::Q4_Z, true, Activation::Silu, true},
    {12, 4, 64, 128, Format::F8_E4M3_64, Format::F8_E4M3, true, Activation::Silu, true},
    {12, 4, 128, 64, Format::NVFP4, Format::NVFP4, false, Activation::Silu, true},
    {12, 4, 64, 96, Format::Q4_0, Format::Q5_0, true, Activation::Silu, false, Format::Q8_0},
    {6, 2, 64, 32, Format::Q8_0, Format::Q4_1, true, Activation::Silu, false, Format::F16},
};

// For kManyRowsOfFew rows, of which more than 64 fall to an expert in the mean: codes, floats and both.
const ExpertsCase kFewExpertsCases[] = {
    {4, 2, 256, 256, Format::Q8_0, Format::Q8_0, true},
    {4, 2, 256, 256, Format::Q4_K, Format::Q6_K, true},
    {4, 2, 256, 256, Format::BF16, Format::Q5_0, true},
};
constexpr int kManyRowsOfFew = 150;

bool takes(const Candidate& candidate, const ExpertsCase& c) {
  return !candidate.variant || has_codes(c.gate) || has_codes(c.down);
}

std::string name_of(const ExpertsCase& c) {
  return vllm::format("%d of %d experts of %lld over %lld, %s%s%s", c.used, c.experts,
                      static_cast<long long>(c.inner), static_cast<long long>(c.hidden),
                      format_info(c.gate).name, c.other ? " and " : "",
                      c.other ? format_info(*c.other).name : "");
}

struct ExpertsData {
  std::vector<Weights> weights;  // gate, up and down of each expert
  std::vector<float> x, logits, y;

  ExpertsData(const ExpertsCase& c, int rows) {
    for (int e = 0; e < c.experts; ++e) {
      const bool other = c.other && e % 3 == 1;
      const Format gate = other ? *c.other : c.gate, down = other ? *c.other : c.down;
      weights.emplace_back(gate, c.inner, c.hidden, 3 * e + 1);
      weights.emplace_back(gate, c.inner, c.hidden, 3 * e + 2);
      weights.emplace_back(down, c.hidden, c.inner, 3 * e + 3);
    }
    Random random(c.experts + rows);
    for (size_t i = 0; c.ordered && i < weights.size(); ++i) {
      WeightView& view = weights[i].view;
      auto scale = std::make_shared<std::vector<float>>(i % 2 ? 1 : static_cast<size_t>(view.rows));
      for (float& s : *scale) s = 1.0f + 0.25f * random.gauss();
      view.scale = std::move(scale);
      if (i % 4 == 3) continue;
      auto order = std::make_shared<std::vector<int32_t>>(static_cast<size_t>(view.cols));
      for (size_t k = 0; k < order->size(); ++k)
        (*order)[k] = static_cast<int32_t>((k * (i % 2 ? 7 : 11) + i) % order->size());
      view.order = std::move(order);
    }
    x = random.gauss(rows * c.hidden);
    y = random.gauss(rows * c.hidden, 0.1f);
    // Low experts are taken by most rows, high ones by few or none.
    for (int t = 0; t < rows; ++t)
      for (int e = 0; e < c.experts; ++e)
        logits.push_back(2.0f * random.gauss() -
                         6.0f * static_cast<float>(e) / static_cast<float>(c.experts));
  }

  /// The rows [first, first + rows).
  std::vector<float> run(Device& device, const ExpertsCase& c, int first, int rows, bool accumulate,
                         bool in_place = false) const {
    Rig rig(device);
    std::vector<std::unique_ptr<DeviceWeight>> packed;
    std::vector<ExpertWeights> list;
    for (const Weights& w : weights) packed.push_back(device.pack(w.view, false));
    for (int e = 0; e < c.experts; ++e)
      list.push_back({packed[3 * e].get(), packed[3 * e + 1].get(), packed[3 * e + 2].get()});
    const auto part = [&](const std::vector<float>& all, int64_t cols) {
      return std::vector<float>(all.begin() + first * cols, all.begin() + (first + rows) * cols);
    };
    const Tensor in = rig.tensor(rows, c.hidden, part(x, c.hidden), 5),
                 choice = rig.tensor(rows, c.experts, part(logits, c.experts), 1),
                 out = in_place ? in : rig.tensor(rows, c.hidden, part(y, c.hidden), 3);
    const RouterSpec router{c.used, c.renormalise, 1.5f};
    device.experts(router, list, c.act, in, choice, accumulate, out);
    return rig.read(out);
  }
};

void experts_against_reference(const ExpertsCase& c, int rows, bool accumulate) {
  INFO(name_of(c));
  CAPTURE(rows);
  const ExpertsData data(c, rows);
  against_reference([&](Device& device) { return data.run(device, c, 0, rows, accumulate); },
                    [&](const auto& want, const auto& got, const Candidate&) {
                      // Rows of large outputs, as the product of gate and up makes some, err more.
                      expect_close_rms(want, got, c.tolerance(), 20 * c.tolerance() * rms(want));
                    },
                    [&](const Candidate& each) { return takes(each, c); });
}

}  // namespace

TEST_CASE("experts") {
  for (const ExpertsCase& c : kExpertsCases)
    for (int rows : {1, 3, 70})
      for (bool accumulate : {false, true}) experts_against_reference(c, rows, accumulate);
  for (const ExpertsCase& c : kFewExpertsCases) experts_against_reference(c, kManyRowsOfFew, true);
}

TEST_CASE("experts in the formats that the other cases lack") {
  for (const FormatInfo& format : all_formats()) {
    if (std::any_of(std::begin(kExpertsCases), std::end(kExpertsCases),
                    [&](const ExpertsCase& c) { return c.has(format.format); }))
      continue;
    const int64_t width = std::max(format.block_size, 32);
    for (int rows : {1, 3})
      experts_against_reference({2, 2, width, width, format.format, format.format, true}, rows, false);
  }
}

TEST_CASE(
    "a row of a mixture of experts has the same bits alone, in any batch and with any number of threads") {
  const int rows = 61;
  for (const ExpertsCase& c : kExpertsCases) {
    INFO(name_of(c));
    const ExpertsData data(c, rows);
    std::string kind;
    std::vector<float> want;
    for (const Candidate& candidate : candidates()) {
      if (!takes(candidate, c)) continue;
      INFO(candidate.name);
      const auto whole = data.run(*candidate.device, c, 0, rows, true);
      if (candidate.kind != kind) want = whole, kind = candidate.kind;
      expect_equal(want, whole);
      std::vector<float> pieces;
      int at = 0;
      for (int size : {1, 2, 1, 5, 17, 35}) {
        const auto got = data.run(*candidate.device, c, at, size, true);
        pieces.insert(pieces.end(), got.begin(), got.end());
        at += size;
      }
      REQUIRE(at == rows);
      expect_equal(want, pieces);
      expect_equal(data.run(*candidate.device, c, 0, rows, false, true),
                   data.run(*candidate.device, c, 0, rows, false, false));
    }
  }
}

TEST_CASE("a mixture of experts of very many rows gives each the bits that it has among few, also in place") {
  struct Run {
    const ExpertsCase& c;
    int rows, piece;
  };
  std::vector<Run> runs = {{kExpertsCases[3], 1300, 325}};
  for (const ExpertsCase& c : kFewExpertsCases) runs.push_back({c, kManyRowsOfFew, 5});
  for (const auto& [c, rows, piece] : runs) {
    INFO(name_of(c));
    const ExpertsData data(c, rows);
    for (const Candidate& candidate : candidates()) {
      if (!takes(candidate, c)) continue;
      INFO(candidate.name);
      std::vector<float> whole;
      for (const bool accumulate : {true, false}) {
        std::vector<float> want;
        for (int at = 0; at < rows; at += piece) {
          const auto got = data.run(*candidate.device, c, at, piece, accumulate);
          want.insert(want.end(), got.begin(), got.end());
        }
        whole = data.run(*candidate.device, c, 0, rows, accumulate);
        expect_equal(want, whole);
      }
      expect_equal(whole, data.run(*candidate.device, c, 0, rows, false, true));
    }
  }
}

TEST_CASE(
    "a row chooses the experts of the largest logits, of equal ones the first, and none without numbers") {
  // Expert e maps the input 1 to silu(1) * 10^e.
  const int experts = 5;
  std::vector<Weights> weights;
  for (int e = 0; e < experts; ++e) {
    for (float value : {1.0f, 1.0f, std::pow(10.0f, static_cast<float>(e))}) {
      weights.emplace_back(Format::F32, 1, 1, 1);
      std::memcpy(weights.back().data->data(), &value, sizeof value);
    }
  }
  const float inf = INFINITY, silu = 1 / (1 + std::exp(-1.0f)), e1 = std::exp(1.0f);
  struct Row {
    std::vector<float> logits;
    std::vector<double> plain, renormalised;  // weights of the experts
  };
  const Row rows[] = {
      {{0, 0, 0, 0, 0}, {0.2, 0.2, 0, 0, 0}, {0.5, 0.5, 0, 0, 0}},
      {{0, 1, 0, 1, 1}, {0, e1 / (3 * e1 + 2), 0, e1 / (3 * e1 + 2), 0}, {0, 0.5, 0, 0.5, 0}},
      {{0, 0, 0, 1, 0}, {1 / (e1 + 4), 0, 0, e1 / (e1 + 4), 0}, {1 / (e1 + 1), 0, 0, e1 / (e1 + 1), 0}},
      {{-inf, -inf, 3, -inf, -inf}, {0, 0, 1, 0, 0}, {0, 0, 1, 0, 0}},
      {{1000, 0, 0, 0, 1000}, {0.5, 0, 0, 0, 0.5}, {0.5, 0, 0, 0, 0.5}},
      {{0, 1, NAN, 3, 4}, {0, 0, 0, 0, 0}, {0, 0, 0, 0, 0}},
      {{0, 1, inf, 3, 4}, {0, 0, 0, 0, 0}, {0, 0, 0, 0, 0}},
      {{-inf, -inf, -inf, -inf, -inf}, {0, 0, 0, 0, 0}, {0, 0, 0, 0, 0}},
  };
  std::vector<float> logits, want[2];
  for (const Row& row : rows) {
    logits.insert(logits.end(), row.logits.begin(), row.logits.end());
    for (int renormalise : {0, 1}) {
      double sum = 0;
      for (int e = 0; e < experts; ++e)
        sum += (renormalise ? row.renormalised : row.plain)[e] * std::pow(10.0, e);
      want[renormalise].push_back(static_cast<float>(sum * silu));
    }
  }
  const auto count = static_cast<int64_t>(std::size(rows));
  std::vector<Device*> devices = {&reference()};
  for (const Candidate& candidate : candidates()) devices.push_back(candidate.device.get());
  for (Device* device : devices) {
    INFO(device->description());
    Rig rig(*device);
    std::vector<std::unique_ptr<DeviceWeight>> packed;
    std::vector<ExpertWeights> list;
    for (const Weights& w : weights) packed.push_back(device->pack(w.view, false));
    for (int e = 0; e < experts; ++e)
      list.push_back({packed[3 * e].get(), packed[3 * e + 1].get(), packed[3 * e + 2].get()});
    for (int renormalise : {0, 1}) {
      const Tensor out = rig.tensor(count, 1, {});
      device->experts(RouterSpec{2, renormalise == 1, 1.0f}, list, Activation::Silu,
                      rig.tensor(count, 1, std::vector<float>(count, 1.0f)),
                      rig.tensor(count, experts, logits), false, out);
      expect_close(want[renormalise], rig.read(out), 1e-6, 0);
    }
  }
}

TEST_CASE("an expert that a row does not choose has no part in it, whatever it would give") {
  const ExpertsCase c{4, 1, 32, 32, Format::F32, Format::F32, false};
  ExpertsData data(c, 2);
  data.logits = {9, 0, 0, 0, 0, 9, 0, 0};
  for (Weights* w : {&data.weights[3], &data.weights[6], &data.weights[9]})
    for (size_t at = 0; at < w->data->size(); at += 4) std::memcpy(w->data->data() + at, "\0\0\xc0\x7f", 4);
  for (const Candidate& candidate : candidates()) {
    INFO(candidate.name);
    const auto out = data.run(*candidate.device, c, 0, 2, false);
    CHECK(std::all_of(out.begin(), out.begin() + 32, [](float v) { return std::isfinite(v); }));
    CHECK(std::isnan(out[40]));
  }
}

TEST_CASE("add_gated_rows") {
  for (int cols : {1, 33, 640}) {
    for (int rows : {1, 40}) {
      CAPTURE(cols);
      CAPTURE(rows);
      Random random(cols + rows);
      const auto x = random.gauss(rows * cols), gate = random.gauss(rows, 30.0f),
                 y = random.gauss(rows * cols);
      against_reference(
          [&](Device& device) {
            Rig rig(device);
            const Tensor out = rig.tensor(rows, cols, y, 2);
            device.add_gated_rows(rig.tensor(rows, cols, x, 1), rig.tensor(rows, 1, gate, 3), out);
            return rig.read(out);
          },
          1e-6, 1e-6);
    }
  }
}

namespace {

struct AttentionCase {
  int heads, kv_heads, head_dim, block_size;
  int window = 0;
  float softcap = 0;
  KvFormat format = KvFormat::BF16;
};

const AttentionCase kAttentionCases[] = {
    {9, 3, 64, 32},
    {4, 1, 256, 32},
    {16, 8, 128, 16},
    {2, 2, 80, 48},
    {7, 7, 96, 32},
    {3, 1, 33, 16},
    {7, 1, 1, 64},
    {8, 2, 64, 512, 0, 50.0f},
    {4, 1, 256, 32, 100},
    {9, 3, 64, 32, 7, 0, KvFormat::F32},
    {9, 3, 64, 32, 0, 0, KvFormat::F32},
    {2, 1, 80, 16, 0, 20.0f, KvFormat::F32},
    {5, 5, 47, 16, 33, 0, KvFormat::F32},
    {9, 3, 64, 32, 0, 0, KvFormat::Q8_0},
    {4, 1, 256, 32, 100, 0, KvFormat::Q8_0},
    {5, 5, 47, 48, 33, 0, KvFormat::Q8_0},
    {2, 1, 80, 16, 0, 20.0f, KvFormat::Q8_0},
    {7, 1, 1, 64, 0, 0, KvFormat::Q8_0},
};

std::string name_of(const AttentionCase& c) {
  return vllm::format("%d heads over %d of %d, blocks of %d, window %d, softcap %g, %s", c.heads, c.kv_heads,
                      c.head_dim, c.block_size, c.window, static_cast<double>(c.softcap),
                      c.format == KvFormat::F32    ? "f32"
                      : c.format == KvFormat::Q8_0 ? "q8_0"
                                                   : "bf16");
}

/// Whether the device has a cache for the case; variants take fewer, as they share all but how they load.
bool takes(const Candidate& candidate, const AttentionCase& c) {
  const bool chosen = c.head_dim == 33 || c.head_dim == 47 || (c.heads == 9 && c.format == KvFormat::BF16);
  return has(candidate, c.format) && (chosen || !candidate.variant);
}

/// A sequence's queries, keys and values and the blocks it owns.
struct Sequence {
  int length;
  std::vector<int32_t> blocks;
  std::vector<float> q, k, v;
};

/// Sequences of the given lengths over shuffled blocks of one pool.
std::vector<Sequence> make_sequences(const AttentionCase& c, const std::vector<int>& lengths,
                                     int* num_blocks) {
  Random random(c.heads * 1000 + c.head_dim);
  std::vector<Sequence> out;
  int next = 0;
  for (int length : lengths) {
    Sequence s{length,
               {},
               random.gauss(static_cast<size_t>(length) * c.heads * c.head_dim, 2.0f),
               random.gauss(static_cast<size_t>(length) * c.kv_heads * c.head_dim),
               random.gauss(static_cast<size_t>(length) * c.kv_heads * c.head_dim)};
    for (int b = 0; b * c.block_size < length; ++b) s.blocks.push_back(next++);
    out.push_back(std::move(s));
  }
  std::vector<int32_t> ids(next);
  for (int i = 0; i < next; ++i) ids[i] = i;
  for (int i = next - 1; i > 0; --i) std::swap(ids[i], ids[random.bits() % (i + 1)]);
  for (Sequence& s : out)
    for (int32_t& b : s.blocks) b = ids[b];
  *num_blocks = next;
  return out;
}

/// Rows first .. end - 1 of sequence `index` in one step.
struct Piece {
  int index, first, end;
};

/// Runs the steps on layer 1 of 2 and returns all rows of all sequences. Layer 0 is filled with other
/// numbers. The last step comes after `before_last`.
std::vector<float> run_attention(Device& device, const AttentionCase& c,
                                 const std::vector<Sequence>& sequences, int num_blocks,
                                 const std::vector<std::vector<Piece>>& steps,
                                 const std::function<void(KvCache&)>& before_last = {}) {
  Rig rig(device);
  KvCacheSpec spec;
  spec.layers = {{c.kv_heads, c.head_dim}, {c.kv_heads, c.head_dim}};
  spec.block_size = c.block_size;
  spec.num_blocks = num_blocks;
  spec.format = c.format;
  const auto cache = device.make_kv_cache(spec);
  AttentionSpec attention;
  attention.heads = c.heads;
  attention.kv_heads = c.kv_heads;
  attention.head_dim = c.head_dim;
  attention.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  attention.window = c.window;
  attention.softcap = c.softcap;
  const int q_cols = c.heads * c.head_dim, kv_cols = c.kv_heads * c.head_dim;

  std::vector<std::vector<float>> results;
  for (const Sequence& s : sequences) results.emplace_back(s.q.size());
  for (const std::vector<Piece>& step : steps) {
    if (before_last && &step == &steps.back()) before_last(*cache);
    StepBatch batch;
    batch.seq_start = {0};
    std::vector<float> q, k, v;
    for (const Piece& p : step) {
      const Sequence& s = sequences[p.index];
      for (int t = p.first; t < p.end; ++t) {
        batch.token_ids.push_back(t);
        batch.positions.push_back(t);
      }
      batch.seq_start.push_back(batch.rows());
      batch.state_slots.push_back(-1);
      batch.max_blocks = std::max(batch.max_blocks, static_cast<int32_t>(s.blocks.size()));
      q.insert(q.end(), s.q.begin() + p.first * q_cols, s.q.begin() + p.end * q_cols);
      k.insert(k.end(), s.k.begin() + p.first * kv_cols, s.k.begin() + p.end * kv_cols);
      v.insert(v.end(), s.v.begin() + p.first * kv_cols, s.v.begin() + p.end * kv_cols);
    }
    for (const Piece& p : step) {
      const std::vector<int32_t>& blocks = sequences[p.index].blocks;
      for (int b = 0; b < batch.max_blocks; ++b)
        batch.block_table.push_back(b < static_cast<int>(blocks.size()) ? blocks[b] : -1);
    }
    const int rows = batch.rows();
    const Tensor tq = rig.tensor(rows, q_cols, q, 5), tk = rig.tensor(rows, kv_cols, k, 2),
                 tv = rig.tensor(rows, kv_cols, v, 1), out = rig.tensor(rows, q_cols, {}, 3);
    device.begin_step(batch);
    device.write_kv(*cache, 0, tv, tk);
    device.write_kv(*cache, 1, tk, tv);
    device.attention(*cache, 1, tq, attention, out);
    device.end_step();
    const std::vector<float> got = rig.read(out);
    size_t at = 0;
    for (const Piece& p : step) {
      const size_t count = static_cast<size_t>(p.end - p.first) * q_cols;
      std::copy_n(got.begin() + at, count, results[p.index].begin() + static_cast<size_t>(p.first) * q_cols);
      at += count;
    }
  }
  std::vector<float> all;
  for (const auto& r : results) all.insert(all.end(), r.begin(), r.end());
  return all;
}

}  // namespace

TEST_CASE("write_kv and attention") {
  for (const AttentionCase& c : kAttentionCases) {
    INFO(name_of(c));
    int num_blocks;
    const auto sequences = make_sequences(c, {1, 45, 610, 17}, &num_blocks);
    // The last step decodes, continues a prefill far into its context and starts one, together.
    const std::vector<std::vector<Piece>> steps = {{{1, 0, 44}, {2, 0, 570}},
                                                   {{0, 0, 1}, {2, 570, 610}, {1, 44, 45}, {3, 0, 17}}};
    against_reference([&](Device& device) { return run_attention(device, c, sequences, num_blocks, steps); },
                      [&](const auto& want, const auto& got, const Candidate& candidate) {
                        // The reference stores the same keys and values. What remains is f32 sums, or, with
                        // bf16 dot products, queries and weights rounded to bf16: a score of 4 errs by up to
                        // 1e-2, so a weight by 1 %, and values go to 3.
                        const bool dots = (candidate.kind == "avx512bf16" || candidate.kind == "amx" ||
                                           candidate.kind == "neonbf16") &&
                                          c.format == KvFormat::BF16;
                        expect_close_rms(want, got, dots ? 4e-3 : 3e-6, dots ? 0.03 : 2e-5);
                      },
                      [&](const Candidate& each) { return takes(each, c); });
  }
}

TEST_CASE("a row of attention has the same bits in one prefill, in chunks, token by token and in any batch") {
  for (const AttentionCase& c : kAttentionCases) {
    INFO(name_of(c));
    int num_blocks;
    const auto sequences = make_sequences(c, {601, 150}, &num_blocks);
    std::string kind;
    std::vector<float> want;
    for (const Candidate& candidate : candidates()) {
      if (!takes(candidate, c)) continue;
      INFO(candidate.name);
      const auto run = [&](const auto& steps) {
        return run_attention(*candidate.device, c, sequences, num_blocks, steps);
      };
      const int end = candidate.slow ? 345 : 601;  // two splits of keys, or three
      std::vector<std::vector<Piece>> tokens, chunks;
      for (int t = 0; t < end; ++t) {
        tokens.push_back({{0, t, t + 1}});
        if (t < 150) tokens.back().push_back({1, t, t + 1});
      }
      for (int t = 0, size = 1; t < end; t += size, size = size % 97 + 13) {
        chunks.push_back({});
        if (t < 150) chunks.back().push_back({1, t, std::min(150, t + size)});
        chunks.back().push_back({0, t, std::min(end, t + size)});
      }
      const auto whole = run(std::vector<std::vector<Piece>>{{{0, 0, end}}, {{1, 0, 150}}});
      if (candidate.kind != kind) want = whole, kind = candidate.kind;
      expect_equal(want, whole);
      expect_equal(want, run(std::vector<std::vector<Piece>>{{{0, 0, end}, {1, 0, 150}}}));
      expect_equal(want, run(chunks));
      if (c.head_dim == 33) expect_equal(want, run(tokens));  // so many steps take long
    }
  }
}

TEST_CASE("a row of attention over a long context has the same bits decoded as prefilled") {
  for (const AttentionCase& c :
       {AttentionCase{2, 1, 64, 32}, AttentionCase{2, 1, 64, 32, 1200, 0, KvFormat::F32},
        AttentionCase{2, 1, 64, 32, 0, 0, KvFormat::Q8_0}}) {
    INFO(name_of(c));
    int num_blocks;
    const auto sequences = make_sequences(c, {2100}, &num_blocks);
    std::string kind;
    std::vector<float> want;
    for (const Candidate& candidate : candidates()) {
      if (candidate.variant || !has(candidate, c.format)) continue;
      INFO(candidate.name);
      const int end = candidate.slow ? 1500 : 2100;
      const auto whole = run_attention(*candidate.device, c, sequences, num_blocks, {{{0, 0, end}}});
      if (candidate.kind != kind) want = whole, kind = candidate.kind;
      expect_equal(want, whole);
      expect_equal(want, run_attention(*candidate.device, c, sequences, num_blocks,
                                       {{{0, 0, end - 400}},
                                        {{0, end - 400, end - 40}},
                                        {{0, end - 40, end - 2}},
                                        {{0, end - 2, end - 1}},
                                        {{0, end - 1, end}}}));
    }
  }
}

TEST_CASE("attention is not touched by what a block held before") {
  for (const AttentionCase& c : {kAttentionCases[0], kAttentionCases[9], kAttentionCases[13]}) {
    INFO(name_of(c));
    int num_blocks;
    auto sequences = make_sequences(c, {40, 40}, &num_blocks);
    for (float& x : sequences[0].k) x = INFINITY;
    for (float& x : sequences[0].v) x = NAN;
    for (const Candidate& candidate : candidates()) {
      if (!has(candidate, c.format)) continue;
      INFO(candidate.name);
      sequences[1].blocks.swap(sequences[0].blocks);
      const auto clean =
          run_attention(*candidate.device, c, sequences, num_blocks, {{{1, 0, 33}}, {{1, 33, 40}}});
      sequences[1].blocks = sequences[0].blocks;
      const auto reused = run_attention(*candidate.device, c, sequences, num_blocks,
                                        {{{0, 0, 40}}, {{1, 0, 33}}, {{1, 33, 40}}});
      const size_t half = clean.size() / 2;
      expect_equal({clean.begin() + half, clean.end()}, {reused.begin() + half, reused.end()});
      CHECK(std::isfinite(reused.back()));
    }
  }
}

TEST_CASE(
    "a sequence goes on in a copy of the first tokens of another one's block, in one that was used too") {
  for (const AttentionCase& c : {kAttentionCases[0], kAttentionCases[2], kAttentionCases[5],
                                 kAttentionCases[9], kAttentionCases[13], kAttentionCases[15]}) {
    INFO(name_of(c));
    const int size = c.block_size, end = 2 * size + 3;
    for (const int tokens : {1, 8, 13, size - 1, size}) {
      CAPTURE(tokens);
      const int shared = size + tokens;
      int num_blocks;
      auto sequences = make_sequences(c, {end, end, end}, &num_blocks);
      auto &first = sequences[0], &second = sequences[1], &before = sequences[2];
      const auto kv_cols = static_cast<size_t>(c.kv_heads) * c.head_dim, split = kv_cols * shared;
      std::copy_n(second.k.begin(), split, first.k.begin());
      std::copy_n(second.v.begin(), split, first.v.begin());
      std::fill(first.k.begin() + split, first.k.end(), INFINITY);
      std::fill(first.v.begin() + split, first.v.end(), NAN);
      std::fill(before.v.begin(), before.v.end(), NAN);
      std::vector<Device*> devices = {&reference()};
      for (const Candidate& candidate : candidates())
        if (takes(candidate, c)) devices.push_back(candidate.device.get());
      for (Device* device : devices) {
        INFO(device->description());
        const auto rows = [&](const std::vector<float>& all) {
          const auto begin = all.begin() + static_cast<ptrdiff_t>(all.size() / 3);
          const auto of_one = static_cast<ptrdiff_t>(all.size() / 3 / end);
          return std::vector<float>(begin + shared * of_one, begin + end * of_one);
        };
        const auto whole = rows(run_attention(*device, c, sequences, num_blocks, {{{1, 0, end}}}));
        auto moved = sequences;
        moved[1].blocks[0] = first.blocks[0];
        moved[2].blocks = second.blocks;
        const auto continued = [&](const std::vector<std::vector<Piece>>& steps) {
          return rows(run_attention(*device, c, moved, num_blocks, steps, [&](KvCache& cache) {
            device->copy_kv(cache, first.blocks[1], moved[1].blocks[1], tokens);
          }));
        };
        expect_equal(whole, continued({{{2, 0, end}}, {{0, 0, end}}, {{1, shared, end}}}));
        moved[1].blocks[1] = first.blocks[1];  // in place
        expect_equal(whole, continued({{{0, 0, end}}, {{1, shared, end}}}));
        CHECK(std::all_of(whole.begin(), whole.end(), [](float x) { return std::isfinite(x); }));
      }
    }
  }
}

TEST_CASE("a q8_0 cache keeps numbers to a 254th of the largest of their 32, tiny and huge ones too") {
  // A sequence of one token attends to itself only, so attention gives back its values.
  for (const int head_dim : {32, 80}) {
    for (const float size : {1e-38f, 1e-25f, 1.0f, 3e4f, 1e30f}) {
      CAPTURE(head_dim);
      CAPTURE(size);
      const AttentionCase c{1, 1, head_dim, 16, 0, 0, KvFormat::Q8_0};
      int num_blocks;
      auto sequences = make_sequences(c, {1}, &num_blocks);
      for (float& x : sequences[0].q) x = 0;
      for (float& x : sequences[0].v) x *= size;
      const std::vector<float>& v = sequences[0].v;
      against_reference(
          [&](Device& device) { return run_attention(device, c, sequences, num_blocks, {{{0, 0, 1}}}); },
          [&](const auto& want, const auto& got, const Candidate&) {
            expect_equal(want, got);
            for (int d = 0; d < head_dim; ++d) {
              float top = 0;
              for (int i = d / 32 * 32; i < std::min(head_dim, d / 32 * 32 + 32); ++i)
                top = std::max(top, std::fabs(v[i]));
              // Half a step of a scale that rounding up to bf16 makes greater by up to a 128th.
              CHECK(std::fabs(got[d] - v[d]) <= (size < 1e-30f ? top : top / 254 * (1 + 1 / 100.0f)));
            }
          },
          [](const Candidate& each) { return has(each, KvFormat::Q8_0); });
    }
  }
}

TEST_CASE("a device refuses what cannot be computed, by name") {
  const auto status_of = [](const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& e) {
      CHECK(e.message().size() > 20);
      return e.status();
    }
    return Status::Ok;
  };
  std::vector<Device*> devices = {&reference()};
  for (const Candidate& candidate : candidates()) devices.push_back(candidate.device.get());
  for (Device* device : devices) {
    INFO(device->description());
    CHECK(device->available_memory() > 0);
    CHECK(status_of([&] { device->allocate(size_t{1} << 60); }) == Status::ModelLoad);
    KvCacheSpec spec;
    spec.layers = {{1, 64}};
    spec.block_size = 24;
    spec.num_blocks = 2;
    CHECK(status_of([&] { device->make_kv_cache(spec); }) == Status::ModelLoad);
    spec.block_size = 32;
    CHECK(spec.block_bytes() == 2 * 64 * 32 * 2);
    const auto cache = device->make_kv_cache(spec);
    CHECK(cache->bytes >= 2 * spec.block_bytes());
    CHECK(status_of([&] { device->copy_kv(*cache, 0, 2, 8); }) == Status::Runtime);
    CHECK(status_of([&] { device->copy_kv(*cache, -1, 0, 8); }) == Status::Runtime);
    CHECK(status_of([&] { device->copy_kv(*cache, 0, 1, 33); }) == Status::Runtime);
    CHECK(status_of([&] { device->copy_kv(*cache, 0, 1, -1); }) == Status::Runtime);

    Rig rig(*device);
    const Tensor x = rig.tensor(2, 64, std::vector<float>(128, 1.0f)), narrow = x.columns(0, 32);
    CHECK(status_of([&] { device->rms_norm(x, narrow.head(1), 1e-5f, false, x); }) == Status::Runtime);
    CHECK(status_of([&] { device->gated(Activation::Silu, x, narrow, x); }) == Status::Runtime);
    const Weights square(Format::F32, 64, 64, 1), slim(Format::F32, 64, 32, 1);
    const auto whole = device->pack(square.view, false), half = device->pack(slim.view, false);
    const ExpertWeights good{whole.get(), whole.get(), whole.get()},
        bad{whole.get(), whole.get(), half.get()};
    const auto experts = [&](const std::vector<ExpertWeights>& list, int used, const Tensor& logits) {
      return status_of(
          [&] { device->experts(RouterSpec{used}, list, Activation::Silu, x, logits, false, x); });
    };
    CHECK(experts({good, good}, 1, x.columns(0, 2)) == Status::Ok);
    CHECK(experts({good, good}, 3, x.columns(0, 2)) == Status::Runtime);
    CHECK(experts({good, good}, 0, x.columns(0, 2)) == Status::Runtime);
    CHECK(experts({good, good}, 1, x.columns(0, 3)) == Status::Runtime);
    CHECK(experts({good, bad}, 1, x.columns(0, 2)) == Status::Runtime);
    CHECK(status_of([&] { device->add_gated_rows(x, x, x); }) == Status::Runtime);
    StepBatch batch = rows_from(0, 2);
    batch.max_blocks = 1;
    batch.block_table = {2};
    device->begin_step(batch);
    CHECK(status_of([&] { device->write_kv(*cache, 0, x, x); }) == Status::Runtime);
    CHECK(status_of([&] { device->write_kv(*cache, 1, x, x); }) == Status::Runtime);
    CHECK(status_of([&] { device->attention(*cache, 0, x, AttentionSpec{3, 1, 64}, x); }) == Status::Runtime);
    CHECK(status_of([&] { device->norm_rope(x, 3, nullptr, 0, RopeSpec{}); }) == Status::Runtime);
    device->end_step();
    batch.positions[1] = 5;
    CHECK(status_of([&] { device->begin_step(batch); }) == Status::Runtime);

    Weights weights(Format::Q8_0, 4, 64, 1);
    weights.view.cols = 60;
    CHECK(status_of([&] { device->pack(weights.view, false); }) == Status::ModelLoad);
  }
  CHECK(status_of([] { make_cpu_device(1, "sse9"); }) == Status::InvalidArgument);
}

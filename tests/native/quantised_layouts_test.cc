// Quantised layouts of safetensors that no fixture has, against their formulas.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "base/formats.h"
#include "base/json.h"
#include "file_writers.h"
#include "weights/checkpoint.h"

using namespace vllm;
using vllm::test::contains;
using vllm::test::TempDir;

namespace {

/// A checkpoint of one module "m" with random bytes, and the values that its layout means.
struct OneModule {
  struct Part {
    std::string name, dtype;
    std::vector<int64_t> shape;
    std::string bytes;
  };
  Json config;
  std::vector<Part> parts;
  std::string scheme;
  std::function<float(int64_t row, int64_t col)> value;

  /// Rows and columns of the weight are `shape`.
  void check(const std::vector<int64_t>& shape) const {
    Json header;
    std::string data;
    for (const Part& part : parts) {
      header["m." + part.name] = {{"dtype", part.dtype},
                                  {"shape", part.shape},
                                  {"data_offsets", {data.size(), data.size() + part.bytes.size()}}};
      data += part.bytes;
    }
    const TempDir dir;
    dir.write("config.json", Json{{"quantization_config", config}}.dump());
    dir.write("model.safetensors", test::safetensors_file(header.dump(), data));
    const auto checkpoint = Checkpoint::open(dir.path);
    CHECK(contains(checkpoint->format_summary(), scheme));
    const Weight* const weight = checkpoint->find("m.weight");
    REQUIRE(weight != nullptr);
    REQUIRE(weight->shape == shape);
    const WeightView view = weight->view();
    std::vector<float> row(static_cast<size_t>(view.cols));
    int64_t differing = 0;
    for (int64_t r = 0; r < view.rows; ++r) {
      view.decode_row(r, row.data());
      for (int64_t c = 0; c < view.cols; ++c) {
        const float want = value(r, c), got = row[static_cast<size_t>(c)];
        differing += !(std::fabs(got - want) <= std::fabs(want) * 0x1p-22f);
      }
    }
    CHECK(differing == 0);
  }
};

/// Bytes that are codes of E4M3 other than NaN.
std::string fp8_codes(int64_t count, uint32_t seed) {
  std::string out;
  for (int64_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    const auto code = static_cast<uint8_t>(seed >> 24);
    out += static_cast<char>((code & 0x7f) == 0x7f ? code - 1 : code);
  }
  return out;
}

float scale_at(int64_t i) { return 0.01f * static_cast<float>(1 + i % 7); }

std::string scales(int64_t count) {
  std::string out;
  for (int64_t i = 0; i < count; ++i) out += test::raw(scale_at(i));
  return out;
}

/// Code `i` of four bits, the low ones of a byte first.
int nibble(const std::string& bytes, int64_t i) {
  return static_cast<uint8_t>(bytes[static_cast<size_t>(i / 2)]) >> (i % 2 == 0 ? 0 : 4) & 15;
}

float fp8(const std::string& codes, int64_t i) {
  return e4m3_to_f32(static_cast<uint8_t>(codes[static_cast<size_t>(i)]));
}

}  // namespace

TEST_CASE("FP8 blocks of 128 x 128, as published, and those of compressed-tensors") {
  const int64_t rows = 200, cols = 320;  // the last blocks are cut
  const std::string codes = fp8_codes(rows * cols, 1);
  const auto value = [&](int64_t r, int64_t c) {
    return fp8(codes, r * cols + c) * scale_at(r / 128 * 3 + c / 128);
  };
  OneModule{{{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}, {"activation_scheme", "dynamic"}},
            {{"weight", "F8_E4M3", {rows, cols}, codes}, {"weight_scale_inv", "F32", {2, 3}, scales(6)}},
            "fp8 FP8 in blocks",
            value}
      .check({rows, cols});
  const Json weights = {
      {"num_bits", 8}, {"type", "float"}, {"strategy", "block"}, {"block_structure", {128, 128}}};
  OneModule{{{"quant_method", "compressed-tensors"},
             {"format", "float-quantized"},
             {"config_groups", {{"group_0", {{"weights", weights}, {"targets", {"Linear"}}}}}}},
            {{"weight", "F8_E4M3", {rows, cols}, codes}, {"weight_scale", "F32", {2, 3}, scales(6)}},
            "compressed-tensors FP8 in blocks",
            value}
      .check({rows, cols});
}

TEST_CASE("ModelOpt's FP8 by channel, and its NVFP4 for a whole model") {
  const int64_t rows = 24, cols = 128;
  const std::string codes = fp8_codes(rows * cols, 2);
  OneModule{{{"quant_method", "modelopt"}, {"quant_algo", "FP8_PER_CHANNEL_PER_TOKEN"}},
            {{"weight", "F8_E4M3", {rows, cols}, codes}, {"weight_scale", "F32", {rows}, scales(rows)}},
            "FP8 by channel, W8A8 run weight-only",
            [&](int64_t r, int64_t c) { return fp8(codes, r * cols + c) * scale_at(r); }}
      .check({rows, cols});
  const std::string fours = fp8_codes(rows * cols / 2, 3);  // any bytes are two codes of E2M1
  std::string steps = fp8_codes(rows * cols / 16, 4);
  for (char& step : steps) step &= 0x7f;
  OneModule{{{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}, {"group_size", 16}},
            {{"weight", "U8", {rows, cols / 2}, fours},
             {"weight_scale", "F8_E4M3", {rows, cols / 16}, steps},
             {"weight_scale_2", "F32", {}, scales(1)}},
            "NVFP4, W4A4 run weight-only",
            [&](int64_t r, int64_t c) {
              const float magnitudes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
              const int code = nibble(fours, r * cols + c);
              return (code & 8 ? -1.0f : 1.0f) * magnitudes[code & 7] * fp8(steps, (r * cols + c) / 16) *
                     scale_at(0);
            }}
      .check({rows, cols});
}

TEST_CASE("GPTQ and AWQ with one group for a whole row") {
  const int64_t rows = 16, cols = 64;
  const std::string words = fp8_codes(rows * cols / 2, 5), zeros = fp8_codes(rows / 2, 6);
  const auto factor = [](int64_t row) { return 0.25f * static_cast<float>(1 + row % 7); };
  std::string half_scales;
  for (int64_t r = 0; r < rows; ++r) half_scales += test::raw(f32_to_f16(factor(r)));
  // Eight inputs of an output are a word of GPTQ, whose zero points are stored one less.
  OneModule{{{"quant_method", "gptq"}, {"bits", 4}, {"group_size", -1}, {"desc_act", false}, {"sym", false}},
            {{"qweight", "I32", {cols / 8, rows}, words},
             {"qzeros", "I32", {1, rows / 8}, zeros},
             {"scales", "F16", {1, rows}, half_scales}},
            "GPTQ INT4",
            [&](int64_t r, int64_t c) {
              const int code = nibble(words, (c / 8 * rows + r) * 8 + c % 8);
              return static_cast<float>(code - nibble(zeros, r) - 1) * factor(r);
            }}
      .check({rows, cols});
  // Eight outputs of an input are a word of AWQ, in the order 0 2 4 6 1 3 5 7.
  const int place[] = {0, 4, 1, 5, 2, 6, 3, 7};
  OneModule{{{"quant_method", "awq"}, {"bits", 4}, {"group_size", -1}, {"version", "gemm"}},
            {{"qweight", "I32", {cols, rows / 8}, words},
             {"qzeros", "I32", {1, rows / 8}, zeros},
             {"scales", "F16", {1, rows}, half_scales}},
            "AWQ INT4",
            [&](int64_t r, int64_t c) {
              const int code = nibble(words, c * rows + r / 8 * 8 + place[r % 8]);
              return static_cast<float>(code - nibble(zeros, r / 8 * 8 + place[r % 8])) * factor(r);
            }}
      .check({rows, cols});
}

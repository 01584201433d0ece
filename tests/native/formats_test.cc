#include "base/formats.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"

using namespace vllm;

namespace {

const Json& fixture() {
  static const Json value =
      parse_json(read_text_file(FIXTURES "/weights/formats.json"), "formats.json", Status::ModelLoad);
  return value;
}

std::vector<uint8_t> from_hex(const std::string& text) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) bytes.push_back(std::stoi(text.substr(i, 2), nullptr, 16));
  return bytes;
}

template <typename T>
std::vector<T> values_of(const Json& hex) {
  const std::vector<uint8_t> bytes = from_hex(hex.get<std::string>());
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace

TEST_CASE("the format table is in the order of the enum and complete") {
  CHECK(all_formats().size() == static_cast<size_t>(kFormatCount));
  for (size_t i = 0; i < all_formats().size(); ++i) {
    const FormatInfo& info = all_formats()[i];
    CHECK(static_cast<size_t>(info.format) == i);
    CHECK(&format_info(info.format) == &info);
    CHECK(find_ggml_format(static_cast<uint32_t>(info.ggml_type)) == (info.ggml_type < 0 ? nullptr : &info));
    CHECK(find_format(info.name) == &info);
  }
  CHECK(find_ggml_format(15) == nullptr);
  CHECK(find_ggml_format(0xffffffffu) == nullptr);
  CHECK(find_format("Q8_K") == nullptr);
}

TEST_CASE("row_bytes counts whole blocks and refuses a part of one") {
  CHECK(row_bytes(Format::F32, 7) == 28);
  CHECK(row_bytes(Format::Q4_1, 576) == 360);
  CHECK(row_bytes(Format::Q6_K, 512) == 420);
  CHECK_THROWS_AS(row_bytes(Format::Q4_K, 576), Error);
  CHECK_THROWS_AS(row_bytes(Format::Q8_0, -32), Error);
}

TEST_CASE("every format decodes to the bits of gguf-py") {
  for (const FormatInfo& info : all_formats()) {
    if (info.ggml_type < 0) continue;  // see quantised_test.cc
    CAPTURE(info.name);
    const Json& entry = fixture().at("formats").at(info.name);
    const std::vector<uint8_t> blocks = from_hex(entry.at("blocks").get<std::string>());
    const std::vector<uint32_t> want = values_of<uint32_t>(entry.at("values"));
    REQUIRE(!want.empty());
    REQUIRE(blocks.size() == static_cast<size_t>(row_bytes(info.format, static_cast<int64_t>(want.size()))));
    for (const size_t shift : {0, 1}) {  // a file guarantees no alignment
      std::vector<uint8_t> moved(blocks.size() + shift);
      std::memcpy(moved.data() + shift, blocks.data(), blocks.size());
      std::vector<float> got(want.size() + 1, 77.0f);
      info.decode(moved.data() + shift, static_cast<int64_t>(want.size()), got.data());
      size_t wrong = 0;
      for (size_t i = 0; i < want.size(); ++i) wrong += std::bit_cast<uint32_t>(got[i]) != want[i];
      CHECK(wrong == 0);
      CHECK(got.back() == 77.0f);
    }
  }
}

TEST_CASE("f16 and bf16 rounding is that of numpy and ml_dtypes") {
  const Json& entry = fixture().at("roundings");
  const auto values = values_of<float>(entry.at("values"));
  const auto half = values_of<uint16_t>(entry.at("f16"));
  const auto brain = values_of<uint16_t>(entry.at("bf16"));
  REQUIRE(values.size() > 300);
  REQUIRE(values.size() == half.size());
  REQUIRE(values.size() == brain.size());
  for (size_t i = 0; i < values.size(); ++i) {
    CAPTURE(values[i]);
    CHECK(f32_to_f16(values[i]) == half[i]);
    CHECK(f32_to_bf16(values[i]) == brain[i]);
  }
}

TEST_CASE("every E4M3 code has its value by definition") {
  for (int code = 0; code < 256; ++code) {
    CAPTURE(code);
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const float got = e4m3_to_f32(static_cast<uint8_t>(code));
    if (exponent == 15 && mantissa == 7) {
      CHECK(std::isnan(got));
      continue;
    }
    const double magnitude = exponent == 0 ? mantissa * 0x1p-9 : std::ldexp(8 + mantissa, exponent - 10);
    CHECK(got == (code & 0x80 ? -magnitude : magnitude));
    CHECK(std::signbit(got) == (code >= 0x80));
  }
}

TEST_CASE("every f16 has its value by definition and survives the way through f32") {
  size_t wrong = 0;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const int exponent = (bits >> 10) & 31;
    const int mantissa = bits & 0x3ff;
    const double sign = bits & 0x8000 ? -1.0 : 1.0;
    const float got = f16_to_f32(static_cast<uint16_t>(bits));
    if (exponent == 31) {
      wrong += mantissa == 0 ? got != static_cast<float>(sign * INFINITY) : !std::isnan(got);
      wrong += mantissa != 0 && !std::isnan(f16_to_f32(f32_to_f16(got)));
    } else {
      const double want =
          exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
      wrong += got != static_cast<float>(sign * want) || std::signbit(got) != (sign < 0);
      wrong += f32_to_f16(got) != bits;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("NaN stays NaN in bf16") {
  for (const uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu}) {
    CHECK(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(bits)))));
    CHECK(std::isnan(f16_to_f32(f32_to_f16(std::bit_cast<float>(bits)))));
  }
}

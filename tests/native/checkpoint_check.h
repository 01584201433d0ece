// Comparison of an opened checkpoint with what another reader found in the same file.
#pragma once
#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "weights/checkpoint.h"

namespace vllm::test {

inline std::vector<float> decoded(const Weight& weight) {
  const WeightView view = weight.view();
  std::vector<float> out(view.rows * view.cols);
  format_info(view.format).decode(view.data, static_cast<int64_t>(out.size()), out.data());
  return out;
}

inline void check_tensors(const Checkpoint& checkpoint, const char* which) {
  const Json expected =
      parse_json(read_text_file(FIXTURES "/weights/expected.json"), "expected.json", Status::ModelLoad)
          .at(which);
  CHECK(checkpoint.weights().size() == expected.size());
  CHECK(expected.size() >= 4);
  for (const auto& [name, want] : expected.items()) {
    CAPTURE(name);
    const Weight* weight = checkpoint.find(name);
    REQUIRE(weight != nullptr);
    CHECK(weight->name == name);
    CHECK(format_info(weight->format).name == want.at("format").get<std::string>());
    CHECK(weight->shape == want.at("shape").get<std::vector<int64_t>>());
    const std::vector<float> values = decoded(*weight);
    std::string hex;
    for (const float value : values) {
      unsigned char bytes[4];
      std::memcpy(bytes, &value, 4);
      for (const unsigned char byte : bytes) hex += format("%02x", byte);
    }
    CHECK((hex == want.at("values").get<std::string>()));
  }
}

/// Touches everything a model could ask for; all of it must lie inside the mapped files.
inline void use_everything(const Checkpoint& checkpoint) {
  size_t bytes = 0;
  for (const auto& [name, weight] : checkpoint.weights()) {
    bytes += weight.bytes;
    const WeightView view = weight.view();
    REQUIRE(weight.data >= weight.file->data());
    REQUIRE(weight.bytes <= static_cast<size_t>(weight.file->data() + weight.file->size() - weight.data));
    if (view.rows == 0 || view.cols == 0) continue;
    REQUIRE(static_cast<uint64_t>(view.rows) * static_cast<uint64_t>(row_bytes(view.format, view.cols)) ==
            weight.bytes);
    decoded(weight);
  }
  CHECK(checkpoint.fingerprint().size() == 16);
  CHECK(checkpoint.format_summary().empty() == (bytes == 0));
  CHECK(!dump_json(checkpoint.config()).empty());
}

}  // namespace vllm::test

// How much memory a process needs while it packs the weights of a file.
#include <fstream>
#include <string>

#include "base/json.h"
#include "base/mapped_file.h"
#include "device_rig.h"
#include "file_writers.h"
#include "model/binder.h"
#include "weights/checkpoint.h"

using namespace vllm;
using namespace vllm::test;

namespace {

/// A figure of /proc/self/status in bytes.
size_t status_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(name + ":")) return std::stoull(line.substr(name.size() + 1)) * 1024;
  return 0;
}

}  // namespace

TEST_CASE("a weight is in memory once while it is packed, and its file's pages are let go") {
  const FormatInfo& format = format_info(Format::Q8_0);
  const int64_t rows = 128 << 10, cols = 1024;  // large beside what threads hold for a moment
  const size_t bytes = static_cast<size_t>(rows * cols / format.block_size * format.block_bytes);
  const TempDir dir;
  const std::string path = dir.write("weight", std::string(bytes, '\1'));
  for (const int threads : {1, 3}) {
    const auto device = make_cpu_device(threads);
    const auto file = MappedFile::open(path);
    WeightView view{Format::Q8_0, rows, cols, file->data(), file, file.get()};
    std::ofstream("/proc/self/clear_refs") << "5";  // the peak starts over
    const size_t before = status_bytes("VmRSS");
    const auto packed = device->pack(view, false);
    CHECK(packed->bytes >= bytes);
    CHECK(status_bytes("VmHWM") - before < packed->bytes + packed->bytes / 10);
    CHECK(status_bytes("VmRSS") - before < packed->bytes + packed->bytes / 20);
  }
}

TEST_CASE("experts that lie in one tensor are in memory once while they are packed one by one") {
  const FormatInfo& format = format_info(Format::Q4_K);
  const int64_t experts = 96, rows = 768, cols = 2048;
  const int64_t slice = rows * row_bytes(Format::Q4_K, cols);
  const int64_t offset = 3 * format.block_bytes;  // tensors do not begin at pages
  const TempDir dir;
  const std::string path =
      dir.write("experts", std::string(static_cast<size_t>(offset + experts * slice), '\1'));
  const auto device = make_cpu_device(2);
  const auto file = MappedFile::open(path);
  std::ofstream("/proc/self/clear_refs") << "5";
  const size_t before = status_bytes("VmRSS");
  std::vector<std::unique_ptr<DeviceWeight>> packed;
  size_t bytes = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const WeightView view{Format::Q4_K, rows, cols, file->data() + offset + e * slice, file, file.get()};
    packed.push_back(device->pack(view, false));
    bytes += packed.back()->bytes;
  }
  CHECK(bytes >= static_cast<size_t>(experts * slice));
  CHECK(status_bytes("VmHWM") - before < bytes + bytes / 10);
}

namespace {

/// A checkpoint of `count` matrices "<i>" of `size` x `size` in four bits.
struct QuantisedMatrices {
  static constexpr int kCount = 48;
  static constexpr int64_t kSize = 2048;
  TempDir dir;

  QuantisedMatrices(const Json& config, const std::vector<std::pair<std::string, Json>>& parts) {
    Json header;
    size_t end = 0;
    for (const auto& [name, part] : parts) {  // safetensors lays tensors out by their types
      for (int i = 0; i < kCount; ++i) {
        Json& tensor = header[std::to_string(i) + "." + name] = part;
        const size_t begin = end;
        end += tensor["bytes"].get<size_t>();
        tensor.erase("bytes");
        tensor["data_offsets"] = {begin, end};
      }
    }
    dir.write("config.json", Json{{"quantization_config", config}}.dump());
    // Ones are small scales of any float type.
    dir.write("model.safetensors", safetensors_file(header.dump(), std::string(end, '\1')));
  }
};

Json part(const char* dtype, const std::vector<int64_t>& shape, int64_t value_bytes) {
  int64_t bytes = value_bytes;
  for (const int64_t n : shape) bytes *= n;
  return {{"dtype", dtype}, {"shape", shape}, {"bytes", bytes}};
}

}  // namespace

TEST_CASE("all parts of quantised weights leave memory when they have been packed") {
  constexpr int64_t kSize = QuantisedMatrices::kSize;
  const Json fp4 = {{"num_bits", 4}, {"type", "float"}, {"strategy", "tensor_group"}, {"group_size", 16}};
  const Json scheme = {{"weights", fp4}, {"targets", {"Linear"}}};
  const QuantisedMatrices nvfp4({{"quant_method", "compressed-tensors"},
                                 {"format", "nvfp4-pack-quantized"},
                                 {"config_groups", {{"group_0", scheme}}}},
                                {{"weight_packed", part("U8", {kSize, kSize / 2}, 1)},
                                 {"weight_scale", part("F8_E4M3", {kSize, kSize / 16}, 1)},
                                 {"weight_global_scale", part("F32", {1}, 4)}});
  const QuantisedMatrices gptq(
      {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 32}, {"desc_act", false}, {"sym", false}},
      {{"qweight", part("I32", {kSize / 8, kSize}, 4)},
       {"qzeros", part("I32", {kSize / 32, kSize / 8}, 4)},
       {"scales", part("F16", {kSize / 32, kSize}, 2)}});
  for (const QuantisedMatrices* each : {&nvfp4, &gptq}) {
    CAPTURE(each == &gptq);
    const auto device = make_cpu_device(2);
    std::ofstream("/proc/self/clear_refs") << "5";
    const size_t before = status_bytes("VmRSS");
    const auto checkpoint = Checkpoint::open(each->dir.path);
    const ModelSpec spec;
    Binder binder(*checkpoint, *device, spec, false);
    std::vector<std::unique_ptr<DeviceWeight>> packed;
    for (int i = 0; i < QuantisedMatrices::kCount; ++i)
      packed.push_back(binder.matrix(std::to_string(i), kSize, kSize, false));
    const size_t bytes = binder.weight_bytes();
    CHECK(bytes >= QuantisedMatrices::kCount * kSize * kSize / 2);
#if defined(__SANITIZE_ADDRESS__)
    continue;  // its allocator keeps what was freed, here the rows on their way to the device
#endif
    CHECK(status_bytes("VmHWM") - before < bytes + bytes / 10);
    CHECK(status_bytes("VmRSS") - before < bytes + bytes / 20);
  }
}

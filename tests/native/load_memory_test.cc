// How much memory a process needs while it packs the weights of a file.
#include <fstream>
#include <string>

#include "base/mapped_file.h"
#include "device_rig.h"
#include "file_writers.h"

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

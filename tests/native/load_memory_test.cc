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

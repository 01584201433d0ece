// Products of a device chosen by name, of growing numbers of rows: time, and what it means in weights read
// and in operations. Cases run in turn and medians are printed. Use: device_matmul_bench [device] [format]
// [repetitions] [outputs] [columns]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "device/device.h"

using namespace vllm;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Case {
  const FormatInfo* format;
  const DeviceWeight* weight;
  int64_t rows;
  std::vector<double> times;
};

void run(int argc, char** argv) {
  const std::unique_ptr<Device> device = make_device(argc > 1 ? argv[1] : "vulkan", 0);
  const char* const only = argc > 2 ? argv[2] : "all";
  const int repetitions = argc > 3 ? std::atoi(argv[3]) : 5;
  const int64_t outputs = argc > 4 ? std::atoi(argv[4]) : 1024, cols = argc > 5 ? std::atoi(argv[5]) : 1024;
  constexpr int64_t kMostRows = 512;
  const std::unique_ptr<Buffer> x = device->allocate(static_cast<size_t>(kMostRows * cols) * 4),
                                y = device->allocate(static_cast<size_t>(kMostRows * outputs) * 4);
  std::vector<std::unique_ptr<DeviceWeight>> weights;
  std::vector<Case> cases;
  for (const FormatInfo& format : all_formats()) {
    if ((std::strcmp(only, "all") && std::strcmp(only, format.name)) || cols % format.block_size) continue;
    const auto file =
        std::make_shared<std::vector<uint8_t>>(row_bytes(format.format, cols) * outputs, uint8_t{0x11});
    weights.push_back(device->pack({format.format, outputs, cols, file->data(), file}, false));
    for (const int64_t rows : {1, 2, 4, 8, 12, 16, 17, 32, 64, 256, 512})
      cases.push_back({&format, weights.back().get(), rows, {}});
  }
  std::vector<float> result(1);
  for (int i = 0; i <= repetitions; ++i) {
    for (Case& c : cases) {
      const Tensor in{x.get(), 0, c.rows, cols, cols}, out{y.get(), 0, c.rows, outputs, outputs};
      const double start = now();
      device->matmul({&c.weight, 1}, in, nullptr, false, out);
      device->read({y.get(), 0, 1, 1, 1}, result.data());
      if (i > 0) c.times.push_back(now() - start);  // the first one compiles
    }
  }
  std::printf("%s, %lld outputs of %lld columns\n", device->description().c_str(),
              static_cast<long long>(outputs), static_cast<long long>(cols));
  for (Case& c : cases) {
    std::sort(c.times.begin(), c.times.end());
    const double time = c.times[c.times.size() / 2];
    std::printf("%-10s %4lld rows %9.1f us %8.1f GB/s of weights %9.1f Gop/s\n", c.format->name,
                static_cast<long long>(c.rows), time * 1e6, static_cast<double>(c.weight->bytes) / time / 1e9,
                2.0 * static_cast<double>(c.rows * outputs * cols) / time / 1e9);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc, argv);
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.message().c_str());
    return 1;
  }
}

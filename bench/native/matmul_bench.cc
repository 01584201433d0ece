// Speed of the CPU device's products beside the read rate and the int8 and bf16 peaks of the same seconds.
// Cases run in turn and medians are printed, for the machine's memory rate drifts. The last figure is the
// time for a byte of the file, as a multiple of Q8_0's, where that is measured too. Use: matmul_bench
// [threads] [isa] [format,...] [repetitions] [tokens,...]
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "device/cpu/matmul.h"
#include "machine_limits.h"

using namespace vllm;
using namespace vllm::cpu;

namespace {

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

/// Whether a list, its items parted by commas, has the item.
bool lists(const std::string& list, const std::string& item) {
  return ("," + list + ",").find("," + item + ",") != std::string::npos;
}

struct Case {
  std::string name, compared;  // what it shares with the cases it is compared with
  std::function<void()> run;
  double operations, bytes, file_bytes, peak_share;
  std::vector<double> times, against_read, against_peak;
};

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const Isa isa = choose_isa(argc > 2 ? argv[2] : "");
  const std::string formats = argc > 3 ? argv[3] : "all";
  const int repetitions = argc > 4 ? std::atoi(argv[4]) : 7;
  const std::string token_counts = argc > 5 ? argv[5] : "1,2,4,8,16,64,512";
  ThreadPool pool(threads);
  MatmulScratch scratch;
  constexpr size_t kMemory = size_t{160} << 20;
  auto* words = static_cast<uint64_t*>(std::aligned_alloc(size_t{2} << 20, kMemory));
  madvise(words, kMemory, MADV_HUGEPAGE);
  std::memset(words, 1, kMemory);
  const std::span<const uint64_t> memory(words, kMemory / 8);
  std::vector<Case> cases;
  std::vector<std::shared_ptr<DeviceWeight>> keep;
  std::vector<float> x(512 * 3072, 0);
  // Aligned as the engine's is: a product writes whole cache lines.
  auto* const out = static_cast<float*>(std::aligned_alloc(64, 512 * 3072 * sizeof(float)));
  std::memset(out, 0, 512 * 3072 * sizeof(float));
  for (size_t i = 0; i < x.size(); i++) x[i] = static_cast<float>(i * 2654435761u % 1000) / 500 - 1;

  for (const FormatInfo& info : all_formats()) {
    if (formats != "all" && !lists(formats, info.name)) continue;
    for (const auto& [rows, cols] :
         {std::pair<int64_t, int64_t>{3072, 1024}, {1024, 3072}, {1536, 576}, {576, 1536}}) {
      if (cols % info.block_size) continue;
      const size_t file_bytes = static_cast<size_t>(row_bytes(info.format, cols) * rows);
      auto file = std::make_shared<std::vector<uint8_t>>(file_bytes, uint8_t{0x11});
      const size_t copies = std::max<size_t>(1, (size_t{96} << 20) / file_bytes);
      std::vector<std::shared_ptr<DeviceWeight>> weights;
      const double start = now();
      for (size_t i = 0; i < copies; i++) {
        weights.push_back(pack_weight(pool, {info.format, rows, cols, file->data(), nullptr}, isa, false));
      }
      const double packing = now() - start;
      std::printf("%s %lld x %lld: packed %.0f MB at %.1f GB/s\n", info.name, static_cast<long long>(rows),
                  static_cast<long long>(cols), 1e-6 * file_bytes * copies,
                  file_bytes * copies / packing / 1e9);
      keep.insert(keep.end(), weights.begin(), weights.end());
      for (int64_t tokens : {1, 2, 4, 8, 16, 64, 512}) {
        if (!lists(token_counts, std::to_string(tokens))) continue;
        const size_t used = tokens >= 64 ? 1 : copies;
        char name[100], compared[100];
        std::snprintf(compared, sizeof compared, "%lld %lld %lld", static_cast<long long>(tokens),
                      static_cast<long long>(rows), static_cast<long long>(cols));
        std::snprintf(name, sizeof name, "%-7s M=%-3lld N=%-4lld K=%-4lld", info.name,
                      static_cast<long long>(tokens), static_cast<long long>(rows),
                      static_cast<long long>(cols));
        cases.push_back({name,
                         compared,
                         [&, weights, used, tokens, rows = rows, cols = cols] {
                           for (size_t i = 0; i < used; i++) {
                             const DeviceWeight* w[] = {weights[i].get()};
                             matmul(pool, isa, w, x.data(), cols, tokens, nullptr, false, out, rows, scratch);
                           }
                         },
                         2.0 * tokens * rows * cols * used,
                         static_cast<double>(weights[0]->bytes) * used,
                         static_cast<double>(file_bytes) * used,
                         info.format == Format::BF16  ? 0.5
                         : info.format < Format::Q4_0 ? 0.25
                                                      : 1.0,
                         {},
                         {},
                         {}});
      }
    }
  }
  std::vector<double> reads, peaks;
  for (int i = 0; i < repetitions; i++) {
    for (Case& c : cases) {
      const double read = read_rate(pool, memory), peak = int8_peak(pool);
      reads.push_back(read);
      peaks.push_back(peak);
      const double start = now();
      c.run();
      const double time = now() - start;
      c.times.push_back(time);
      c.against_read.push_back(c.bytes / time / 1e9 / read);
      if (peak > 0) c.against_peak.push_back(c.operations / time / 1e9 / (peak * c.peak_share));
    }
  }
  std::printf("%s, %d threads: read %.1f GB/s, int8 peak %.0f Gop/s\n", isa_name(isa), threads, median(reads),
              median(peaks));
  for (Case& c : cases) {
    const double time = median(c.times);
    std::printf("%s %9.1f us %7.1f Gop/s %6.1f GB/s  %5.1f %% of read  %5.1f %% of peak", c.name.c_str(),
                time * 1e6, c.operations / time / 1e9, c.bytes / time / 1e9, 100 * median(c.against_read),
                c.against_peak.empty() ? 0.0 : 100 * median(c.against_peak));
    for (const Case& q8 : cases) {
      if (q8.compared != c.compared || !q8.name.starts_with("Q8_0 ")) continue;
      std::printf("  %5.2f of Q8_0", time / c.file_bytes / (median(q8.times) / q8.file_bytes));
    }
    std::printf("\n");
  }
}

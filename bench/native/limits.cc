// Prints the machine's limits with N threads as JSON: medians of alternating rounds. Use: limits N
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "machine_limits.h"

using namespace vllm::cpu;

int main(int argc, char** argv) {
  ThreadPool pool(argc > 1 ? std::atoi(argv[1]) : 2);
  constexpr size_t kMemory = size_t{256} << 20;
  auto* words = static_cast<uint64_t*>(std::aligned_alloc(size_t{2} << 20, kMemory));
  madvise(words, kMemory, MADV_HUGEPAGE);
  std::memset(words, 1, kMemory);
  std::vector<double> read, int8, bf16;
  for (int i = 0; i < 15; i++) {
    read.push_back(read_rate(pool, {words, kMemory / 8}));
    int8.push_back(int8_peak(pool));
    bf16.push_back(bf16_peak(pool));
  }
  for (auto* v : {&read, &int8, &bf16}) std::sort(v->begin(), v->end());
  std::printf("{\"read\": %.2f, \"int8\": %.1f, \"bf16\": %.1f}\n", read[7], int8[7], bf16[7]);
}

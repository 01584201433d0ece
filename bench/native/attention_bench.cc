// Speed of the CPU device's attention beside the read rate and the bf16 peak of the same seconds. Decode
// reads keys and values from memory, prefill computes. Cases run in turn and medians are printed, for the
// machine's memory rate drifts. Use: attention_bench [threads] [isa] [bf16|f32|q8_0] [repetitions] [part of a
// case's name]
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/device.h"
#include "device/host_memory.h"
#include "machine_limits.h"

using namespace vllm;
using namespace vllm::cpu;

namespace {

struct Shape {
  int heads, kv_heads, head_dim;
};
constexpr Shape kShapes[] = {{9, 3, 64}, {16, 8, 128}, {4, 1, 256}, {32, 8, 128}};
constexpr int kBlock = 32;
constexpr int kChunk = 512;  // rows of a prefill step

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

/// `rows` rows at the end of each of `sequences` sequences of `context` tokens.
StepBatch make_batch(int sequences, int context, int rows, bool shuffled) {
  StepBatch batch;
  batch.seq_start = {0};
  batch.max_blocks = (context + kBlock - 1) / kBlock;
  for (int s = 0; s < sequences; ++s) {
    for (int t = context - rows; t < context; ++t) {
      batch.token_ids.push_back(0);
      batch.positions.push_back(t);
    }
    batch.seq_start.push_back(batch.rows());
    batch.state_slots.push_back(-1);
  }
  for (int b = 0; b < sequences * batch.max_blocks; ++b) batch.block_table.push_back(b);
  if (shuffled) {
    uint32_t random = 1;
    for (size_t i = batch.block_table.size() - 1; i > 0; --i)
      std::swap(batch.block_table[i],
                batch.block_table[(random = random * 1664525 + 1013904223) / 7 % (i + 1)]);
  }
  return batch;
}

struct Case {
  std::string name;
  AttentionSpec spec;
  StepBatch batch;
  std::shared_ptr<KvCache> cache;
  int layers;
  double operations, bytes;
  std::vector<double> times, write_times, against_read, against_peak;
};

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const std::unique_ptr<Device> device = make_cpu_device(threads, argc > 2 ? argv[2] : "");
  const std::string kind = argc > 3 ? argv[3] : "bf16";
  const KvFormat format = kind == "f32" ? KvFormat::F32 : kind == "q8_0" ? KvFormat::Q8_0 : KvFormat::BF16;
  const int repetitions = argc > 4 ? std::atoi(argv[4]) : 7;
  const std::string only = argc > 5 ? argv[5] : "";
  ThreadPool pool(threads);
  constexpr size_t kMemory = size_t{160} << 20;
  auto* words = static_cast<uint64_t*>(std::aligned_alloc(size_t{2} << 20, kMemory));
  madvise(words, kMemory, MADV_HUGEPAGE);
  std::memset(words, 1, kMemory);
  const std::span<const uint64_t> memory(words, kMemory / 8);

  constexpr int64_t kFloats = int64_t{8000} * 8 * 128;
  HostBuffer numbers(kFloats * sizeof(float)), results(int64_t{kChunk} * 32 * 128 * sizeof(float));
  auto* x = reinterpret_cast<float*>(numbers.host());
  for (int64_t i = 0; i < kFloats; ++i) x[i] = static_cast<float>(i * 2654435761u % 1000) / 500 - 1;
  const auto rows_of = [](HostBuffer& buffer, int64_t rows, int64_t cols) {
    return Tensor{&buffer, 0, rows, cols, cols};
  };

  std::vector<Case> cases;
  const auto add = [&](const Shape& shape, int sequences, int context, int rows, bool shuffled) {
    char name[100];
    std::snprintf(name, sizeof name, "%s %2d of %-2d x %-3d %d x %-4d %s", rows == 1 ? "decode " : "prefill",
                  shape.heads, shape.kv_heads, shape.head_dim, sequences, context,
                  shuffled ? "shuffled" : "ordered");
    if (std::string(name).find(only) == std::string::npos) return;
    Case c;
    c.name = name;
    c.spec.heads = shape.heads;
    c.spec.kv_heads = shape.kv_heads;
    c.spec.head_dim = shape.head_dim;
    c.spec.scale = 1 / std::sqrt(static_cast<float>(shape.head_dim));
    c.batch = make_batch(sequences, context, rows, shuffled);
    KvCacheSpec kv;
    kv.layers = {{shape.kv_heads, shape.head_dim}};
    kv.block_size = kBlock;
    kv.num_blocks = sequences * c.batch.max_blocks;
    kv.format = format;
    c.bytes = static_cast<double>(kv.block_bytes()) / kBlock * sequences * context;
    c.layers = rows == 1 ? static_cast<int>(kMemory / c.bytes) + 1 : 1;
    c.bytes *= c.layers;
    kv.layers.resize(c.layers, kv.layers[0]);
    c.cache = device->make_kv_cache(kv);
    const StepBatch filled = make_batch(sequences, context, context, shuffled);
    const Tensor values = rows_of(numbers, filled.rows(), shape.kv_heads * shape.head_dim);
    device->begin_step(filled);
    for (int l = 0; l < c.layers; ++l) device->write_kv(*c.cache, l, values, values);
    device->end_step();
    c.operations = 0;
    for (int p : c.batch.positions) c.operations += 4.0 * shape.head_dim * shape.heads * (p + 1) * c.layers;
    cases.push_back(std::move(c));
  };
  for (const Shape& shape : kShapes) {
    add(shape, 1, 8000, 1, false);
    add(shape, 1, 8000, 1, true);
    add(shape, 1, 1000, 1, false);
    add(shape, 8, 1000, 1, false);
    for (int context : {kChunk, 2048, 8000}) add(shape, 1, context, kChunk, false);
  }

  std::vector<double> reads, peaks;
  for (int i = 0; i < repetitions; ++i) {
    for (Case& c : cases) {
      const double read = read_rate(pool, memory), peak = bf16_peak(pool);
      reads.push_back(read);
      peaks.push_back(peak);
      const int rows = c.batch.rows();
      const Tensor q = rows_of(numbers, rows, c.spec.heads * c.spec.head_dim),
                   out = rows_of(results, rows, c.spec.heads * c.spec.head_dim),
                   kv = rows_of(numbers, rows, c.spec.kv_heads * c.spec.head_dim);
      device->begin_step(c.batch);
      const double before = now();
      device->write_kv(*c.cache, 0, kv, kv);
      const double start = now();
      for (int l = 0; l < c.layers; ++l) device->attention(*c.cache, l, q, c.spec, out);
      const double time = now() - start;
      device->end_step();
      c.times.push_back(time);
      c.write_times.push_back((start - before) / (2.0 * rows * c.spec.kv_heads * c.spec.head_dim));
      c.against_read.push_back(c.bytes / time / 1e9 / read);
      if (peak > 0) c.against_peak.push_back(c.operations / time / 1e9 / peak);
    }
  }
  std::printf("%s, %s cache: read %.1f GB/s, bf16 peak %.0f GF\n", device->description().c_str(),
              kind.c_str(), median(reads), median(peaks));
  for (Case& c : cases) {
    const double time = median(c.times);
    std::printf("%s %8.1f us a layer ", c.name.c_str(), time / c.layers * 1e6);
    if (c.batch.rows() < kChunk) {
      std::printf("%5.1f GB/s %5.1f %% of read\n", c.bytes / time / 1e9, 100 * median(c.against_read));
    } else {
      std::printf("%6.1f GF %5.1f %% of peak, writes %.2f ns a value\n", c.operations / time / 1e9,
                  c.against_peak.empty() ? 0.0 : 100 * median(c.against_peak), 1e9 * median(c.write_times));
    }
  }
}

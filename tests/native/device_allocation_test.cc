// A running engine takes no memory from the heap in a step of the CPU device.
#include <atomic>
#include <cstdlib>
#include <new>
#include <utility>

#include "device_rig.h"

using namespace vllm;
using namespace vllm::test;

namespace {

std::atomic<size_t> allocations{0};

}  // namespace

[[gnu::noinline]] void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

TEST_CASE("a step allocates nothing once an equal one has run") {
  const int rows = 600, heads = 9, kv_heads = 3, head_dim = 64, hidden = 576;
  KvCacheSpec spec;
  spec.layers = {{kv_heads, head_dim}};
  spec.num_blocks = 40;
  RopeSpec rope;
  for (int i = 0; i < head_dim / 2; ++i) rope.inv_freq.push_back(1.0f / static_cast<float>(1 + i));
  const Weights w(Format::Q8_0, heads * head_dim, hidden, 3);
  StepBatch prefill = rows_from(0, rows, 20), decode = rows_from(rows, 1, 20);
  for (StepBatch* batch : {&prefill, &decode}) {
    for (int32_t& id : batch->token_ids) id %= heads * head_dim;
    batch->logit_rows = {batch->rows() - 1};
    batch->state_slots = {0};
  }
  for (const auto& [isa, threads] : {std::pair{"baseline", 2}, {"", 1}, {"", 3}}) {
    const auto owner = make_cpu_device(threads, isa);
    Device& device = *owner;
    INFO(device.description());
    Rig rig(device);
    const auto cache = device.make_kv_cache(spec);
    const auto packed = device.pack(w.view, false);
    const DeviceWeight* list[] = {packed.get()};
    const Tensor x = rig.tensor(rows, hidden, Random(1).gauss(rows * hidden)),
                 norm = rig.tensor(1, hidden, Random(2).gauss(hidden)), q = rig.tensor(rows, hidden, {}),
                 out = rig.tensor(rows, hidden, {});
    // Four experts of 64, of which a row takes two.
    const Weights up(Format::Q8_0, 64, hidden, 4), down(Format::Q8_0, hidden, 64, 5);
    const auto packed_up = device.pack(up.view, false), packed_down = device.pack(down.view, false);
    const std::vector<ExpertWeights> experts(4, {packed_up.get(), packed_up.get(), packed_down.get()});
    DeltaNetSpec delta;
    delta.key_heads = delta.value_heads = 3;
    delta.key_dim = delta.value_dim = 64;
    delta.conv_kernel = 4;
    const auto states = device.make_state_cache(StateCacheSpec{{delta}, 1});
    const Tensor taps = rig.tensor(4, hidden, Random(6).gauss(4 * hidden)), zeros = rig.tensor(1, 3, {});
    const auto step = [&](const StepBatch& batch) {
      const int n = batch.rows();
      device.begin_step(batch);
      device.embed(*packed, 1.0f, x.head(n));
      device.rms_norm(x.head(n), norm, 1e-5f, false, out.head(n));
      device.matmul(list, out.head(n), nullptr, false, q.head(n));
      device.norm_rope(q.head(n), heads, nullptr, 0, rope);
      device.write_kv(*cache, 0, q.head(n).columns(0, 192), q.head(n).columns(192, 192));
      device.attention(*cache, 0, q.head(n), AttentionSpec{heads, kv_heads, head_dim, 0.1f}, out.head(n));
      device.gated(Activation::Silu, out.head(n), q.head(n), out.head(n));
      device.experts(RouterSpec{2}, experts, Activation::Silu, out.head(n), q.head(n).columns(0, 4), true,
                     out.head(n));
      device.add_gated_rows(q.head(n), q.head(n).columns(0, 1), out.head(n));
      device.causal_conv(*states, 0, taps, q.head(n));
      device.delta_rule(*states, 0, q.head(n), x.head(n).columns(0, 3), x.head(n).columns(3, 3), zeros, zeros,
                        out.head(n).columns(0, 192));
      device.gather_logit_rows(out.head(n), q.head(1));
      device.softcap(30.0f, q.head(1));
      device.end_step();
    };
    for (const StepBatch* batch : {&prefill, &decode, &prefill, &decode}) step(*batch);
    const size_t before = allocations;
    for (const StepBatch* batch : {&prefill, &decode}) step(*batch);
    CHECK(allocations == before);
  }
}

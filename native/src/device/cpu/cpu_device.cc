// The CPU device: operations cut into rows or columns for the threads, computed by the kernels of the
// instruction set.
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "device/checks.h"
#include "device/cpu/attention_driver.h"
#include "device/cpu/delta_net_driver.h"
#include "device/cpu/elementwise.h"
#include "device/cpu/experts.h"
#include "device/cpu/isa.h"
#include "device/cpu/kv_cache.h"
#include "device/cpu/machine.h"
#include "device/cpu/matmul.h"
#include "device/cpu/pool.h"
#include "device/cpu/rope_tables.h"
#include "device/host_memory.h"

namespace vllm::cpu {
namespace {

constexpr int64_t kInlineElements = 16384;  // less work than this is not worth sharing: about 2 us

const ElementwiseKernels& elementwise_kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::Avx512) return elementwise_avx512();
  if (isa >= Isa::Avx2) return elementwise_avx2();
#endif
  (void)isa;
  return elementwise_baseline();
}

const DeltaNetKernels& delta_net_kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::Avx512) return delta_net_avx512();
  if (isa >= Isa::Avx2) return delta_net_avx2();
#endif
  (void)isa;
  return delta_net_baseline();
}

const AttentionKernels& attention_kernels(Isa isa, KvFormat format) {
  const KvElement element = element_of(format);
#if defined(__x86_64__)
  if (isa == Isa::Amx && format == KvFormat::BF16) return attention_amx();
  if (isa == Isa::Avx512Bf16 && format == KvFormat::BF16) return attention_avx512bf16();
  if (isa >= Isa::Avx512) return attention_avx512(element);
  if (isa >= Isa::Avx2) return attention_avx2(element);
#elif defined(__aarch64__)
  if (isa == Isa::NeonBf16 && format == KvFormat::BF16) return attention_neonbf16();
#endif
  (void)isa;
  return attention_baseline(element);
}

class CpuDevice final : public Device {
 public:
  CpuDevice(int threads, Isa isa)
      : isa_(isa),
        elementwise_(elementwise_kernels(isa)),
        delta_net_(delta_net_kernels(isa)),
        pool_(threads),
        attention_(pool_),
        experts_(pool_, isa) {}

  std::string description() const override {
    return format("cpu (%s, %d thread%s)", isa_name(isa_), pool_.threads(), pool_.threads() == 1 ? "" : "s");
  }
  bool is_cpu() const override { return true; }
  size_t available_memory() const override { return cpu::available_memory(); }
  std::unique_ptr<Buffer> allocate(size_t bytes) override { return std::make_unique<HostBuffer>(bytes); }

  void write(const Tensor& dst, const float* src) override {
    checks::tensor("write", "dst", dst, dst.rows, dst.cols);
    for (int64_t t = 0; t < dst.rows; ++t)
      std::memcpy(row(dst, t), src + t * dst.cols, dst.cols * sizeof(float));
  }
  void read(const Tensor& src, float* dst) override {
    checks::tensor("read", "src", src, src.rows, src.cols);
    for (int64_t t = 0; t < src.rows; ++t)
      std::memcpy(dst + t * src.cols, row(src, t), src.cols * sizeof(float));
  }
  void read_largest(const Tensor& src, int count, RankedValue* dst) override {
    checks::read_largest(src, count);
    for_rows(src.rows, src.cols, [&](int64_t t) {
      // Kept in order; few values are among the first so far.
      RankedValue *const first = dst + t * count, *end = first;
      for (int64_t c = 0; c < src.cols; ++c) {
        const RankedValue value{static_cast<int32_t>(c), row(src, t)[c]};
        if (end == first + count) {
          if (!value.before(end[-1])) continue;
          --end;
        }
        RankedValue* place = end++;
        for (; place > first && value.before(place[-1]); --place) *place = place[-1];
        *place = value;
      }
    });
  }

  std::unique_ptr<DeviceWeight> pack(const WeightView& weight, bool lookup_only) override {
    checks::weight(weight);
    return pack_weight(pool_, weight, isa_, lookup_only);
  }
  size_t packed_bytes(const WeightView& weight, bool lookup_only) const override {
    return cpu::packed_bytes(weight, lookup_only);
  }
  std::unique_ptr<KvCache> make_kv_cache(const KvCacheSpec& spec) override {
    checks::kv_cache(spec);
    return std::make_unique<CpuKvCache>(spec);
  }
  void copy_kv(KvCache& cache, int from, int to, int tokens) override {
    checks::copy_kv(cache, from, to, tokens);
    static_cast<CpuKvCache&>(cache).copy(from, to, tokens);
  }
  std::unique_ptr<StateCache> make_state_cache(const StateCacheSpec& spec) override {
    checks::state_cache(spec);
    return std::make_unique<CpuStateCache>(spec);
  }
  void copy_state(StateCache& cache, int from, int to) override {
    checks::copy_state(cache, from, to);
    const auto& own = static_cast<const CpuStateCache&>(cache);
    std::memmove(own.slot(to), own.slot(from), own.slot_bytes());
  }

  void begin_step(const StepBatch& batch) override {
    checks::batch(batch);
    batch_ = &batch;
    rope_tables_.begin_step();
  }
  void end_step() override { batch_ = nullptr; }

  void embed(const DeviceWeight& table, float scale, const Tensor& out) override {
    checks::embed(*batch_, table, out);
    for_rows(out.rows, out.cols,
             [&](int64_t t) { embed_row(table, batch_->token_ids[t], scale, row(out, t)); });
  }

  void rms_norm(const Tensor& x, const Tensor& weight, float eps, bool accumulate,
                const Tensor& out) override {
    checks::rms_norm(x, weight, out);
    for_rows(x.rows, x.cols, [&](int64_t t) {
      elementwise_.rms_norm(row(x, t), row(weight, 0), x.cols, eps, accumulate, row(out, t));
    });
  }

  void matmul(std::span<const DeviceWeight* const> weights, const Tensor& x, const Tensor* bias,
              bool accumulate, const Tensor& out) override {
    checks::matmul(weights, x, bias, out);
    cpu::matmul(pool_, isa_, weights, row(x, 0), x.stride, x.rows, bias ? row(*bias, 0) : nullptr, accumulate,
                row(out, 0), out.stride, matmul_scratch_);
  }

  void norm_rope(const Tensor& x, int heads, const Tensor* norm, float eps, const RopeSpec& rope) override {
    checks::norm_rope(*batch_, x, heads, norm, rope);
    const RopeTables::Table& table = rope_tables_.get(pool_, rope, *batch_);
    for_rows(x.rows, x.cols, [&](int64_t t) {
      Rotation rotation = table.row(t);
      rotation.interleaved = rope.interleaved;
      elementwise_.norm_rope(row(x, t), heads, x.cols / heads, norm ? row(*norm, 0) : nullptr, eps, rotation);
    });
  }

  void write_kv(KvCache& cache, int layer, const Tensor& k, const Tensor& v) override {
    checks::write_kv(*batch_, cache, layer, k, v);
    static_cast<CpuKvCache&>(cache).write(pool_, attention_kernels(isa_, cache.spec.format), *batch_, layer,
                                          row(k, 0), k.stride, row(v, 0), v.stride);
  }

  void attention(const KvCache& cache, int layer, const Tensor& q, const AttentionSpec& spec,
                 const Tensor& out) override {
    checks::attention(*batch_, cache, layer, q, spec, out);
    attention_.run(attention_kernels(isa_, cache.spec.format), *batch_,
                   static_cast<const CpuKvCache&>(cache).layer(layer), spec, row(q, 0), q.stride, row(out, 0),
                   out.stride);
  }

  void causal_conv(StateCache& cache, int layer, const Tensor& weight, const Tensor& x) override {
    checks::causal_conv(*batch_, cache, layer, weight, x);
    cpu::causal_conv(pool_, delta_net_, *batch_, static_cast<CpuStateCache&>(cache), layer, weight, x);
  }

  void delta_rule(StateCache& cache, int layer, const Tensor& qkv, const Tensor& a, const Tensor& b,
                  const Tensor& decay, const Tensor& dt_bias, const Tensor& out) override {
    checks::delta_rule(*batch_, cache, layer, qkv, a, b, decay, dt_bias, out);
    cpu::delta_rule(pool_, delta_net_, *batch_, static_cast<CpuStateCache&>(cache), layer, qkv, a, b, decay,
                    dt_bias, out);
  }

  void gated(Activation act, const Tensor& gate, const Tensor& up, const Tensor& out) override {
    checks::gated(gate, up, out);
    const auto kernel = gated_kernel(act);
    for_elements(gate.rows, gate.cols, [&](int64_t t, Range c) {
      kernel(row(gate, t) + c.begin, row(up, t) + c.begin, c.end - c.begin, row(out, t) + c.begin);
    });
  }

  void experts(const RouterSpec& router, std::span<const ExpertWeights> experts, Activation act,
               const Tensor& x, const Tensor& logits, bool accumulate, const Tensor& out) override {
    checks::experts(router, experts, x, logits, out);
    experts_.run(router, experts, gated_kernel(act), row(x, 0), x.stride, x.rows, row(logits, 0),
                 logits.stride, accumulate, row(out, 0), out.stride);
  }

  void add_gated_rows(const Tensor& x, const Tensor& gate, const Tensor& out) override {
    checks::add_gated_rows(x, gate, out);
    for_rows(x.rows, x.cols, [&](int64_t t) {
      const float factor = 1.0f / (1.0f + std::exp(-row(gate, t)[0]));
      const float* const from = row(x, t);
      float* const to = row(out, t);
      for (int64_t c = 0; c < x.cols; ++c) to[c] += factor * from[c];
    });
  }

  void gather_logit_rows(const Tensor& x, const Tensor& out) override {
    checks::gather_logit_rows(*batch_, x, out);
    for (int64_t i = 0; i < out.rows; ++i)
      std::memcpy(row(out, i), row(x, batch_->logit_rows[i]), x.cols * sizeof(float));
  }

  void softcap(float cap, const Tensor& x) override {
    checks::tensor("softcap", "x", x, x.rows, x.cols);
    for_elements(x.rows, x.cols, [&](int64_t t, Range c) {
      elementwise_.softcap(cap, row(x, t) + c.begin, c.end - c.begin);
    });
  }

 private:
  ExpertDriver::Gated gated_kernel(Activation act) const {
    return act == Activation::Silu       ? elementwise_.silu_gated
           : act == Activation::GeluTanh ? elementwise_.gelu_gated
                                         : elementwise_.sigmoid_gated;
  }
  static float* row(const Tensor& tensor, int64_t t) { return host_data(tensor) + t * tensor.stride; }

  /// body(row) for all rows, shared out among the threads when it pays.
  template <class Body>
  void for_rows(int64_t rows, int64_t cols, Body body) {
    if (rows == 1 || rows * cols < kInlineElements || pool_.threads() == 1) {
      for (int64_t t = 0; t < rows; ++t) body(t);
      return;
    }
    pool_.run([&](int thread) {
      const Range part = share(rows, thread, pool_.threads());
      for (int64_t t = part.begin; t < part.end; ++t) body(t);
    });
  }

  /// body(row, columns) for all elements; a single row is cut into columns.
  template <class Body>
  void for_elements(int64_t rows, int64_t cols, Body body) {
    if (rows > 1 || cols < kInlineElements || pool_.threads() == 1)
      return for_rows(rows, cols, [&](int64_t t) { body(t, Range{0, cols}); });
    pool_.run([&](int thread) { body(0, share(cols, thread, pool_.threads(), 64)); });
  }

  const Isa isa_;
  const ElementwiseKernels& elementwise_;
  const DeltaNetKernels& delta_net_;
  ThreadPool pool_;
  AttentionDriver attention_;
  ExpertDriver experts_;
  RopeTables rope_tables_;
  MatmulScratch matmul_scratch_;
  const StepBatch* batch_ = nullptr;
};

}  // namespace
}  // namespace vllm::cpu

namespace vllm {

std::unique_ptr<Device> make_cpu_device(int threads, std::string_view isa) {
  return std::make_unique<cpu::CpuDevice>(threads > 0 ? threads : cpu::physical_cores(),
                                          cpu::choose_isa(isa));
}

}  // namespace vllm

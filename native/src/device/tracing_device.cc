#include "device/tracing_device.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>

#include "base/error.h"

namespace vllm {
namespace {

using Clock = std::chrono::steady_clock;

struct Total {
  int64_t calls = 0;
  double seconds = 0, bytes = 0, operations = 0;

  void add(Clock::time_point begin, Clock::time_point end) {
    ++calls;
    seconds += std::chrono::duration<double>(end - begin).count();
  }
};

/// Steps that use the same kernels, by their rows.
constexpr int kLastRows[] = {1, 8, 32, 1 << 30};

class Tracing : public TracingDevice {
 public:
  explicit Tracing(std::unique_ptr<Device> device) : device_(std::move(device)) {}

  std::string description() const override { return device_->description(); }
  bool is_cpu() const override { return device_->is_cpu(); }
  size_t available_memory() const override { return device_->available_memory(); }
  size_t largest_buffer() const override { return device_->largest_buffer(); }
  std::unique_ptr<Buffer> allocate(size_t bytes) override { return device_->allocate(bytes); }
  void write(const Tensor& dst, const float* src) override { device_->write(dst, src); }
  void read(const Tensor& src, float* dst) override { device_->read(src, dst); }
  void read_largest(const Tensor& src, int count, RankedValue* dst) override {
    device_->read_largest(src, count, dst);
  }
  std::unique_ptr<DeviceWeight> pack(const WeightView& weight, bool lookup_only) override {
    return device_->pack(weight, lookup_only);
  }
  size_t packed_bytes(const WeightView& weight, bool lookup_only) const override {
    return device_->packed_bytes(weight, lookup_only);
  }
  std::unique_ptr<KvCache> make_kv_cache(const KvCacheSpec& spec) override {
    return device_->make_kv_cache(spec);
  }
  void copy_kv(KvCache& cache, int from, int to, int tokens) override {
    device_->copy_kv(cache, from, to, tokens);
  }
  std::unique_ptr<StateCache> make_state_cache(const StateCacheSpec& spec) override {
    return device_->make_state_cache(spec);
  }
  void copy_state(StateCache& cache, int from, int to) override { device_->copy_state(cache, from, to); }

  void begin_step(const StepBatch& batch) override {
    batch_ = &batch;
    group_ = 0;
    while (batch.rows() > kLastRows[group_]) ++group_;
    began_ = Clock::now();
    if (ended_) operations_[group_]["between steps"].add(*ended_, began_);
    device_->begin_step(batch);
  }
  void end_step() override {
    device_->end_step();
    ended_ = Clock::now();
    steps_[group_].add(began_, *ended_);
  }

  void embed(const DeviceWeight& table, float scale, const Tensor& out) override {
    time("embed", values(out) * 4, 0, [&] { device_->embed(table, scale, out); });
  }
  void rms_norm(const Tensor& x, const Tensor& weight, float eps, bool accumulate,
                const Tensor& out) override {
    time("rms_norm", values(x) * 8, values(x) * 4,
         [&] { device_->rms_norm(x, weight, eps, accumulate, out); });
  }
  void matmul(std::span<const DeviceWeight* const> weights, const Tensor& x, const Tensor* bias,
              bool accumulate, const Tensor& out) override {
    double bytes = 0, operations = 0;
    for (const DeviceWeight* weight : weights) {
      bytes += static_cast<double>(weight->bytes);
      operations += 2.0 * static_cast<double>(x.rows * weight->rows * weight->cols);
    }
    time(format("matmul %s %lld x %lld", format_info(weights[0]->format).name,
                static_cast<long long>(out.cols), static_cast<long long>(x.cols)),
         bytes, operations, [&] { device_->matmul(weights, x, bias, accumulate, out); });
  }
  void norm_rope(const Tensor& x, int heads, const Tensor* norm, float eps, const RopeSpec& rope) override {
    time("norm_rope", values(x) * 8, values(x) * 6, [&] { device_->norm_rope(x, heads, norm, eps, rope); });
  }
  void write_kv(KvCache& cache, int layer, const Tensor& k, const Tensor& v) override {
    time("write_kv", values(k) * 12, 0, [&] { device_->write_kv(cache, layer, k, v); });
  }
  void attention(const KvCache& cache, int layer, const Tensor& q, const AttentionSpec& spec,
                 const Tensor& out) override {
    const double token_bytes = static_cast<double>(cache.bytes) /
                               static_cast<double>(cache.spec.layers.size()) / cache.spec.num_blocks /
                               cache.spec.block_size;
    double keys = 0, pairs = 0;
    for (int s = 0; s < batch_->sequences(); ++s) {
      const int begin = batch_->seq_start[s], end = batch_->seq_start[s + 1];
      const int seen = batch_->context_len(s), window = spec.window > 0 ? spec.window : seen;
      keys += std::min(seen, window + end - begin - 1);
      for (int row = begin; row < end; ++row) pairs += std::min(batch_->positions[row] + 1, window);
    }
    time("attention", keys * token_bytes, 4.0 * pairs * spec.heads * spec.head_dim,
         [&] { device_->attention(cache, layer, q, spec, out); });
  }
  void causal_conv(StateCache& cache, int layer, const Tensor& weight, const Tensor& x) override {
    time("causal_conv", values(x) * 8, 2.0 * values(x) * static_cast<double>(weight.rows),
         [&] { device_->causal_conv(cache, layer, weight, x); });
  }
  void delta_rule(StateCache& cache, int layer, const Tensor& qkv, const Tensor& a, const Tensor& b,
                  const Tensor& decay, const Tensor& dt_bias, const Tensor& out) override {
    const double matrix = values(out.head(1)) * cache.spec.layers[static_cast<size_t>(layer)].key_dim;
    time("delta_rule", matrix * 8 * batch_->sequences(), matrix * 7 * static_cast<double>(out.rows),
         [&] { device_->delta_rule(cache, layer, qkv, a, b, decay, dt_bias, out); });
  }
  void gated(Activation act, const Tensor& gate, const Tensor& up, const Tensor& out) override {
    time("gated", values(out) * 12, 0, [&] { device_->gated(act, gate, up, out); });
  }
  /// The bytes are those of as many experts as the rows can take.
  void experts(const RouterSpec& router, std::span<const ExpertWeights> experts, Activation act,
               const Tensor& x, const Tensor& logits, bool accumulate, const Tensor& out) override {
    const ExpertWeights& one = experts[0];
    const double choices = static_cast<double>(x.rows) * router.experts_per_row;
    const auto bytes = static_cast<double>(one.gate->bytes + one.up->bytes + one.down->bytes);
    time(format("experts %s %lld of %zu", format_info(one.gate->format).name,
                static_cast<long long>(one.gate->rows), experts.size()),
         std::min(choices, static_cast<double>(experts.size())) * bytes,
         6.0 * choices * static_cast<double>(one.gate->rows * one.gate->cols),
         [&] { device_->experts(router, experts, act, x, logits, accumulate, out); });
  }
  void add_gated_rows(const Tensor& x, const Tensor& gate, const Tensor& out) override {
    time("add_gated_rows", values(x) * 12, 0, [&] { device_->add_gated_rows(x, gate, out); });
  }
  void gather_logit_rows(const Tensor& x, const Tensor& out) override {
    time("gather_logit_rows", values(out) * 8, 0, [&] { device_->gather_logit_rows(x, out); });
  }
  void softcap(float cap, const Tensor& x) override {
    time("softcap", values(x) * 8, 0, [&] { device_->softcap(cap, x); });
  }

  std::string take_report() override {
    std::string out;
    int first = 1;
    for (size_t group = 0; group < std::size(kLastRows); ++group) {
      const Total steps = steps_[group];
      if (steps.calls > 0) {
        out += format("%lld steps of %d%s rows, %.3f ms each\n", static_cast<long long>(steps.calls), first,
                      kLastRows[group] == first     ? ""
                      : kLastRows[group] == 1 << 30 ? " and more"
                                                    : format(" to %d", kLastRows[group]).c_str(),
                      1e3 * steps.seconds / static_cast<double>(steps.calls));
        add_operations(operations_[group], steps.seconds, out);
      }
      first = kLastRows[group] + 1;
      steps_[group] = {};
      operations_[group].clear();
    }
    ended_.reset();
    return out;
  }

 private:
  static double values(const Tensor& x) { return static_cast<double>(x.rows * x.cols); }

  template <typename Run>
  void time(const std::string& name, double bytes, double operations, Run run) {
    const Clock::time_point begin = Clock::now();
    run();
    Total& total = operations_[group_][name];
    total.add(begin, Clock::now());
    total.bytes += bytes;
    total.operations += operations;
  }

  /// Most time first.
  static void add_operations(const std::map<std::string, Total>& operations, double seconds,
                             std::string& out) {
    std::vector<std::pair<std::string, Total>> sorted(operations.begin(), operations.end());
    std::sort(sorted.begin(), sorted.end(),
              [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
    for (const auto& [name, total] : sorted)
      out += format("  %-32s %8lld calls %10.3f ms %5.1f %% %7.1f GB/s %8.1f Gop/s\n", name.c_str(),
                    static_cast<long long>(total.calls), 1e3 * total.seconds, 100 * total.seconds / seconds,
                    total.bytes / total.seconds / 1e9, total.operations / total.seconds / 1e9);
  }

  std::unique_ptr<Device> device_;
  const StepBatch* batch_ = nullptr;
  size_t group_ = 0;
  Clock::time_point began_;
  std::optional<Clock::time_point> ended_;  // of the last step, while one follows the other
  Total steps_[std::size(kLastRows)];
  std::map<std::string, Total> operations_[std::size(kLastRows)];
};

}  // namespace

std::unique_ptr<TracingDevice> make_tracing_device(std::unique_ptr<Device> device) {
  return std::make_unique<Tracing>(std::move(device));
}

}  // namespace vllm

#include "engine/self_test.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "base/error.h"
#include "model/binder.h"

namespace vllm {
namespace {

// Of activations: of one sequence of so many tokens. Devices have kernels of their own for one row, for few
// and for many.
constexpr int kFewRows = 5, kManyRows = 40, kOneRow = 1;
constexpr int kLongContext = 600;    // tokens: devices cut it into parts
constexpr int64_t kWeightRows = 32;  // of each format
constexpr int kLargest = 65;         // values of a row in order
constexpr size_t kExperts = 4;       // packed for the CPU
constexpr double kTolerance = 0.03;  // relative, in RMS; a CPU that rounds activations to int8 errs by 0.011
constexpr double kExpertsTolerance =
    1.5 * kTolerance;  // of two products in a row, whose errors are as squares

/// Values in [-1, 1) that are the same everywhere.
std::vector<float> values(int64_t count, uint32_t seed) {
  std::vector<float> out(static_cast<size_t>(count));
  for (float& v : out) {
    seed = seed * 1664525u + 1013904223u;
    v = static_cast<float>(seed >> 8) * 0x1p-23f - 1.0f;
  }
  return out;
}

/// Rows [first, first + rows) of one sequence.
StepBatch step_of(int first, int rows, int block_size) {
  StepBatch batch;
  for (int t = 0; t < rows; ++t) {
    batch.token_ids.push_back(t % kFewRows);
    batch.positions.push_back(first + t);
  }
  batch.seq_start = {0, rows};
  batch.max_blocks = (first + rows - 1) / block_size + 1;
  for (int block = 0; block < batch.max_blocks; ++block) batch.block_table.push_back(block);
  batch.state_slots = {0};
  batch.logit_rows = {rows - 1};
  return batch;
}

/// Operations of a step of `rows` rows on one device.
class Bench {
 public:
  Bench(Device& device, int rows) : device(device), rows(rows) {}

  Tensor tensor(int64_t rows, int64_t cols, uint32_t seed) {
    buffers_.push_back(device.allocate(static_cast<size_t>(rows * cols) * sizeof(float)));
    const Tensor out{buffers_.back().get(), 0, rows, cols, cols};
    device.write(out, values(rows * cols, seed).data());
    return out;
  }
  std::vector<float> read(const Tensor& tensor) {
    std::vector<float> out(static_cast<size_t>(tensor.rows * tensor.cols));
    device.read(tensor, out.data());
    return out;
  }

  /// What an operation needs until its result has been read.
  template <class T>
  T& keep(std::unique_ptr<T> object) {
    T& out = *object;
    kept_.push_back(std::move(object));
    return out;
  }

  Device& device;
  int rows;

 private:
  std::vector<std::shared_ptr<void>> kept_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

using Run = std::function<Tensor(Bench&)>;

class SelfTest {
 public:
  SelfTest(Device& device, Device& cpu, int block_size)
      : block_size(block_size), device_(device), cpu_(cpu) {}

  void compare(const std::string& what, const Run& run, double tolerance = kTolerance) {
    for (const int rows : {kFewRows, kManyRows, kOneRow}) {
      const std::string sized = format("%s of %d %s", what.c_str(), rows, rows == 1 ? "row" : "rows");
      compare_on_both(sized, tolerance, [&](Device& device) {
        Bench bench(device, rows);
        return step(bench, 0, run);
      });
    }
  }

  /// One row behind many, which `before` stores.
  void compare_next(const std::string& what, const Run& before, const Run& run) {
    compare_on_both(what, kTolerance, [&](Device& device) {
      Bench bench(device, kLongContext);
      step(bench, 0, before);
      bench.rows = 1;
      return step(bench, kLongContext, run);
    });
  }

  /// Of a row of logits.
  void compare_largest(int64_t vocab) {
    const auto largest = [&](Device& device) {
      Bench bench(device, 1);
      std::vector<RankedValue> out(static_cast<size_t>(std::min<int64_t>(vocab, kLargest)));
      device.read_largest(bench.tensor(1, vocab, 28), static_cast<int>(out.size()), out.data());
      return out;
    };
    const std::vector<RankedValue> want = largest(cpu_), got = largest(device_);
    for (size_t i = 0; i < want.size(); ++i)
      if (got[i].column != want[i].column || got[i].value != want[i].value)
        fail_load("%s finds %g at %d to be the largest value but %zu of a row, where the CPU finds %g at %d.",
                  device_.description().c_str(), static_cast<double>(got[i].value), got[i].column, i,
                  static_cast<double>(want[i].value), want[i].column);
  }

  const int block_size;

 private:
  template <class Compute>
  void compare_on_both(const std::string& what, double tolerance, const Compute& compute) {
    const std::vector<float> want = compute(cpu_), got = compute(device_);
    double error = 0, size = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      error += std::pow(static_cast<double>(got[i]) - want[i], 2);
      size += std::pow(static_cast<double>(want[i]), 2);
    }
    if (const double apart = std::sqrt(error / std::max(size, 1e-30)); !(apart <= tolerance))
      fail_load("%s computes %s otherwise than the CPU: they are %.3g apart, at most %.3g are right.",
                device_.description().c_str(), what.c_str(), apart, tolerance);
  }

  std::vector<float> step(Bench& bench, int first, const Run& run) {
    const StepBatch batch = step_of(first, bench.rows, block_size);
    bench.device.begin_step(batch);
    const Tensor out = run(bench);
    bench.device.end_step();
    return bench.read(out);
  }

  Device& device_;
  Device& cpu_;
};

/// The first rows of a matrix.
WeightView first_rows(WeightView view) {
  view.rows = std::min(view.rows, kWeightRows);
  if (view.scale && view.scale->size() > 1)
    view.scale = std::make_shared<std::vector<float>>(view.scale->begin(), view.scale->begin() + view.rows);
  return view;
}

void test_formats(const Checkpoint& checkpoint, SelfTest& test) {
  // A format of stacked matrices alone is tested with the first of them.
  std::map<Format, const Weight*> samples;
  for (const size_t dimensions : {2, 3})
    for (const auto& [name, weight] : checkpoint.weights())
      if (weight.shape.size() == dimensions) samples.try_emplace(weight.format, &weight);
  for (const auto& [format, weight] : samples) {
    const WeightView view = first_rows(weight->view());
    const std::string name = vllm::format("%s of %s", weight->name.c_str(), format_info(format).name);
    test.compare("products with " + name, [&](Bench& bench) {
      const DeviceWeight* const list[] = {&bench.keep(bench.device.pack(view, false))};
      const Tensor out = bench.tensor(bench.rows, view.rows, 2);
      bench.device.matmul(list, bench.tensor(bench.rows, view.cols, 1), nullptr, false, out);
      return out;
    });
    if (view.rows < kFewRows) continue;
    test.compare("rows of " + name, [&](Bench& bench) {
      const DeviceWeight& packed = bench.keep(bench.device.pack(view, true));
      const Tensor out = bench.tensor(bench.rows, view.cols, 2);
      bench.device.embed(packed, 1.5f, out);
      return out;
    });
  }
}

void test_attention(const ModelSpec& spec, KvFormat kv_format, SelfTest& test) {
  const int64_t q_cols = int64_t{spec.heads} * spec.head_dim,
                kv_cols = int64_t{spec.kv_heads} * spec.head_dim;
  for (const RopeSpec& rope : spec.ropes) {
    test.compare("rotary positions", [&](Bench& bench) {
      const Tensor x = bench.tensor(bench.rows, q_cols, 3), norm = bench.tensor(1, spec.head_dim, 4);
      bench.device.norm_rope(x, spec.heads, &norm, spec.norm_eps, rope);
      return x;
    });
  }
  KvCacheSpec cache;
  cache.layers = {{spec.kv_heads, spec.head_dim}};
  cache.block_size = test.block_size;
  cache.num_blocks = kLongContext / test.block_size + 1;
  cache.format = kv_format;
  AttentionSpec attention;
  attention.heads = spec.heads;
  attention.kv_heads = spec.kv_heads;
  attention.head_dim = spec.head_dim;
  attention.scale = spec.attention_scale;
  attention.softcap = spec.attention_softcap;
  std::set<int> windows;
  for (const LayerSpec& layer : spec.layers)
    if (layer.mixer == Mixer::Attention) windows.insert(layer.window);
  for (const int window : windows) {
    const std::string name = window > 0 ? format("attention over %d tokens", window) : "attention";
    attention.window = window;
    KvCache* kv = nullptr;
    const auto make = [&](Bench& bench) { kv = &bench.keep(bench.device.make_kv_cache(cache)); };
    const auto store = [&](Bench& bench) {
      const Tensor k = bench.tensor(bench.rows, kv_cols, 6);
      bench.device.write_kv(*kv, 0, k, bench.tensor(bench.rows, kv_cols, 7));
      return k;
    };
    const auto attend = [&](Bench& bench) {
      store(bench);
      const Tensor out = bench.tensor(bench.rows, q_cols, 5);
      bench.device.attention(*kv, 0, bench.tensor(bench.rows, q_cols, 8), attention, out);
      return out;
    };
    test.compare(name, [&](Bench& bench) { return make(bench), attend(bench); });
    test.compare_next(
        format("%s behind %d tokens", name.c_str(), kLongContext),
        [&](Bench& bench) { return make(bench), store(bench); }, attend);
  }
}

void test_delta_net(const DeltaNetSpec& spec, SelfTest& test) {
  test.compare("gated DeltaNet", [&](Bench& bench) {
    StateCache& states = bench.keep(bench.device.make_state_cache({{spec}, 1}));
    const Tensor x = bench.tensor(bench.rows, spec.conv_cols(), 9),
                 out = bench.tensor(bench.rows, spec.value_cols(), 10);
    bench.device.causal_conv(states, 0, bench.tensor(spec.conv_kernel, spec.conv_cols(), 11), x);
    bench.device.delta_rule(states, 0, x, bench.tensor(bench.rows, spec.value_heads, 12),
                            bench.tensor(bench.rows, spec.value_heads, 13),
                            bench.tensor(1, spec.value_heads, 14), bench.tensor(1, spec.value_heads, 15),
                            out);
    return out;
  });
}

/// With a few experts of each combination of formats, from one layer, in turn the experts that rows choose
/// among: twice as many as one chooses.
void test_experts(const Checkpoint& checkpoint, const Model& model, Device& cpu, SelfTest& test) {
  struct Sample {
    int layer;
    std::vector<int> ids;
  };
  std::map<std::array<Format, 3>, Sample> samples;
  const ModelSpec& spec = model.spec();
  for (int layer = 0; layer < static_cast<int>(spec.layers.size()); ++layer) {
    const std::span<const ExpertWeights> experts = model.experts(layer);
    for (size_t e = 0; e < experts.size(); ++e) {
      const auto& [gate, up, down] = experts[e];
      Sample& sample =
          samples.try_emplace({gate->format, up->format, down->format}, Sample{layer, {}}).first->second;
      if (sample.layer == layer && sample.ids.size() < kExperts) sample.ids.push_back(static_cast<int>(e));
    }
  }
  const auto count =
      static_cast<size_t>(std::min(spec.experts.count, 2 * spec.experts.router.experts_per_row));
  for (const auto& [formats, sample] : samples) {
    Binder binder(checkpoint, cpu, spec, false);
    const auto on_cpu = bind_expert_weights(binder, spec, sample.layer, sample.ids);
    const std::string name =
        format("a mixture of experts of layer %d in %s, %s and %s", sample.layer,
               format_info(formats[0]).name, format_info(formats[1]).name, format_info(formats[2]).name);
    const Run run = [&](Bench& bench) {
      std::vector<ExpertWeights> list;
      for (size_t i = 0; i < count; ++i) {
        const size_t e = i % sample.ids.size();
        list.push_back(&bench.device != &cpu ? model.experts(sample.layer)[static_cast<size_t>(sample.ids[e])]
                                             : ExpertWeights{on_cpu[3 * e].get(), on_cpu[3 * e + 1].get(),
                                                             on_cpu[3 * e + 2].get()});
      }
      const Tensor out = bench.tensor(bench.rows, spec.hidden, 17);
      bench.device.experts(spec.experts.router, list, spec.activation,
                           bench.tensor(bench.rows, spec.hidden, 18),
                           bench.tensor(bench.rows, static_cast<int64_t>(count), 19), false, out);
      return out;
    };
    test.compare(name, run, kExpertsTolerance);
  }
  test.compare("rows of a shared expert", [&](Bench& bench) {
    const Tensor out = bench.tensor(bench.rows, spec.hidden, 17);
    bench.device.add_gated_rows(bench.tensor(bench.rows, spec.hidden, 20), bench.tensor(bench.rows, 1, 21),
                                out);
    return out;
  });
}

}  // namespace

void self_test(const Checkpoint& checkpoint, const Model& model, KvFormat kv_format, int block_size,
               Device& device, Device& cpu) {
  const ModelSpec& spec = model.spec();
  SelfTest test(device, cpu, block_size);
  test_formats(checkpoint, test);
  test.compare("rms norms", [&](Bench& bench) {
    const Tensor x = bench.tensor(bench.rows, spec.hidden, 22);
    bench.device.rms_norm(x, bench.tensor(1, spec.hidden, 23), spec.norm_eps, true, x);
    return x;
  });
  test.compare("gated activations", [&](Bench& bench) {
    const Tensor x = bench.tensor(bench.rows, spec.hidden, 24);
    bench.device.gated(spec.activation, x, bench.tensor(bench.rows, spec.hidden, 25), x);
    if (spec.logit_softcap > 0) bench.device.softcap(spec.logit_softcap, x);
    return x;
  });
  test.compare("rows for logits", [&](Bench& bench) {
    const Tensor out = bench.tensor(1, spec.hidden, 26);
    bench.device.gather_logit_rows(bench.tensor(bench.rows, spec.hidden, 27), out);
    return out;
  });
  test.compare_largest(spec.vocab);
  const auto any = [&](Mixer mixer) {
    return std::any_of(spec.layers.begin(), spec.layers.end(),
                       [&](const LayerSpec& layer) { return layer.mixer == mixer; });
  };
  if (any(Mixer::Attention)) test_attention(spec, kv_format, test);
  if (any(Mixer::DeltaNet)) test_delta_net(spec.delta_net, test);
  if (spec.experts.count > 0) test_experts(checkpoint, model, cpu, test);
}

}  // namespace vllm

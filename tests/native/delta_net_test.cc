// The operations of gated DeltaNet layers on every device: against the reference device, against the chunked
// form of the recurrence, and the same bits however the sequences are cut and whoever shares the batch.
#include "device_candidates.h"

using namespace vllm;
using namespace vllm::test;

namespace {

DeltaNetSpec sizes(int key_heads, int value_heads, int key_dim, int value_dim, int taps, bool tiled = false) {
  DeltaNetSpec spec;
  spec.key_heads = key_heads;
  spec.value_heads = value_heads;
  spec.key_dim = key_dim;
  spec.value_dim = value_dim;
  spec.conv_kernel = taps;
  spec.tiled = tiled;
  return spec;
}

const DeltaNetSpec kSizes[] = {
    sizes(2, 4, 128, 128, 4), sizes(3, 3, 64, 64, 4), sizes(2, 6, 12, 40, 4, true), sizes(2, 6, 12, 40, 4),
    sizes(1, 5, 33, 17, 2),   sizes(2, 2, 1, 1, 1),   sizes(4, 8, 7, 96, 5, true),  sizes(1, 1, 250, 31, 16),
};

std::string name_of(const DeltaNetSpec& s) {
  return vllm::format("%d heads of %d over %d of %d, %d taps%s", s.value_heads, s.value_dim, s.key_heads,
                      s.key_dim, s.conv_kernel, s.tiled ? ", tiled" : "");
}

/// The inputs of the rows of one sequence, before the convolution.
struct Sequence {
  int length, slot;
  std::vector<float> qkv, a, b;
};

struct Layer {
  DeltaNetSpec spec;
  std::vector<float> weight, decay, dt_bias;
  std::vector<Sequence> sequences;
};

/// Decays of the sizes that models have: some heads forget at once, some hardly.
Layer make_layer(const DeltaNetSpec& spec, const std::vector<int>& lengths) {
  Random random(static_cast<uint64_t>(spec.value_heads * 1000 + spec.key_dim));
  Layer out{
      spec, random.gauss(spec.conv_kernel * spec.conv_cols(), 0.5f), {}, random.gauss(spec.value_heads), {}};
  for (int h = 0; h < spec.value_heads; ++h) out.decay.push_back(-std::exp(3.0f * random.gauss() - 2.0f));
  for (size_t i = 0; i < lengths.size(); ++i) {
    const auto n = static_cast<size_t>(lengths[i]);
    out.sequences.push_back(
        {lengths[i], static_cast<int>(lengths.size() - i), random.gauss(n * spec.conv_cols(), 1.5f),
         random.gauss(n * spec.value_heads, 2.0f), random.gauss(n * spec.value_heads, 2.0f)});
  }
  return out;
}

/// Rows first .. end - 1 of sequence `index` in one step.
struct Piece {
  int index, first, end;
};

/// Both operations on layer 1 of 2.
class Runner {
 public:
  Runner(Device& device, const Layer& layer) : device_(device), layer_(layer), rig_(device) {
    StateCacheSpec spec;
    spec.layers = {sizes(1, 2, 8, 8, 3), layer.spec};
    spec.slots = static_cast<int>(layer.sequences.size()) + 2;
    cache = device.make_state_cache(spec);
    weight_ = rig_.tensor(layer.spec.conv_kernel, layer.spec.conv_cols(), layer.weight, 3);
    decay_ = rig_.tensor(1, layer.spec.value_heads, layer.decay);
    dt_bias_ = rig_.tensor(1, layer.spec.value_heads, layer.dt_bias);
    for (const Sequence& s : layer.sequences) {
      slots.push_back(s.slot);
      results_.emplace_back(static_cast<size_t>(s.length) * cols());
    }
  }

  void step(const std::vector<Piece>& pieces) {
    const DeltaNetSpec& spec = layer_.spec;
    StepBatch batch;
    batch.seq_start = {0};
    std::vector<float> qkv, a, b;
    const auto append = [](std::vector<float>& to, const std::vector<float>& from, const Piece& p,
                           int64_t n) {
      to.insert(to.end(), from.begin() + p.first * n, from.begin() + p.end * n);
    };
    for (const Piece& p : pieces) {
      const Sequence& s = layer_.sequences[p.index];
      for (int t = p.first; t < p.end; ++t) batch.positions.push_back(t), batch.token_ids.push_back(0);
      batch.seq_start.push_back(batch.rows());
      batch.state_slots.push_back(slots[p.index]);
      append(qkv, s.qkv, p, spec.conv_cols());
      append(a, s.a, p, spec.value_heads);
      append(b, s.b, p, spec.value_heads);
    }
    const int rows = batch.rows();
    const Tensor tx = rig_.tensor(rows, spec.conv_cols(), qkv, 5),
                 ta = rig_.tensor(rows, spec.value_heads, a, 2),
                 tb = rig_.tensor(rows, spec.value_heads, b, 1), out = rig_.tensor(rows, cols(), {}, 7);
    device_.begin_step(batch);
    device_.causal_conv(*cache, 1, weight_, tx);
    convolved = rig_.read(tx);
    device_.delta_rule(*cache, 1, tx, ta, tb, decay_, dt_bias_, out);
    device_.end_step();
    const std::vector<float> got = rig_.read(out);
    auto at = got.begin();
    for (const Piece& p : pieces) {
      const auto count = static_cast<ptrdiff_t>((p.end - p.first) * cols());
      std::copy(at, at + count, results_[p.index].begin() + p.first * cols());
      at += count;
    }
  }

  std::vector<float> all() const {
    std::vector<float> out;
    for (const auto& r : results_) out.insert(out.end(), r.begin(), r.end());
    return out;
  }

  std::unique_ptr<StateCache> cache;
  std::vector<int> slots;        // of the sequences
  std::vector<float> convolved;  // rows of the last step

 private:
  int64_t cols() const { return layer_.spec.value_cols(); }

  Device& device_;
  const Layer& layer_;
  Rig rig_;
  Tensor weight_, decay_, dt_bias_;
  std::vector<std::vector<float>> results_;
};

std::vector<float> run(Device& device, const Layer& layer, const std::vector<std::vector<Piece>>& steps) {
  Runner runner(device, layer);
  for (const auto& step : steps) runner.step(step);
  return runner.all();
}

/// The delta rule in chunks of 64 tokens (Yang et al., "Gated Delta Networks", in the form with a triangular
/// system a chunk), in double, of one sequence of convolved rows from position 0.
std::vector<float> chunked(const Layer& layer, const Sequence& s, const std::vector<float>& qkv) {
  constexpr int kChunk = 64;
  const DeltaNetSpec& spec = layer.spec;
  const int dk = spec.key_dim, dv = spec.value_dim;
  std::vector<float> out(static_cast<size_t>(s.length) * spec.value_cols());
  using Row = std::vector<double>;
  const auto unit = [&](int t, int64_t at, double scale) {
    Row x(qkv.begin() + t * spec.conv_cols() + at, qkv.begin() + t * spec.conv_cols() + at + dk);
    double sum = 1e-6;
    for (double v : x) sum += v * v;
    for (double& v : x) v *= scale / std::sqrt(sum);
    return x;
  };
  const auto dot = [](const Row& x, const Row& y) {
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
    return sum;
  };
  for (int h = 0; h < spec.value_heads; ++h) {
    const int64_t key_at = static_cast<int64_t>(spec.key_head(h)) * dk;
    std::vector<Row> state(static_cast<size_t>(dk), Row(static_cast<size_t>(dv), 0.0));  // S^T
    for (int begin = 0; begin < s.length; begin += kChunk) {
      const int n = std::min(kChunk, s.length - begin);
      std::vector<Row> q, k, u, w;
      Row beta, gamma;
      for (int i = 0; i < n; ++i) {
        const int t = begin + i;
        q.push_back(unit(t, key_at, 1 / std::sqrt(static_cast<double>(dk))));
        k.push_back(unit(t, spec.key_cols() + key_at, 1));
        const double step = static_cast<double>(s.a[t * spec.value_heads + h]) + layer.dt_bias[h];
        gamma.push_back((i == 0 ? 0 : gamma.back()) + layer.decay[h] * std::log1p(std::exp(step)));
        beta.push_back(1 / (1 + std::exp(-static_cast<double>(s.b[t * spec.value_heads + h]))));
        // Row i of U and W by forward substitution in (I + A) [U | W] = [beta V | beta exp(gamma) K].
        const auto v =
            qkv.begin() + t * spec.conv_cols() + 2 * spec.key_cols() + static_cast<int64_t>(h) * dv;
        Row ui(v, v + dv), wi = k[i];
        for (double& x : ui) x *= beta[i];
        for (double& x : wi) x *= beta[i] * std::exp(gamma[i]);
        for (int j = 0; j < i; ++j) {
          const double a = beta[i] * dot(k[i], k[j]) * std::exp(gamma[i] - gamma[j]);
          for (int d = 0; d < dv; ++d) ui[d] -= a * u[j][d];
          for (int d = 0; d < dk; ++d) wi[d] -= a * w[j][d];
        }
        u.push_back(ui);
        w.push_back(wi);
      }
      for (int i = 0; i < n; ++i)  // U becomes V' = U - W S
        for (int d = 0; d < dk; ++d)
          for (int e = 0; e < dv; ++e) u[i][e] -= w[i][d] * state[d][e];
      for (int i = 0; i < n; ++i) {
        Row o(static_cast<size_t>(dv), 0.0);
        for (int d = 0; d < dk; ++d)
          for (int e = 0; e < dv; ++e) o[e] += q[i][d] * std::exp(gamma[i]) * state[d][e];
        for (int j = 0; j <= i; ++j) {
          const double p = dot(q[i], k[j]) * std::exp(gamma[i] - gamma[j]);
          for (int e = 0; e < dv; ++e) o[e] += p * u[j][e];
        }
        std::copy(o.begin(), o.end(),
                  out.begin() + (begin + i) * spec.value_cols() + static_cast<int64_t>(h) * dv);
      }
      for (int d = 0; d < dk; ++d) {
        for (int e = 0; e < dv; ++e) {
          state[d][e] *= std::exp(gamma.back());
          for (int i = 0; i < n; ++i) state[d][e] += k[i][d] * std::exp(gamma.back() - gamma[i]) * u[i][e];
        }
      }
    }
  }
  return out;
}

}  // namespace

TEST_CASE("causal_conv and delta_rule") {
  for (const DeltaNetSpec& spec : kSizes) {
    INFO(name_of(spec));
    const Layer layer = make_layer(spec, {1, 45, 110, 17});
    // The last step decodes, continues a prefill and starts one, together.
    const std::vector<std::vector<Piece>> steps = {{{1, 0, 44}, {2, 0, 70}},
                                                   {{0, 0, 1}, {2, 70, 110}, {1, 44, 45}, {3, 0, 17}}};
    against_reference(
        [&](Device& device) {
          Runner runner(device, layer);
          runner.step(steps[0]);
          const std::vector<float> first = runner.convolved;
          runner.step(steps[1]);
          std::vector<float> out = first;
          out.insert(out.end(), runner.convolved.begin(), runner.convolved.end());
          return out;
        },
        2e-6, 4e-6);
    against_reference([&](Device& device) { return run(device, layer, steps); },
                      [&](const auto& want, const auto& got, const Candidate&) {
                        expect_close_rms(want, got, 3e-6, 3e-5 * rms(want));
                      });
  }
}

TEST_CASE("the recurrence gives what the chunked form gives") {
  for (const DeltaNetSpec& spec : kSizes) {
    INFO(name_of(spec));
    const Layer layer = make_layer(spec, {200});
    const auto check = [&](Device& device) {
      INFO(device.description());
      Runner runner(device, layer);
      runner.step({{0, 0, 200}});
      expect_close_rms(chunked(layer, layer.sequences[0], runner.convolved), runner.all(), 5e-6);
    };
    check(reference());
    for (const Candidate& candidate : candidates())
      if (!candidate.variant) check(*candidate.device);
  }
}

TEST_CASE(
    "a row of a DeltaNet layer has the same bits in one prefill, in chunks, token by token and in any "
    "batch") {
  for (const DeltaNetSpec& spec : kSizes) {
    INFO(name_of(spec));
    const Layer layer = make_layer(spec, {201, 50});
    std::vector<std::vector<Piece>> tokens, chunks;
    for (int t = 0; t < 201; ++t) {
      tokens.push_back({{0, t, t + 1}});
      if (t < 50) tokens.back().push_back({1, t, t + 1});
    }
    for (int t = 0, size = 1; t < 201; t += size, size = size % 47 + 13) {
      chunks.push_back({});
      if (t < 50) chunks.back().push_back({1, t, std::min(50, t + size)});
      chunks.back().push_back({0, t, std::min(201, t + size)});
    }
    std::string kind;
    std::vector<float> want;
    for (const Candidate& candidate : candidates()) {
      if (candidate.variant) continue;
      INFO(candidate.name);
      Device& device = *candidate.device;
      const auto whole = run(device, layer, {{{0, 0, 201}}, {{1, 0, 50}}});
      if (candidate.kind != kind) want = whole, kind = candidate.kind;
      expect_equal(want, whole);
      expect_equal(want, run(device, layer, {{{0, 0, 201}, {1, 0, 50}}}));
      expect_equal(want, run(device, layer, chunks));
      expect_equal(want, run(device, layer, tokens));
    }
  }
}

TEST_CASE("a state starts at zero, can be copied, and belongs to its slot alone") {
  for (const DeltaNetSpec& spec : {kSizes[0], kSizes[2], kSizes[4]}) {
    INFO(name_of(spec));
    const Layer layer = make_layer(spec, {60, 60});
    std::vector<Device*> devices = {&reference()};
    for (const Candidate& candidate : candidates())
      if (!candidate.variant) devices.push_back(candidate.device.get());
    for (Device* device : devices) {
      INFO(device->description());
      const auto want = run(*device, layer, {{{0, 0, 60}}, {{1, 0, 60}}});
      Runner runner(*device, layer);
      runner.step({{0, 0, 30}, {1, 0, 25}});
      device->copy_state(*runner.cache, runner.slots[0], 3);
      runner.step({{0, 30, 60}});
      // The first sequence goes on from the copy, the second starts again in the slot that the first had.
      runner.slots = {3, runner.slots[0]};
      runner.step({{1, 0, 60}});
      runner.step({{0, 30, 60}});
      expect_equal(want, runner.all());
    }
  }
}

TEST_CASE("a device refuses states that do not fit, by name") {
  std::vector<Device*> devices = {&reference()};
  for (const Candidate& candidate : candidates())
    if (!candidate.variant) devices.push_back(candidate.device.get());
  for (Device* device : devices) {
    INFO(device->description());
    const auto made = [&](const DeltaNetSpec& spec, int slots) {
      try {
        device->make_state_cache(StateCacheSpec{{spec}, slots});
      } catch (const Error& e) {
        CHECK(e.message().size() > 20);
        return e.status();
      }
      return Status::Ok;
    };
    CHECK(made(sizes(2, 4, 8, 8, 4), 1) == Status::Ok);
    CHECK(made(sizes(2, 4, 8, 8, 4), 0) == Status::ModelLoad);
    CHECK(made(sizes(2, 5, 8, 8, 4), 1) == Status::ModelLoad);
    CHECK(made(sizes(0, 4, 8, 8, 4), 1) == Status::ModelLoad);
    CHECK(made(sizes(2, 4, 0, 8, 4), 1) == Status::ModelLoad);
    CHECK(made(sizes(2, 4, 8, 8, 17), 1) == Status::ModelLoad);

    const DeltaNetSpec spec = sizes(2, 4, 8, 8, 4);
    const StateCacheSpec cache_spec{{spec}, 2};
    CHECK(cache_spec.slot_bytes() == (3 * 64 + 4 * 8 * 8) * 4);
    const auto cache = device->make_state_cache(cache_spec);
    CHECK(cache->bytes >= 2 * cache_spec.slot_bytes());
    Rig rig(*device);
    const Tensor x = rig.tensor(2, 64, std::vector<float>(128, 1.0f)), gates = rig.tensor(2, 4, {}),
                 row = rig.tensor(1, 4, {}), weight = rig.tensor(4, 64, {}), out = rig.tensor(2, 32, {});
    StepBatch batch = rows_from(0, 2);
    const auto status_of = [&](const std::function<void()>& call) {
      device->begin_step(batch);
      Status status = Status::Ok;
      try {
        call();
      } catch (const Error& e) {
        status = e.status();
      }
      device->end_step();
      return status;
    };
    const auto conv = [&] { device->causal_conv(*cache, 0, weight, x); };
    const auto rule = [&] { device->delta_rule(*cache, 0, x, gates, gates, row, row, out); };
    CHECK(status_of(conv) == Status::Runtime);  // slot -1
    batch.state_slots = {2};
    CHECK(status_of(rule) == Status::Runtime);
    batch.state_slots = {1};
    CHECK(status_of(conv) == Status::Ok);
    CHECK(status_of(rule) == Status::Ok);
    CHECK(status_of([&] { device->causal_conv(*cache, 1, weight, x); }) == Status::Runtime);
    CHECK(status_of([&] { device->causal_conv(*cache, 0, weight.head(3), x); }) == Status::Runtime);
    CHECK(status_of([&] { device->delta_rule(*cache, 0, x, gates, row, row, row, out); }) == Status::Runtime);
    CHECK(status_of([&] { device->copy_state(*cache, 0, 2); }) == Status::Runtime);
    batch = rows_from(0, 2);
    batch.positions = {0, 0};
    batch.seq_start = {0, 1, 2};
    batch.state_slots = {1, 1};
    CHECK(status_of(conv) == Status::Runtime);  // two sequences, one slot
  }
}

#include "model/model.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "model/architecture.h"

namespace vllm {
namespace {

/// Rows computed at once; a larger step runs in slices of it, which bounds the activations.
constexpr int kSliceRows = 512;

std::string layer_name(const std::string& pattern, int layer) {
  std::string out = pattern;
  const size_t at = out.find("{}");
  if (at != std::string::npos) out.replace(at, 2, std::to_string(layer));
  return out;
}

/// Rows [first, first + count) of a batch as a batch of their own.
StepBatch slice(const StepBatch& batch, int first, int count) {
  StepBatch out;
  out.max_blocks = batch.max_blocks;
  out.token_ids.assign(batch.token_ids.begin() + first, batch.token_ids.begin() + first + count);
  out.positions.assign(batch.positions.begin() + first, batch.positions.begin() + first + count);
  out.seq_start.push_back(0);
  for (int s = 0; s < batch.sequences(); ++s) {
    const int begin = std::max(batch.seq_start[s], first);
    const int end = std::min(batch.seq_start[s + 1], first + count);
    if (begin >= end) continue;
    out.seq_start.push_back(end - first);
    out.block_table.insert(out.block_table.end(), batch.blocks_of(s), batch.blocks_of(s) + batch.max_blocks);
    out.state_slots.push_back(batch.state_slots[s]);
  }
  for (int row : batch.logit_rows)
    if (row >= first && row < first + count) out.logit_rows.push_back(row - first);
  return out;
}

}  // namespace

struct Model::Norm {
  std::unique_ptr<Buffer> buffer;
  Tensor weight;  // [1, n]
};

/// Weights that are multiplied with the same input, their outputs side by side.
struct Model::Linear {
  std::vector<std::unique_ptr<DeviceWeight>> weights;
  std::vector<const DeviceWeight*> pointers;
  std::unique_ptr<Norm> bias;  // null: none

  const Tensor* bias_or_null() const { return bias ? &bias->weight : nullptr; }
};

struct Model::Layer {
  std::unique_ptr<Norm> attn_norm, q_norm, k_norm, post_attn_norm, mlp_norm, post_mlp_norm;
  Linear qkv, o, gate_up, down;
};

struct Model::Workspace {
  int rows = 0, logit_rows = 0;
  std::vector<std::unique_ptr<Buffer>> buffers;
  Tensor x, n, qkv, attn, gate_up, last, last_n, logits;
  size_t bytes = 0;
};

/// Finds, checks and packs the tensors of a spec, and knows at the end which ones nobody asked for.
class Model::Binder {
 public:
  Binder(const Checkpoint& checkpoint, Model& model) : checkpoint_(checkpoint), model_(model) {
    for (const auto& [name, weight] : checkpoint.weights()) total_bytes_ += weight.bytes;
  }

  void bind() {
    const ModelSpec& spec = model_.spec_;
    const WeightNames& n = spec.names;
    const int q_rows = spec.heads * spec.head_dim;
    const int kv_rows = spec.kv_heads * spec.head_dim;
    check_all_present();
    for (int i = 0; i < static_cast<int>(spec.layers.size()); ++i) {
      Layer layer;
      layer.attn_norm = norm(layer_name(n.attn_norm, i), spec.hidden);
      layer.q_norm = norm(layer_name(n.q_norm, i), spec.head_dim);
      layer.k_norm = norm(layer_name(n.k_norm, i), spec.head_dim);
      layer.post_attn_norm = norm(layer_name(n.post_attn_norm, i), spec.hidden);
      layer.mlp_norm = norm(layer_name(n.mlp_norm, i), spec.hidden);
      layer.post_mlp_norm = norm(layer_name(n.post_mlp_norm, i), spec.hidden);
      layer.qkv =
          linear({{layer_name(n.q, i), q_rows}, {layer_name(n.k, i), kv_rows}, {layer_name(n.v, i), kv_rows}},
                 spec.hidden, spec.needs_qkv_bias);
      layer.o = linear({{layer_name(n.o, i), spec.hidden}}, q_rows, false);
      layer.gate_up =
          linear({{layer_name(n.gate, i), spec.intermediate}, {layer_name(n.up, i), spec.intermediate}},
                 spec.hidden, false);
      layer.down = linear({{layer_name(n.down, i), spec.hidden}}, spec.intermediate, false);
      model_.layers_.push_back(std::move(layer));
    }
    model_.output_norm_ = norm(n.output_norm, spec.hidden);
    // The embedding is looked up row by row; it is packed for products only when it is the output matrix too.
    model_.embedding_ = matrix(n.embedding, spec.vocab, spec.hidden, !spec.tied_embeddings);
    if (!spec.tied_embeddings) model_.output_ = matrix(n.output, spec.vocab, spec.hidden, false);
    refuse_unused();
  }

 private:
  struct Part {
    std::string name;
    int rows;
  };

  const Weight& take(const std::string& name) {
    const Weight* weight = checkpoint_.find(name);
    if (weight == nullptr)
      fail_load("%s: the tensor %s is missing", checkpoint_.path().c_str(), name.c_str());
    used_.insert(weight->name);
    return *weight;
  }

  const Weight& take_matrix(const std::string& name, int64_t rows, int64_t cols) {
    const Weight& weight = take(name);
    const WeightView view = weight.view();
    if (view.rows != rows || view.cols != cols)
      fail_load("%s: the tensor %s is %lld x %lld, needed is %lld x %lld", checkpoint_.path().c_str(),
                name.c_str(), static_cast<long long>(view.rows), static_cast<long long>(view.cols),
                static_cast<long long>(rows), static_cast<long long>(cols));
    return weight;
  }

  /// The values as a row on the device.
  std::unique_ptr<Norm> vector(const std::vector<float>& values) {
    auto out = std::make_unique<Norm>();
    const auto count = static_cast<int64_t>(values.size());
    out->buffer = model_.device_.allocate(values.size() * sizeof(float));
    out->weight = Tensor{out->buffer.get(), 0, 1, count, count};
    model_.device_.write(out->weight, values.data());
    model_.weight_bytes_ += values.size() * sizeof(float);
    return out;
  }

  std::vector<float> decoded(const std::string& name, int64_t count) {
    const Weight& weight = take_matrix(name, 1, count);
    std::vector<float> values(static_cast<size_t>(count));
    if (count % format_info(weight.format).block_size != 0)
      fail_load("%s: the tensor %s has %lld values, needed is a multiple of %d", checkpoint_.path().c_str(),
                name.c_str(), static_cast<long long>(count), format_info(weight.format).block_size);
    format_info(weight.format).decode(weight.data, count, values.data());
    done_bytes_ += weight.bytes;
    return values;
  }

  std::unique_ptr<Norm> norm(const std::string& name, int64_t count) {
    if (name.empty()) return nullptr;
    std::vector<float> values = decoded(name + ".weight", count);
    if (model_.spec_.norm_adds_one)
      for (float& v : values) v += 1.0f;
    return vector(values);
  }

  std::unique_ptr<DeviceWeight> matrix(const std::string& name, int64_t rows, int64_t cols,
                                       bool lookup_only) {
    const Weight& weight = take_matrix(name + ".weight", rows, cols);
    auto packed = model_.device_.pack(weight.view(), lookup_only);
    weight.file->release(weight.data, weight.bytes);
    model_.weight_bytes_ += packed->bytes;
    done_bytes_ += weight.bytes;
    report_progress();
    return packed;
  }

  Linear linear(const std::vector<Part>& parts, int64_t cols, bool bias_needed) {
    Linear out;
    bool any_bias = bias_needed;
    for (const Part& part : parts) {
      out.weights.push_back(matrix(part.name, part.rows, cols, false));
      out.pointers.push_back(out.weights.back().get());
      any_bias = any_bias || checkpoint_.find(part.name + ".bias") != nullptr;
    }
    if (!any_bias) return out;
    std::vector<float> bias;
    for (const Part& part : parts) {
      if (!bias_needed && checkpoint_.find(part.name + ".bias") == nullptr) {
        bias.resize(bias.size() + static_cast<size_t>(part.rows), 0.0f);
        continue;
      }
      const std::vector<float> values = decoded(part.name + ".bias", part.rows);
      bias.insert(bias.end(), values.begin(), values.end());
    }
    out.bias = vector(bias);
    return out;
  }

  /// One error that lists every missing tensor, before anything is packed.
  void check_all_present() const {
    const ModelSpec& spec = model_.spec_;
    const WeightNames& n = spec.names;
    std::vector<std::string> missing;
    const auto need = [&](const std::string& name) {
      if (!name.empty() && checkpoint_.find(name + ".weight") == nullptr) missing.push_back(name + ".weight");
    };
    need(n.embedding);
    for (int i = 0; i < static_cast<int>(spec.layers.size()); ++i)
      for (const std::string* name :
           {&n.attn_norm, &n.q, &n.k, &n.v, &n.o, &n.q_norm, &n.k_norm, &n.post_attn_norm, &n.mlp_norm,
            &n.gate, &n.up, &n.down, &n.post_mlp_norm})
        need(layer_name(*name, i));
    need(n.output_norm);
    if (!spec.tied_embeddings) need(n.output);
    if (missing.empty()) return;
    constexpr size_t kShown = 8;
    std::string list;
    for (size_t i = 0; i < std::min(missing.size(), kShown); ++i) list += (i == 0 ? "" : ", ") + missing[i];
    if (missing.size() > kShown) list += format(" and %zu more", missing.size() - kShown);
    fail_load("%s: %zu tensors of the %s model are missing: %s", checkpoint_.path().c_str(), missing.size(),
              spec.architecture.c_str(), list.c_str());
  }

  /// A tensor that no part of the model uses means that the model computed is not the model stored.
  void refuse_unused() const {
    size_t skipped = 0;
    std::string first;
    for (const auto& [name, weight] : checkpoint_.weights()) {
      if (used_.count(name) != 0) continue;
      const bool harmless = name == "rope_freqs.weight" || name.ends_with("rotary_emb.inv_freq") ||
                            (model_.spec_.tied_embeddings && name == model_.spec_.names.output + ".weight");
      if (harmless) continue;
      const bool other_part =
          std::any_of(model_.spec_.ignored_prefixes.begin(), model_.spec_.ignored_prefixes.end(),
                      [&](const std::string& prefix) { return name.starts_with(prefix); });
      if (!other_part)
        fail_load("%s: the tensor %s belongs to no part of the %s architecture", checkpoint_.path().c_str(),
                  name.c_str(), model_.spec_.architecture.c_str());
      if (skipped++ == 0) first = name;
    }
    if (skipped > 0)
      log_info("%zu tensors of parts that are not served are skipped (%s, ...)", skipped, first.c_str());
  }

  void report_progress() {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_report_ < std::chrono::seconds(2)) return;
    last_report_ = now;
    log_info("loading weights: %.0f %%",
             100.0 * static_cast<double>(done_bytes_) / static_cast<double>(total_bytes_));
  }

  const Checkpoint& checkpoint_;
  Model& model_;
  std::set<std::string> used_;
  size_t total_bytes_ = 0;
  size_t done_bytes_ = 0;
  std::chrono::steady_clock::time_point last_report_ = std::chrono::steady_clock::now();
};

Model::Model(ModelSpec spec, Device& device)
    : spec_(std::move(spec)), device_(device), workspace_(std::make_unique<Workspace>()) {}

Model::~Model() = default;

std::unique_ptr<Model> Model::load(const Checkpoint& checkpoint, Device& device) {
  std::unique_ptr<Model> model(new Model(read_model_spec(checkpoint), device));
  Binder(checkpoint, *model).bind();
  return model;
}

std::vector<KvLayerSpec> Model::kv_layers() const {
  return std::vector<KvLayerSpec>(spec_.layers.size(), KvLayerSpec{spec_.kv_heads, spec_.head_dim});
}

size_t Model::workspace_bytes(int rows, int logit_rows) const {
  const auto t = static_cast<size_t>(std::min(rows, kSliceRows));
  const auto r = static_cast<size_t>(logit_rows);
  const auto h = static_cast<size_t>(spec_.hidden);
  const auto q = static_cast<size_t>(spec_.heads) * spec_.head_dim;
  const auto kv = static_cast<size_t>(spec_.kv_heads) * spec_.head_dim;
  const size_t floats =
      t * (2 * h + 2 * q + 2 * kv + 2 * static_cast<size_t>(spec_.intermediate)) + r * (2 * h + spec_.vocab);
  return floats * sizeof(float);
}

size_t Model::workspace_bytes() const { return workspace_->bytes; }

void Model::reserve(int rows, int logit_rows) {
  Workspace& w = *workspace_;
  if (rows <= w.rows && logit_rows <= w.logit_rows) return;
  // Grown by doubling, so that a warm engine allocates nothing.
  int new_rows = std::max(w.rows, 16);
  while (new_rows < rows) new_rows *= 2;
  int new_logits = std::max(w.logit_rows, 1);
  while (new_logits < logit_rows) new_logits *= 2;
  const int64_t q = static_cast<int64_t>(spec_.heads) * spec_.head_dim;
  const int64_t kv = static_cast<int64_t>(spec_.kv_heads) * spec_.head_dim;
  *workspace_ = Workspace{};
  const auto tensor = [&](int64_t count, int64_t cols) {
    w.buffers.push_back(device_.allocate(static_cast<size_t>(count * cols) * sizeof(float)));
    w.bytes += w.buffers.back()->bytes();
    return Tensor{w.buffers.back().get(), 0, count, cols, cols};
  };
  w.x = tensor(new_rows, spec_.hidden);
  w.n = tensor(new_rows, spec_.hidden);
  w.qkv = tensor(new_rows, q + 2 * kv);
  w.attn = tensor(new_rows, q);
  w.gate_up = tensor(new_rows, 2 * static_cast<int64_t>(spec_.intermediate));
  w.last = tensor(new_logits, spec_.hidden);
  w.last_n = tensor(new_logits, spec_.hidden);
  w.logits = tensor(new_logits, spec_.vocab);
  w.rows = new_rows;
  w.logit_rows = new_logits;
}

void Model::forward(const StepBatch& batch, KvCache& cache) {
  const int rows = batch.rows();
  reserve(std::min(rows, kSliceRows), static_cast<int>(batch.logit_rows.size()));
  if (rows <= kSliceRows) {
    forward_rows(batch, cache, 0);
    return;
  }
  int first_logit = 0;
  for (int first = 0; first < rows; first += kSliceRows) {
    const StepBatch part = slice(batch, first, std::min(kSliceRows, rows - first));
    forward_rows(part, cache, first_logit);
    first_logit += static_cast<int>(part.logit_rows.size());
  }
}

void Model::normalise(const Tensor& x, const Norm& norm, bool accumulate, const Tensor& out) {
  device_.rms_norm(x, norm.weight, spec_.norm_eps, accumulate, out);
}

void Model::forward_rows(const StepBatch& batch, KvCache& cache, int first_logit) {
  const int64_t t = batch.rows();
  const int64_t q_cols = static_cast<int64_t>(spec_.heads) * spec_.head_dim;
  const int64_t kv_cols = static_cast<int64_t>(spec_.kv_heads) * spec_.head_dim;
  Workspace& w = *workspace_;
  const Tensor x = w.x.head(t), n = w.n.head(t), qkv = w.qkv.head(t), attn = w.attn.head(t);
  const Tensor gate_up = w.gate_up.head(t);
  const Tensor q = qkv.columns(0, q_cols), k = qkv.columns(q_cols, kv_cols),
               v = qkv.columns(q_cols + kv_cols, kv_cols);
  const Tensor gate = gate_up.columns(0, spec_.intermediate),
               up = gate_up.columns(spec_.intermediate, spec_.intermediate);

  // x += linear(input), with a norm between where the architecture has one.
  const auto add_sublayer = [&](const Linear& linear, const Tensor& input,
                                const std::unique_ptr<Norm>& post_norm) {
    if (post_norm == nullptr) {
      device_.matmul(linear.pointers, input, linear.bias_or_null(), true, x);
    } else {
      device_.matmul(linear.pointers, input, linear.bias_or_null(), false, n);
      normalise(n, *post_norm, true, x);
    }
  };

  device_.begin_step(batch);
  device_.embed(*embedding_, spec_.embedding_scale, x);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    const LayerSpec& kind = spec_.layers[i];
    const RopeSpec& rope = spec_.ropes[static_cast<size_t>(kind.rope)];
    const int index = static_cast<int>(i);

    normalise(x, *layer.attn_norm, false, n);
    device_.matmul(layer.qkv.pointers, n, layer.qkv.bias_or_null(), false, qkv);
    device_.norm_rope(q, spec_.heads, layer.q_norm ? &layer.q_norm->weight : nullptr, spec_.norm_eps, rope);
    device_.norm_rope(k, spec_.kv_heads, layer.k_norm ? &layer.k_norm->weight : nullptr, spec_.norm_eps,
                      rope);
    device_.write_kv(cache, index, k, v);
    AttentionSpec attention;
    attention.heads = spec_.heads;
    attention.kv_heads = spec_.kv_heads;
    attention.head_dim = spec_.head_dim;
    attention.scale = spec_.attention_scale;
    attention.window = kind.window;
    device_.attention(cache, index, q, attention, attn);
    add_sublayer(layer.o, attn, layer.post_attn_norm);

    normalise(x, *layer.mlp_norm, false, n);
    device_.matmul(layer.gate_up.pointers, n, layer.gate_up.bias_or_null(), false, gate_up);
    device_.gated(spec_.activation, gate, up, gate);
    add_sublayer(layer.down, gate, layer.post_mlp_norm);
  }
  if (!batch.logit_rows.empty()) {
    const auto r = static_cast<int64_t>(batch.logit_rows.size());
    const Tensor last = w.last.head(r), last_n = w.last_n.head(r);
    Tensor logits = w.logits.head(r);
    logits.offset = first_logit * w.logits.stride;
    device_.gather_logit_rows(x, last);
    normalise(last, *output_norm_, false, last_n);
    const DeviceWeight* output = output_ ? output_.get() : embedding_.get();
    device_.matmul(std::span(&output, 1), last_n, nullptr, false, logits);
    if (spec_.logit_softcap > 0) device_.softcap(spec_.logit_softcap, logits);
  }
  device_.end_step();
}

std::span<float> Model::logits(int i) {
  Tensor row = workspace_->logits.head(1);
  row.offset = i * row.stride;
  const auto count = static_cast<size_t>(row.cols);
  if (std::byte* host = row.buffer->host()) return {reinterpret_cast<float*>(host) + row.offset, count};
  host_logits_.resize(count);
  device_.read(row, host_logits_.data());
  return host_logits_;
}

}  // namespace vllm

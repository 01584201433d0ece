#include "model/model.h"

#include <algorithm>
#include <bit>

#include "model/architecture.h"
#include "model/binder.h"

namespace vllm {
namespace {

/// Rows of a model without experts that are computed at once; a larger step runs in slices of it, which
/// bounds the activations. A mixture of experts gets all rows of a step, so that it reads each weight once: a
/// row meets only few of them.
constexpr int kSliceRows = 512;

/// Logit rows that memory is taken for when `rows` are needed.
int64_t logit_capacity(int64_t rows) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows)));
}

/// Rows that memory is taken for when `rows` are needed: by doubling, then by slices, so that a warm engine
/// allocates nothing.
int64_t row_capacity(int64_t rows) {
  if (rows > kSliceRows) return (rows + kSliceRows - 1) / kSliceRows * kSliceRows;
  return std::max<int64_t>(16, logit_capacity(rows));
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

struct Model::Layer {
  std::unique_ptr<Vector> mixer_norm, post_mixer_norm, mlp_norm, post_mlp_norm;
  std::unique_ptr<Sublayer> mixer, mlp;
};

struct Model::Workspace {
  int64_t rows = 0, logit_rows = 0;
  std::vector<std::unique_ptr<Buffer>> buffers;
  Tensor x, n, last, last_n, logits;
  Scratch scratch;
  size_t bytes = 0;
};

Model::Model(ModelSpec spec, Device& device)
    : spec_(std::move(spec)), device_(device), workspace_(std::make_unique<Workspace>()) {}

Model::~Model() = default;

std::unique_ptr<Model> Model::open(const Checkpoint& checkpoint, Device& device, int wanted_length) {
  std::unique_ptr<Model> model(new Model(read_model_spec(checkpoint, wanted_length), device));
  Binder dry(checkpoint, device, model->spec_, true);
  model->bind(dry);
  dry.check();
  model->weight_bytes_ = dry.weight_bytes();
  model->file_bytes_ = dry.file_bytes();
  return model;
}

void Model::pack(const Checkpoint& checkpoint) {
  Binder binder(checkpoint, device_, spec_, false, file_bytes_);
  bind(binder);
  weight_bytes_ = binder.weight_bytes();
}

std::unique_ptr<Model> Model::load(const Checkpoint& checkpoint, Device& device, int wanted_length) {
  auto model = open(checkpoint, device, wanted_length);
  model->pack(checkpoint);
  return model;
}

std::span<const ExpertWeights> Model::experts(int layer) const {
  return layers_[static_cast<size_t>(layer)].mlp->experts();
}

void Model::bind(Binder& binder) {
  const WeightNames& n = spec_.names;
  layers_.clear();
  scratch_cols_ = 0;
  int kv_layers = 0, state_layers = 0;
  for (int i = 0; i < static_cast<int>(spec_.layers.size()); ++i) {
    Layer layer;
    layer.mixer_norm = binder.norm(layer_name(n.attn_norm, i), spec_.hidden);
    layer.mixer = spec_.layers[static_cast<size_t>(i)].mixer == Mixer::DeltaNet
                      ? bind_delta_net(binder, spec_, i, state_layers++)
                      : bind_attention(binder, spec_, i, kv_layers++);
    layer.post_mixer_norm = binder.norm(layer_name(n.post_attn_norm, i), spec_.hidden);
    layer.mlp_norm = binder.norm(layer_name(n.mlp_norm, i), spec_.hidden);
    const bool experts = spec_.layers[static_cast<size_t>(i)].experts;
    layer.mlp = experts ? bind_experts(binder, spec_, i) : bind_dense_mlp(binder, spec_, i);
    layer.post_mlp_norm = binder.norm(layer_name(n.post_mlp_norm, i), spec_.hidden);
    scratch_cols_ = std::max({scratch_cols_, layer.mixer->scratch_cols(), layer.mlp->scratch_cols()});
    layers_.push_back(std::move(layer));
  }
  output_norm_ = binder.norm(n.output_norm, spec_.hidden, spec_.logit_scale);
  // The embedding is looked up row by row; it is packed for products only when it is the output matrix too.
  embedding_ = binder.matrix(n.embedding, spec_.vocab, spec_.hidden, !spec_.tied_embeddings);
  if (!spec_.tied_embeddings) output_ = binder.matrix(n.output, spec_.vocab, spec_.hidden, false);
}

std::vector<KvLayerSpec> Model::kv_layers() const {
  std::vector<KvLayerSpec> out;
  for (const LayerSpec& layer : spec_.layers)
    if (layer.mixer == Mixer::Attention) out.push_back({spec_.kv_heads, spec_.head_dim});
  return out;
}

std::vector<DeltaNetSpec> Model::state_layers() const {
  std::vector<DeltaNetSpec> out;
  for (const LayerSpec& layer : spec_.layers)
    if (layer.mixer == Mixer::DeltaNet) out.push_back(spec_.delta_net);
  return out;
}

int Model::rows_at_once(int rows) const {
  return spec_.experts.count > 0 ? rows : std::min(rows, kSliceRows);
}

size_t Model::workspace_bytes(int rows, int logit_rows) const {
  const int64_t held = row_capacity(rows_at_once(rows)), logits = logit_capacity(logit_rows);
  // Of many rows a device's own form of a product's input is no longer small: one more value of each.
  const int64_t copies = held > kSliceRows ? 3 : 2;
  return static_cast<size_t>(held * (copies * spec_.hidden + scratch_cols_) +
                             logits * (2 * spec_.hidden + spec_.vocab)) *
         sizeof(float);
}

size_t Model::workspace_bytes() const { return workspace_->bytes + workspace_->scratch.bytes(); }

void Model::reserve(int rows, int logit_rows) {
  Workspace& w = *workspace_;
  if (rows <= w.rows && logit_rows <= w.logit_rows) return;
  const int64_t new_rows = std::max(w.rows, row_capacity(rows)),
                new_logits = std::max(w.logit_rows, logit_capacity(logit_rows));
  *workspace_ = Workspace{};
  const auto tensor = [&](int64_t count, int64_t cols) {
    w.buffers.push_back(device_.allocate(static_cast<size_t>(count * cols) * sizeof(float)));
    w.bytes += w.buffers.back()->bytes();
    return Tensor{w.buffers.back().get(), 0, count, cols, cols};
  };
  w.x = tensor(new_rows, spec_.hidden);
  w.n = tensor(new_rows, spec_.hidden);
  w.scratch.reserve(device_, new_rows, scratch_cols_);
  w.last = tensor(new_logits, spec_.hidden);
  w.last_n = tensor(new_logits, spec_.hidden);
  w.logits = tensor(new_logits, spec_.vocab);
  w.rows = new_rows;
  w.logit_rows = new_logits;
}

void Model::forward(const StepBatch& batch, KvCache& cache, StateCache* states) {
  const int rows = batch.rows();
  host_logits_valid_ = false;
  logit_rows_ = static_cast<int64_t>(batch.logit_rows.size());
  const int at_once = rows_at_once(rows);
  reserve(at_once, static_cast<int>(batch.logit_rows.size()));
  if (rows == at_once) {
    forward_rows(batch, cache, states, 0);
    return;
  }
  int first_logit = 0;
  for (int first = 0; first < rows; first += kSliceRows) {
    const StepBatch part = slice(batch, first, std::min(kSliceRows, rows - first));
    forward_rows(part, cache, states, first_logit);
    first_logit += static_cast<int>(part.logit_rows.size());
  }
}

void Model::forward_rows(const StepBatch& batch, KvCache& cache, StateCache* states, int first_logit) {
  const int64_t t = batch.rows();
  Workspace& w = *workspace_;
  const Tensor x = w.x.head(t), n = w.n.head(t);
  const StepContext step{device_, spec_, cache, states, w.scratch};
  // The architecture says x += r * sublayer(norm(x)). Kept here is x / r, for which the factor r is gone:
  // norms undo the scale of what they read, all but their epsilon's, which is divided by r twice.
  const float r = spec_.residual_scale, stream_eps = spec_.norm_eps / (r * r);
  // The sublayer reads x itself where no norm comes first, and adds to it where none follows.
  const auto add = [&](const Vector* norm, const Sublayer& sublayer, const Vector* post_norm) {
    w.scratch.reset();
    if (norm != nullptr) device_.rms_norm(x, norm->values, stream_eps, false, n);
    sublayer.run(step, norm != nullptr ? n : x, post_norm == nullptr, post_norm == nullptr ? x : n);
    if (post_norm != nullptr) device_.rms_norm(n, post_norm->values, spec_.norm_eps, true, x);
  };

  device_.begin_step(batch);
  device_.embed(*embedding_, spec_.embedding_scale / r, x);
  for (const Layer& layer : layers_) {
    add(layer.mixer_norm.get(), *layer.mixer, layer.post_mixer_norm.get());
    add(layer.mlp_norm.get(), *layer.mlp, layer.post_mlp_norm.get());
  }
  if (!batch.logit_rows.empty()) {
    const auto count = static_cast<int64_t>(batch.logit_rows.size());
    const Tensor last = w.last.head(count), last_n = w.last_n.head(count);
    Tensor logits = w.logits.head(count);
    logits.offset = first_logit * w.logits.stride;
    device_.gather_logit_rows(x, last);
    device_.rms_norm(last, output_norm_->values, stream_eps, false, last_n);
    const DeviceWeight* output = output_ ? output_.get() : embedding_.get();
    device_.matmul(std::span(&output, 1), last_n, nullptr, false, logits);
    if (spec_.logit_softcap > 0) device_.softcap(spec_.logit_softcap, logits);
  }
  device_.end_step();
}

std::span<float> Model::logits(int i) {
  const Tensor& all = workspace_->logits;
  const auto count = static_cast<size_t>(all.cols), first = static_cast<size_t>(i) * count;
  if (std::byte* host = all.buffer->host()) return {reinterpret_cast<float*>(host) + first, count};
  if (!host_logits_valid_) {
    host_logits_.resize(static_cast<size_t>(logit_rows_) * count);
    device_.read(all.head(logit_rows_), host_logits_.data());
    host_logits_valid_ = true;
  }
  return {host_logits_.data() + first, count};
}

bool Model::logits_on_host() const { return workspace_->logits.buffer->host() != nullptr; }

std::span<const RankedValue> Model::largest_logits(int count, int vocab) {
  largest_.resize(static_cast<size_t>(logit_rows_) * static_cast<size_t>(count));
  device_.read_largest(workspace_->logits.head(logit_rows_).columns(0, vocab), count, largest_.data());
  return largest_;
}

}  // namespace vllm

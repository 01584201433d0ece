#include "device/checks.h"

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace vllm::checks {
namespace {

long long number(int64_t value) { return static_cast<long long>(value); }

void layer_of(const char* operation, const KvCache& cache, int layer) {
  if (layer < 0 || layer >= static_cast<int>(cache.spec.layers.size()))
    fail_runtime("%s: the KV cache has %zu layers, not a layer %d.", operation, cache.spec.layers.size(),
                 layer);
}

/// The sizes of a layer, after a look at the slots that the batch names.
const DeltaNetSpec& state_layer(const char* operation, const StepBatch& batch, const StateCache& cache,
                                int layer) {
  if (layer < 0 || layer >= static_cast<int>(cache.spec.layers.size()))
    fail_runtime("%s: the state cache has %zu layers, not a layer %d.", operation, cache.spec.layers.size(),
                 layer);
  thread_local std::vector<bool> taken;  // kept, so that a warm step allocates nothing
  taken.assign(static_cast<size_t>(cache.spec.slots), false);
  for (int s = 0; s < batch.sequences(); ++s) {
    const int32_t slot = batch.state_slots[s];
    if (slot < 0 || slot >= cache.spec.slots)
      fail_runtime("%s: sequence %d has the state slot %d of %d.", operation, s, slot, cache.spec.slots);
    if (taken[static_cast<size_t>(slot)])
      fail_runtime("%s: two sequences share the state slot %d.", operation, slot);
    taken[static_cast<size_t>(slot)] = true;
  }
  return cache.spec.layers[layer];
}

}  // namespace

void batch(const StepBatch& batch) {
  const int rows = batch.rows(), sequences = batch.sequences();
  if (batch.positions.size() != batch.token_ids.size() || rows == 0 || sequences == 0)
    fail_runtime("batch: %d token ids, %zu positions and %d sequences do not make a step.", rows,
                 batch.positions.size(), sequences);
  if (batch.seq_start.front() != 0 || batch.seq_start.back() != rows)
    fail_runtime("batch: the sequences cover rows %d to %d of %d.", batch.seq_start.front(),
                 batch.seq_start.back(), rows);
  if (batch.state_slots.size() != static_cast<size_t>(sequences))
    fail_runtime("batch: there are %zu state slots for %d sequences.", batch.state_slots.size(), sequences);
  if (batch.max_blocks < 0 ||
      batch.block_table.size() != static_cast<size_t>(sequences) * static_cast<size_t>(batch.max_blocks))
    fail_runtime("batch: the block table has %zu entries; %d sequences of %d blocks need others.",
                 batch.block_table.size(), sequences, batch.max_blocks);
  for (int s = 0; s < sequences; ++s) {
    if (batch.seq_start[s] >= batch.seq_start[s + 1] || batch.positions[batch.seq_start[s]] < 0)
      fail_runtime("batch: sequence %d has no rows or a negative position.", s);
    for (int t = batch.seq_start[s] + 1; t < batch.seq_start[s + 1]; ++t)
      if (batch.positions[t] != batch.positions[t - 1] + 1)
        fail_runtime("batch: row %d of sequence %d is at position %d after %d.", t, s, batch.positions[t],
                     batch.positions[t - 1]);
  }
  for (int32_t row : batch.logit_rows)
    if (row < 0 || row >= rows) fail_runtime("batch: logits are wanted of row %d of %d.", row, rows);
}

void kv_cache(const KvCacheSpec& spec) {
  if (spec.block_size <= 0 || spec.block_size % 16 != 0)
    fail_load("The KV block size is %d; it must be a positive multiple of 16.", spec.block_size);
  if (spec.num_blocks <= 0) fail_load("The KV cache has %d blocks; it needs at least one.", spec.num_blocks);
  for (const KvLayerSpec& layer : spec.layers)
    if (layer.kv_heads <= 0 || layer.head_dim <= 0)
      fail_load("A KV cache layer has %d heads of %d values; both must be positive.", layer.kv_heads,
                layer.head_dim);
}

void state_cache(const StateCacheSpec& spec) {
  if (spec.slots <= 0) fail_load("The state cache has %d slots; it needs at least one.", spec.slots);
  for (const DeltaNetSpec& l : spec.layers) {
    if (l.key_heads <= 0 || l.value_heads <= 0 || l.key_dim <= 0 || l.value_dim <= 0 ||
        l.value_heads % l.key_heads != 0)
      fail_load("A DeltaNet layer has %d value heads of %d over %d key heads of %d; they do not fit.",
                l.value_heads, l.value_dim, l.key_heads, l.key_dim);
    if (l.conv_kernel < 1 || l.conv_kernel > DeltaNetSpec::kMaxConvKernel)
      fail_load("The convolution of a DeltaNet layer has %d taps; needed are 1 to %d.", l.conv_kernel,
                DeltaNetSpec::kMaxConvKernel);
  }
}

void weight(const WeightView& view) {
  if (view.rows <= 0 || view.cols <= 0 || !view.data == !view.source)
    fail_load("A weight of %lld x %lld values is empty.", number(view.rows), number(view.cols));
  if (view.scale && view.scale->size() != 1 && static_cast<int64_t>(view.scale->size()) != view.rows)
    fail_load("A weight of %lld rows has %zu scales, needed are 1 or one a row.", number(view.rows),
              view.scale->size());
  if (view.order && static_cast<int64_t>(view.order->size()) != view.cols)
    fail_load("A weight of %lld columns has an order of %zu.", number(view.cols), view.order->size());
  const FormatInfo& info = format_info(view.format);
  if (view.cols % info.block_size != 0)
    fail_load("A weight has %lld columns; the format %s needs a multiple of %d.", number(view.cols),
              info.name, info.block_size);
}

void fp8_codes(const WeightView& view, int64_t first, int64_t count, const uint8_t* codes) {
  const uint8_t* const end = codes + count * view.cols;
  const uint8_t* const bad = std::find_if(codes, end, [](uint8_t code) { return (code & 0x7f) == 0x7f; });
  if (bad == end) return;
  fail_load("The %s weight %s holds NaN at row %lld, column %lld.", format_info(view.format).name,
            quote(view.name).c_str(), number(first + (bad - codes) / view.cols),
            number((bad - codes) % view.cols));
}

void tensor(const char* operation, const char* name, const Tensor& tensor, int64_t rows, int64_t cols) {
  if (tensor.rows != rows || tensor.cols != cols)
    fail_runtime("%s: %s is %lld x %lld; it must be %lld x %lld.", operation, name, number(tensor.rows),
                 number(tensor.cols), number(rows), number(cols));
  if (rows == 0) return;
  const int64_t end = tensor.offset + (rows - 1) * tensor.stride + cols;
  if (!tensor.buffer || tensor.offset < 0 || (rows > 1 && tensor.stride < cols) ||
      end > static_cast<int64_t>(tensor.buffer->bytes() / sizeof(float)))
    fail_runtime("%s: %s (%lld x %lld, stride %lld, offset %lld) does not lie inside its buffer.", operation,
                 name, number(rows), number(cols), number(tensor.stride), number(tensor.offset));
}

void read_largest(const Tensor& src, int count) {
  tensor("read_largest", "src", src, src.rows, src.cols);
  if (count < 1 || count > src.cols)
    fail_runtime("read_largest: %d values of a row were asked for, needed are 1 to %lld.", count,
                 number(src.cols));
}

void embed(const StepBatch& batch, const DeviceWeight& table, const Tensor& out) {
  tensor("embed", "out", out, batch.rows(), table.cols);
  for (int32_t id : batch.token_ids)
    if (id < 0 || id >= table.rows)
      fail_runtime("embed: token %d is outside the table of %lld.", id, number(table.rows));
}

void rms_norm(const Tensor& x, const Tensor& weight, const Tensor& out) {
  tensor("rms_norm", "x", x, x.rows, x.cols);
  tensor("rms_norm", "weight", weight, 1, x.cols);
  tensor("rms_norm", "out", out, x.rows, x.cols);
}

void matmul(std::span<const DeviceWeight* const> weights, const Tensor& x, const Tensor* bias,
            const Tensor& out) {
  int64_t outputs = 0;
  for (const DeviceWeight* weight : weights) {
    if (weight->cols != x.cols)
      fail_runtime("matmul: a weight has %lld inputs, x has %lld.", number(weight->cols), number(x.cols));
    outputs += weight->rows;
  }
  tensor("matmul", "x", x, x.rows, x.cols);
  if (bias) tensor("matmul", "bias", *bias, 1, outputs);
  tensor("matmul", "out", out, x.rows, outputs);
}

void norm_rope(const StepBatch& batch, const Tensor& x, int heads, const Tensor* norm, const RopeSpec& rope) {
  if (heads <= 0 || x.cols % heads != 0)
    fail_runtime("norm_rope: %lld columns do not divide into %d heads.", number(x.cols), heads);
  const int64_t head_dim = x.cols / heads;
  tensor("norm_rope", "x", x, batch.rows(), x.cols);
  if (norm) tensor("norm_rope", "norm", *norm, 1, head_dim);
  if (static_cast<int64_t>(2 * rope.inv_freq.size()) > head_dim)
    fail_runtime("norm_rope: %zu frequencies are more than half of a head of %lld.", rope.inv_freq.size(),
                 number(head_dim));
}

void write_kv(const StepBatch& batch, const KvCache& cache, int layer, const Tensor& k, const Tensor& v) {
  layer_of("write_kv", cache, layer);
  const KvLayerSpec& spec = cache.spec.layers[layer];
  tensor("write_kv", "k", k, batch.rows(), static_cast<int64_t>(spec.kv_heads) * spec.head_dim);
  tensor("write_kv", "v", v, batch.rows(), static_cast<int64_t>(spec.kv_heads) * spec.head_dim);
  for (int s = 0; s < batch.sequences(); ++s) {
    const int first = batch.positions[batch.seq_start[s]] / cache.spec.block_size;
    const int last = (batch.context_len(s) - 1) / cache.spec.block_size;
    for (int b = first; b <= last; ++b)
      if (b >= batch.max_blocks || batch.blocks_of(s)[b] < 0 ||
          batch.blocks_of(s)[b] >= cache.spec.num_blocks)
        fail_runtime("write_kv: sequence %d has no valid block %d of %d.", s, b, batch.max_blocks);
  }
}

void copy_kv(const KvCache& cache, int from, int to, int tokens) {
  const KvCacheSpec& spec = cache.spec;
  if (from < 0 || from >= spec.num_blocks || to < 0 || to >= spec.num_blocks)
    fail_runtime("copy_kv: the blocks are %d and %d of %d.", from, to, spec.num_blocks);
  if (tokens < 0 || tokens > spec.block_size)
    fail_runtime("copy_kv: %d tokens of a block of %d.", tokens, spec.block_size);
}

void attention(const StepBatch& batch, const KvCache& cache, int layer, const Tensor& q,
               const AttentionSpec& spec, const Tensor& out) {
  layer_of("attention", cache, layer);
  const KvLayerSpec& kv = cache.spec.layers[layer];
  if (spec.kv_heads != kv.kv_heads || spec.head_dim != kv.head_dim || spec.heads <= 0 ||
      spec.heads % kv.kv_heads != 0)
    fail_runtime("attention: %d heads over %d kv heads of %d do not fit a cache of %d heads of %d.",
                 spec.heads, spec.kv_heads, spec.head_dim, kv.kv_heads, kv.head_dim);
  const int64_t cols = static_cast<int64_t>(spec.heads) * spec.head_dim;
  tensor("attention", "q", q, batch.rows(), cols);
  tensor("attention", "out", out, batch.rows(), cols);
  for (int s = 0; s < batch.sequences(); ++s) {
    const int position = batch.positions[batch.seq_start[s]];
    const int oldest = spec.window > 0 && position >= spec.window ? position - spec.window + 1 : 0;
    for (int b = oldest / cache.spec.block_size; b * cache.spec.block_size < batch.context_len(s); ++b)
      if (b >= batch.max_blocks || batch.blocks_of(s)[b] < 0 ||
          batch.blocks_of(s)[b] >= cache.spec.num_blocks)
        fail_runtime("attention: sequence %d has no valid block %d of %d.", s, b, batch.max_blocks);
  }
}

void copy_state(const StateCache& cache, int from, int to) {
  if (from < 0 || from >= cache.spec.slots || to < 0 || to >= cache.spec.slots)
    fail_runtime("copy_state: the slots are %d and %d of %d.", from, to, cache.spec.slots);
}

void causal_conv(const StepBatch& batch, const StateCache& cache, int layer, const Tensor& weight,
                 const Tensor& x) {
  const DeltaNetSpec& spec = state_layer("causal_conv", batch, cache, layer);
  tensor("causal_conv", "weight", weight, spec.conv_kernel, spec.conv_cols());
  tensor("causal_conv", "x", x, batch.rows(), spec.conv_cols());
}

void delta_rule(const StepBatch& batch, const StateCache& cache, int layer, const Tensor& qkv,
                const Tensor& a, const Tensor& b, const Tensor& decay, const Tensor& dt_bias,
                const Tensor& out) {
  const DeltaNetSpec& spec = state_layer("delta_rule", batch, cache, layer);
  tensor("delta_rule", "qkv", qkv, batch.rows(), spec.conv_cols());
  tensor("delta_rule", "a", a, batch.rows(), spec.value_heads);
  tensor("delta_rule", "b", b, batch.rows(), spec.value_heads);
  tensor("delta_rule", "decay", decay, 1, spec.value_heads);
  tensor("delta_rule", "dt_bias", dt_bias, 1, spec.value_heads);
  tensor("delta_rule", "out", out, batch.rows(), spec.value_cols());
}

void gated(const Tensor& gate, const Tensor& up, const Tensor& out) {
  tensor("gated", "gate", gate, gate.rows, gate.cols);
  tensor("gated", "up", up, gate.rows, gate.cols);
  tensor("gated", "out", out, gate.rows, gate.cols);
}

void experts(const RouterSpec& router, std::span<const ExpertWeights> experts, const Tensor& x,
             const Tensor& logits, const Tensor& out) {
  if (router.experts_per_row <= 0 || router.experts_per_row > static_cast<int64_t>(experts.size()))
    fail_runtime("experts: a row cannot choose %d of %zu experts.", router.experts_per_row, experts.size());
  const int64_t inner = experts[0].gate->rows;
  for (const ExpertWeights& e : experts)
    if (e.gate->cols != x.cols || e.up->cols != x.cols || e.down->rows != x.cols || e.gate->rows != inner ||
        e.up->rows != inner || e.down->cols != inner)
      fail_runtime("experts: weights of %lld x %lld, %lld x %lld and %lld x %lld do not make an MLP of %lld.",
                   number(e.gate->rows), number(e.gate->cols), number(e.up->rows), number(e.up->cols),
                   number(e.down->rows), number(e.down->cols), number(x.cols));
  tensor("experts", "x", x, x.rows, x.cols);
  tensor("experts", "logits", logits, x.rows, static_cast<int64_t>(experts.size()));
  tensor("experts", "out", out, x.rows, x.cols);
}

void add_gated_rows(const Tensor& x, const Tensor& gate, const Tensor& out) {
  tensor("add_gated_rows", "x", x, x.rows, x.cols);
  tensor("add_gated_rows", "gate", gate, x.rows, 1);
  tensor("add_gated_rows", "out", out, x.rows, x.cols);
}

void gather_logit_rows(const StepBatch& batch, const Tensor& x, const Tensor& out) {
  tensor("gather_logit_rows", "x", x, batch.rows(), x.cols);
  tensor("gather_logit_rows", "out", out, static_cast<int64_t>(batch.logit_rows.size()), x.cols);
}

}  // namespace vllm::checks

// The Device: memory, packed weights, the paged KV cache and about a dozen transformer-level operations. All
// arithmetic of a model goes through it. device/reference/ is the plain scalar form and the oracle of every
// other device.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/formats.h"
#include "device/largest.h"
#include "device/step_batch.h"

namespace vllm {

class MappedFile;

/// Device memory, zeroed at allocation. host() is its address where the host can read and write it, else
/// null.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual std::byte* host() = 0;
  virtual size_t bytes() const = 0;
};

/// A view of rows x cols f32 values in device memory; neighbouring rows are `stride` elements apart, columns
/// are dense.
struct Tensor {
  Buffer* buffer = nullptr;
  int64_t offset = 0;  // elements from the start of the buffer
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  Tensor columns(int64_t first, int64_t count) const { return {buffer, offset + first, rows, count, stride}; }
  Tensor head(int64_t count) const { return {buffer, offset, count, cols, stride}; }
  Tensor row_range(int64_t first, int64_t count) const {
    return {buffer, offset + first * stride, count, cols, stride};
  }
};

/// The rows of a weight whose parts (codes, scales, zero points) lie apart in its file.
class RowSource {
 public:
  virtual ~RowSource() = default;
  /// Writes rows [first, first + count), dense, in the layout of the view's format. Threads may call it at
  /// once. Throws Error(ModelLoad) naming the tensor when its values make no weight.
  virtual void read(int64_t first, int64_t count, uint8_t* out) const = 0;
  /// The rows have been copied: pages that only they need may leave memory, and with all rows at once those
  /// of every part.
  virtual void release(int64_t first, int64_t count) const = 0;
};

/// A weight matrix as its file stores it: `rows` outputs of `cols` inputs each, row-major, any alignment.
/// `keep_alive` owns the bytes (a file mapping); a device may keep it and read rows in place.
struct WeightView {
  Format format = Format::F32;
  int64_t rows = 0;
  int64_t cols = 0;
  const uint8_t* data = nullptr;
  std::shared_ptr<const void> keep_alive;
  const MappedFile* file = nullptr;  // that the bytes are in, if any: pages that were copied are released
  std::shared_ptr<const RowSource> source{};          // gives the rows where `data` is null
  std::shared_ptr<const std::vector<float>> scale{};  // factor of the whole weight [1] or of each row [rows]
  std::shared_ptr<const std::vector<int32_t>> order{};  // the input of each column; null: their own
  std::string name{};                                   // for messages; may be empty

  /// Row `index` as values, [cols], in the order of the inputs and times its scale.
  void decode_row(int64_t index, float* out) const;
};

/// A weight matrix in a device's own layout.
class DeviceWeight {
 public:
  virtual ~DeviceWeight() = default;
  Format format = Format::F32;
  int64_t rows = 0;  // outputs
  int64_t cols = 0;  // inputs
  size_t bytes = 0;  // device memory it holds
};

/// Rotary frequencies: pair i turns by position * inv_freq[i]; cos and sin are multiplied by `magnitude`
/// (yarn, longrope).
struct RopeSpec {
  std::vector<float> inv_freq;  // [rotary_dim / 2]
  bool interleaved = false;     // pairs (2i, 2i+1) instead of (i, i + rotary_dim / 2)
  float magnitude = 1.0f;
};

/// Q8_0: int8 with a scale for each 32 values of a head, the last ones padded.
enum class KvFormat : uint8_t { BF16, F32, Q8_0 };

struct KvLayerSpec {
  int kv_heads = 0;
  int head_dim = 0;
};

struct KvCacheSpec {
  std::vector<KvLayerSpec> layers;
  int block_size = 32;  // tokens of one block, a multiple of 16
  int num_blocks = 0;
  KvFormat format = KvFormat::BF16;

  /// Bytes of one block over all layers, keys and values. Heads are padded to 16 values, of Q8_0 to 32, as
  /// devices keep them; none takes more.
  size_t block_bytes() const;
  /// Of the keys of one block in the layer where they take most; the values take as many.
  size_t largest_part_bytes() const;
};

/// Keys and values of all layers, addressed by (layer, block id, slot in block).
class KvCache {
 public:
  virtual ~KvCache() = default;
  KvCacheSpec spec;
  size_t bytes = 0;
};

/// Sizes of a gated DeltaNet layer.
struct DeltaNetSpec {
  int key_heads = 0;
  int value_heads = 0;  // a multiple of key_heads
  int key_dim = 0;      // of one head
  int value_dim = 0;    // of one head
  int conv_kernel = 0;  // taps of the causal convolution, at most kMaxConvKernel
  bool tiled = false;   // value head h reads key head h % key_heads, else h / (value_heads / key_heads)

  static constexpr int kMaxConvKernel = 16;
  int64_t key_cols() const { return static_cast<int64_t>(key_heads) * key_dim; }
  int64_t value_cols() const { return static_cast<int64_t>(value_heads) * value_dim; }
  int64_t conv_cols() const { return 2 * key_cols() + value_cols(); }  // [q | k | v]
  int key_head(int value_head) const {
    return tiled ? value_head % key_heads : value_head / (value_heads / key_heads);
  }
};

struct StateCacheSpec {
  std::vector<DeltaNetSpec> layers;
  int slots = 0;

  /// Bytes of one slot over all layers.
  size_t slot_bytes() const;
  /// Of the inputs or the matrices of one slot in the layer where they take most.
  size_t largest_part_bytes() const;
};

/// Recurrent state of all DeltaNet layers, addressed by (layer, slot): the last conv_kernel - 1 inputs of the
/// convolution, and for each value head the matrix S [value_dim, key_dim], all in f32.
class StateCache {
 public:
  virtual ~StateCache() = default;
  StateCacheSpec spec;
  size_t bytes = 0;
};

struct AttentionSpec {
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  float scale = 1.0f;    // of the scores
  int window = 0;        // key j is visible to query i iff 0 <= i - j < window; 0: all earlier keys
  float softcap = 0.0f;  // scores become c * tanh(score / c); 0: off
};

enum class Activation : uint8_t { Silu, GeluTanh, Sigmoid };

/// How a row of a mixture of experts chooses among E experts: p = softmax of its E logits in f32, all 0 for a
/// row with a NaN, +infinity or nothing but -infinity. It takes the `experts_per_row` experts of the largest
/// p, of equal ones those of lower index, with the weights scale * p.
struct RouterSpec {
  int experts_per_row = 0;
  bool renormalise = false;  // the chosen p are divided by their sum, unless that is 0
  float scale = 1.0f;
};

/// The MLP of one expert, down(act(gate(x)) * up(x)).
struct ExpertWeights {
  const DeviceWeight* gate = nullptr;
  const DeviceWeight* up = nullptr;
  const DeviceWeight* down = nullptr;
  bool operator==(const ExpertWeights&) const = default;
};

/// Operations run in the order of the calls, between begin_step and end_step, on the rows of the batch given
/// to begin_step, which must live until end_step. Results may be read after end_step. A row's result does not
/// depend on the other rows of the batch, on how a sequence is cut into steps, nor on the number of threads.
/// One thread uses a device at a time.
class Device {
 public:
  virtual ~Device() = default;

  virtual std::string description() const = 0;   // "cpu (avx512bf16, 2 threads)"
  virtual bool is_cpu() const { return false; }  // the fast CPU device, which others are held against
  virtual size_t available_memory() const = 0;   // bytes that could be allocated now
  /// Bytes that one buffer can have, however much memory is free. The keys of a layer are in one, so are its
  /// values, the inputs of its convolution, its matrices of state and each matrix of an expert.
  virtual size_t largest_buffer() const { return std::numeric_limits<size_t>::max(); }
  /// Throws Error(ModelLoad) with what was needed and what is there when memory is short.
  virtual std::unique_ptr<Buffer> allocate(size_t bytes) = 0;
  virtual void write(const Tensor& dst, const float* src) = 0;  // src is dense rows x cols
  virtual void read(const Tensor& src, float* dst) = 0;
  /// The `count` values of each row that come first in the order of RankedValue, 1 <= count <= src.cols. dst:
  /// [rows][count].
  virtual void read_largest(const Tensor& src, int count, RankedValue* dst) = 0;

  /// Throws Error(ModelLoad) naming format and device when the device cannot compute with the format.
  /// `lookup_only`: used with embed() only, so a copy for matmul may be left out.
  virtual std::unique_ptr<DeviceWeight> pack(const WeightView& weight, bool lookup_only) = 0;
  /// What pack() would give as DeviceWeight::bytes, from format and shape alone; as in the file unless a
  /// device knows better.
  virtual size_t packed_bytes(const WeightView& weight, bool lookup_only) const;
  virtual std::unique_ptr<KvCache> make_kv_cache(const KvCacheSpec& spec) = 0;
  /// Copies keys and values of the first `tokens` tokens of block `from`, in all layers, to block `to`, whose
  /// others hold nothing after it. Not between begin_step and end_step.
  virtual void copy_kv(KvCache& cache, int from, int to, int tokens) = 0;
  virtual std::unique_ptr<StateCache> make_state_cache(const StateCacheSpec& spec) = 0;
  /// Copies all layers of slot `from` to slot `to`. Not between begin_step and end_step.
  virtual void copy_state(StateCache& cache, int from, int to) = 0;

  virtual void begin_step(const StepBatch& batch) = 0;
  virtual void end_step() = 0;

  /// out[t] = scale * table[token_ids[t]]. out: [T, cols of table].
  virtual void embed(const DeviceWeight& table, float scale, const Tensor& out) = 0;
  /// out = x * rsqrt(mean(x^2) + eps) * weight per row, weight: [1, cols]; with `accumulate` it is added to
  /// out.
  virtual void rms_norm(const Tensor& x, const Tensor& weight, float eps, bool accumulate,
                        const Tensor& out) = 0;
  /// out = x W^T + bias, for W the weights stacked by rows: out: [rows of x, sum of weight rows], x: [., cols
  /// of all weights]. bias: [1, cols of out] or null. With `accumulate` the result is added to out.
  virtual void matmul(std::span<const DeviceWeight* const> weights, const Tensor& x, const Tensor* bias,
                      bool accumulate, const Tensor& out) = 0;
  /// In place, for each of `heads` dense slices of x's columns: rms-norm with `norm` [1, head_dim] if not
  /// null, then rotation of the first 2 * inv_freq.size() values by the row's position. x: [T, heads *
  /// head_dim].
  virtual void norm_rope(const Tensor& x, int heads, const Tensor* norm, float eps, const RopeSpec& rope) = 0;
  /// Stores k and v: [T, kv_heads * head_dim] at the rows' positions in their sequences' blocks.
  virtual void write_kv(KvCache& cache, int layer, const Tensor& k, const Tensor& v) = 0;
  /// Causal attention of q: [T, heads * head_dim] over the cache. Query head h reads kv head h / (heads /
  /// kv_heads).
  virtual void attention(const KvCache& cache, int layer, const Tensor& q, const AttentionSpec& spec,
                         const Tensor& out) = 0;
  /// In place on x: [T, conv_cols]: x[t] = silu(sum_j weight[j] * x[t - K + 1 + j]), j < K = conv_kernel,
  /// channel by channel; weight: [K, conv_cols]. What came before the rows of a sequence is in the slot of
  /// its state, which then gets the last K - 1 inputs; before position 0 all is zero.
  virtual void causal_conv(StateCache& cache, int layer, const Tensor& weight, const Tensor& x) = 0;
  /// The gated delta rule. qkv: [T, conv_cols] after causal_conv; a, b: [T, value_heads]; decay, dt_bias: [1,
  /// value_heads]; out: [T, value_cols]. For each value head, with the S of the sequence's slot (zero before
  /// position 0), q and k of its key head scaled to length 1 (1e-6 added to the squared length) and q by
  /// key_dim^-1/2 more:
  ///   S *= exp(decay * softplus(a + dt_bias)),  u = sigmoid(b) (v - S k),  S += u k^T,  out = S q.
  /// qkv, a and b are overwritten.
  virtual void delta_rule(StateCache& cache, int layer, const Tensor& qkv, const Tensor& a, const Tensor& b,
                          const Tensor& decay, const Tensor& dt_bias, const Tensor& out) = 0;
  /// out = act(gate) * up, elementwise.
  virtual void gated(Activation act, const Tensor& gate, const Tensor& up, const Tensor& out) = 0;
  /// out[t] (+)= sum over the experts e that x[t] chooses, in rising e, of weight * MLP_e(x[t]). logits: [T,
  /// number of experts]. x and out: [T, hidden], the same tensor or disjoint.
  virtual void experts(const RouterSpec& router, std::span<const ExpertWeights> experts, Activation act,
                       const Tensor& x, const Tensor& logits, bool accumulate, const Tensor& out) = 0;
  /// out[t] += sigmoid(gate[t]) * x[t]. gate: [T, 1].
  virtual void add_gated_rows(const Tensor& x, const Tensor& gate, const Tensor& out) = 0;
  /// out[i] = x[logit_rows[i]].
  virtual void gather_logit_rows(const Tensor& x, const Tensor& out) = 0;
  /// x = cap * tanh(x / cap), elementwise.
  virtual void softcap(float cap, const Tensor& x) = 0;
};

/// The plain scalar device.
std::unique_ptr<Device> make_reference_device();
/// threads <= 0: one a physical core. The instruction set is the best one of the machine; `isa` (a name of
/// cpu/isa.h; empty: the environment's VLLM_CPU_ISA, else the best) forces another, and an unknown or
/// unavailable name throws Error(InvalidArgument).
std::unique_ptr<Device> make_cpu_device(int threads, std::string_view isa = {});
/// The device of a name: "cpu", "vulkan", "vulkan:N" (N counts the Vulkan devices from 0, GPUs with memory of
/// their own first, CPU drivers last), or "auto": the first GPU if it opens, else the CPU. `threads` is for
/// the CPU. Throws Error(ModelLoad) naming what there is when the device is not there or not in this build.
std::unique_ptr<Device> make_device(std::string_view name, int threads);
/// `name`: "vulkan" or "vulkan:N". `features` of Vulkan (vulkan/gpu.h) force which kernels are used: names
/// that the device has, with commas between, or "none"; empty: the environment's VLLM_VULKAN_FEATURES, else
/// those that make it fast. Throws Error(InvalidArgument) for others, Error(ModelLoad) as make_device() does.
std::unique_ptr<Device> make_vulkan_device(std::string_view name, std::string_view features = {});
/// All features of the device `name` that kernels may use, with commas between; empty where there are none.
/// Throws Error(ModelLoad) as make_device() does.
std::string vulkan_features(std::string_view name);
/// The GPUs and CPU drivers that Vulkan offers, one line each, in the order of "vulkan:N"; empty where there
/// is no Vulkan.
std::vector<std::string> vulkan_devices();

}  // namespace vllm

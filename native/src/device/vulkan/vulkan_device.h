// A GPU through Vulkan. Operations are recorded and run when a result is read, a step ends or many have
// gathered; one file a group of operations, named as in device/reference/.
#pragma once
#include <initializer_list>
#include <map>
#include <set>

#include "device/device.h"
#include "device/vulkan/pipelines.h"
#include "device/vulkan/recorder.h"

namespace vllm::vulkan {

namespace parameters {
using Floats = uint64_t;
using Words = uint64_t;
using Ints = uint64_t;
using Quads = uint64_t;
using uint = uint32_t;
#include "device/vulkan/shaders/parameters.h"
}  // namespace parameters

class VulkanBuffer;

class VulkanDevice final : public Device {
 public:
  /// `name`: "vulkan" or "vulkan:N"; `features` as in choose_features(). A weight of more than
  /// `most_part_bytes` lies in several buffers; 0: than the device can hold in one.
  explicit VulkanDevice(std::string_view name, std::string_view features = {}, size_t most_part_bytes = 0);
  ~VulkanDevice() override;

  std::string description() const override;
  size_t available_memory() const override { return context_.free_memory(); }
  size_t largest_buffer() const override;
  std::unique_ptr<Buffer> allocate(size_t bytes) override;
  void write(const Tensor& dst, const float* src) override;
  void read(const Tensor& src, float* dst) override;
  void read_largest(const Tensor& src, int count, RankedValue* dst) override;
  std::unique_ptr<DeviceWeight> pack(const WeightView& weight, bool lookup_only) override;
  size_t packed_bytes(const WeightView& weight, bool lookup_only) const override;
  std::unique_ptr<KvCache> make_kv_cache(const KvCacheSpec& spec) override;
  std::unique_ptr<StateCache> make_state_cache(const StateCacheSpec& spec) override;
  void copy_state(StateCache& cache, int from, int to) override;
  void begin_step(const StepBatch& batch) override;
  void end_step() override;

  void embed(const DeviceWeight& table, float scale, const Tensor& out) override;
  void rms_norm(const Tensor& x, const Tensor& weight, float eps, bool accumulate,
                const Tensor& out) override;
  void matmul(std::span<const DeviceWeight* const> weights, const Tensor& x, const Tensor* bias,
              bool accumulate, const Tensor& out) override;
  void norm_rope(const Tensor& x, int heads, const Tensor* norm, float eps, const RopeSpec& rope) override;
  void copy_kv(KvCache& cache, int from, int to, int tokens) override;
  void write_kv(KvCache& cache, int layer, const Tensor& k, const Tensor& v) override;
  void attention(const KvCache& cache, int layer, const Tensor& q, const AttentionSpec& spec,
                 const Tensor& out) override;
  void causal_conv(StateCache& cache, int layer, const Tensor& weight, const Tensor& x) override;
  void delta_rule(StateCache& cache, int layer, const Tensor& qkv, const Tensor& a, const Tensor& b,
                  const Tensor& decay, const Tensor& dt_bias, const Tensor& out) override;
  void gated(Activation act, const Tensor& gate, const Tensor& up, const Tensor& out) override;
  void experts(const RouterSpec& router, std::span<const ExpertWeights> experts, Activation act,
               const Tensor& x, const Tensor& logits, bool accumulate, const Tensor& out) override;
  void add_gated_rows(const Tensor& x, const Tensor& gate, const Tensor& out) override;
  void gather_logit_rows(const Tensor& x, const Tensor& out) override;
  void softcap(float cap, const Tensor& x) override;

  /// Device memory, zeroed. The range goes back with give_back(), which waits for what still uses it.
  Range take(size_t bytes);
  void give_back(const Range& range) noexcept;
  /// To be called before a weight goes, which a table may name.
  void forget_expert_tables() noexcept;
  const Gpu& gpu() const { return context_.gpu(); }

 private:
  /// Addresses of the parts of a batch, for shaders.
  struct StepInputs {
    uint64_t token_ids, positions, sequences, seq_start, block_table, state_slots, logit_rows;
  };
  struct RopeTable {
    std::vector<float> inv_freq;
    float magnitude;
    uint64_t address;
  };
  /// Where the matrices of a layer's experts lie, for shaders: those of gate, of up and of down.
  struct ExpertTable {
    struct Matrices {
      std::set<Format> formats;
      bool codes;  // the *_dot kernels take all of them
    };
    std::vector<ExpertWeights> experts;
    Range memory;
    Matrices matrices[3];
  };

  static uint64_t address(const Tensor& tensor);
  static Use reads(const Tensor& tensor);
  static Use writes(const Tensor& tensor);
  /// Whether all rows start at multiples of 16 bytes.
  static bool is_aligned(const Use& use) { return use.address % 16 == 0 && use.stride % 16 == 0; }
  /// Records SHADER with workgroups of `constants[0]` invocations. `uses` names all tensors, caches and
  /// scratch it touches; weights and what came with the step need not be named.
  template <class Parameters>
  void run(Shader shader, std::initializer_list<uint32_t> constants, const Parameters& p,
           const Groups& groups, std::initializer_list<Use> uses) {
    static_assert(sizeof p <= Pipelines::kMaxParameterBytes);
    recorder_.dispatch(pipelines_.get(shader, {constants.begin(), constants.size()}), pipelines_.layout(), &p,
                       sizeof p, groups, {uses.begin(), uses.size()});
  }
  /// Host memory that shaders read until the step after the next begins.
  Range for_step(size_t bytes) { return arenas_[step_].take(bytes); }
  uint64_t for_step(std::span<const int32_t> values);
  /// Of a weight that may lie in several buffers, those in each but the last.
  int64_t part_rows(const WeightView& weight) const;
  void upload_grids();
  uint64_t rope_table(const RopeSpec& rope);
  uint64_t kv_slots(int block_size);
  /// Waits for `rows` pieces of `width` bytes that are `stride` bytes apart; dst is dense.
  void read_back(const Range& from, size_t width, size_t rows, size_t stride, void* dst);
  /// Values of f32 as blocks of shaders/dot.glsl, in memory of block_bytes(); column c is that of input
  /// order[c], unless null.
  Use quantise(const Use& x, const VulkanBuffer* order, const Range& to);
  static size_t block_bytes(int64_t rows, int64_t cols);
  /// x as fp16 of shaders/halve.comp in scratch(), and where what undoes its scale is.
  Use halve(const Tensor& x, const VulkanBuffer* order, uint64_t& undo);
  const ExpertTable& expert_table(std::span<const ExpertWeights> experts);
  /// Device memory of at least so many bytes that an operation needs while it runs; one at a time.
  Range scratch(size_t bytes);

  Context context_;
  const int64_t most_part_bytes_;
  Memory memory_;
  Pipelines pipelines_;
  Arena arenas_[2];
  Recorder recorder_;
  Range readback_, scratch_;
  Range tables_;  // grids of the IQ formats, from the first weight on

  const StepBatch* batch_ = nullptr;
  int step_ = 0;               // arena in use
  uint64_t last_use_[2] = {};  // submission after which an arena is free
  StepInputs inputs_{};
  std::vector<RopeTable> rope_tables_;  // of this step
  std::map<int, uint64_t> kv_slots_;    // of this step, by block size
  std::vector<int32_t> integers_;
  std::map<const DeviceWeight*, ExpertTable> expert_tables_;  // by the gate of the first expert
};

/// A buffer of tensors.
class VulkanBuffer final : public Buffer {
 public:
  VulkanBuffer(VulkanDevice& device, size_t bytes) : range(device.take(bytes)), device_(device) {}
  ~VulkanBuffer() override { device_.give_back(range); }
  VulkanBuffer(const VulkanBuffer&) = delete;
  VulkanBuffer& operator=(const VulkanBuffer&) = delete;
  std::byte* host() override { return nullptr; }
  size_t bytes() const override { return range.bytes; }

  const Range range;

 private:
  VulkanDevice& device_;
};

}  // namespace vllm::vulkan

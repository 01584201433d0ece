// A layer's two halves (its mixer and its MLP) as the forward pass sees them, and what they are made of.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "model/model_spec.h"

namespace vllm {

class Binder;

/// A row of values on the device: [1, n].
struct Vector {
  std::unique_ptr<Buffer> buffer;
  Tensor values;
};

/// Weights that are multiplied with the same input, their outputs side by side.
struct Linear {
  std::vector<std::unique_ptr<DeviceWeight>> weights;
  std::vector<const DeviceWeight*> pointers;
  std::unique_ptr<Vector> bias;  // null: none

  const Tensor* bias_or_null() const { return bias ? &bias->values : nullptr; }
};

/// Device memory for the intermediate values of one sublayer at a time.
class Scratch {
 public:
  /// Columns that a tensor of `cols` takes up.
  static constexpr int64_t padded(int64_t cols) { return (cols + 15) / 16 * 16; }

  void reserve(Device& device, int64_t rows, int64_t cols);
  size_t bytes() const { return buffer_ ? buffer_->bytes() : 0; }
  void reset() { used_ = 0; }
  /// A dense tensor; its content is undefined.
  Tensor take(int64_t rows, int64_t cols);

 private:
  std::unique_ptr<Buffer> buffer_;
  int64_t used_ = 0;
};

/// What a sublayer runs on.
struct StepContext {
  Device& device;
  const ModelSpec& spec;
  KvCache& cache;
  StateCache* states;  // null for models without recurrent layers
  Scratch& scratch;
};

class Sublayer {
 public:
  virtual ~Sublayer() = default;
  /// Columns of scratch for each row: the sum of Scratch::padded() of what run() takes.
  virtual int64_t scratch_cols() const = 0;
  /// out = f(in), or out += f(in). in, out: [T, hidden], the same tensor or disjoint.
  virtual void run(const StepContext& step, const Tensor& in, bool accumulate, const Tensor& out) const = 0;
  /// Of a mixture, as packed; empty for other sublayers.
  virtual std::span<const ExpertWeights> experts() const { return {}; }
};

/// `kv_layer`: the layer's index among those that have keys and values.
std::unique_ptr<Sublayer> bind_attention(Binder& binder, const ModelSpec& spec, int layer, int kv_layer);
/// A gated DeltaNet layer. `state_layer`: the layer's index among those that have recurrent state.
std::unique_ptr<Sublayer> bind_delta_net(Binder& binder, const ModelSpec& spec, int layer, int state_layer);
/// down(act(gate(x)) * up(x)).
std::unique_ptr<Sublayer> bind_dense_mlp(Binder& binder, const ModelSpec& spec, int layer);
/// The mixture of spec.experts, and its shared expert if it has one.
std::unique_ptr<Sublayer> bind_experts(Binder& binder, const ModelSpec& spec, int layer);
/// Gate, up and down of each expert of `ids` in a layer that has experts.
std::vector<std::unique_ptr<DeviceWeight>> bind_expert_weights(Binder& binder, const ModelSpec& spec,
                                                               int layer, std::span<const int> ids);

}  // namespace vllm

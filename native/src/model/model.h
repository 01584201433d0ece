// The one forward pass: a ModelSpec with its weights on a device.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "model/sublayer.h"
#include "weights/checkpoint.h"

namespace vllm {

class Model {
 public:
  /// Reads the spec for sequences of up to `wanted_length` tokens (0: the model's own) and checks every
  /// tensor; nothing is packed yet, and weight_bytes() is what will be. Throws Error(ModelLoad) naming
  /// tensors that are missing, of the wrong shape or not understood. The device must outlive the model.
  static std::unique_ptr<Model> open(const Checkpoint& checkpoint, Device& device, int wanted_length = 0);
  /// Packs every tensor of the same checkpoint on the device; to be called once, before forward().
  void pack(const Checkpoint& checkpoint);
  /// Both.
  static std::unique_ptr<Model> load(const Checkpoint& checkpoint, Device& device, int wanted_length = 0);
  ~Model();

  const ModelSpec& spec() const { return spec_; }
  std::vector<KvLayerSpec> kv_layers() const;      // of the attention layers
  std::vector<DeltaNetSpec> state_layers() const;  // of the layers with recurrent state
  /// As packed; empty for a layer that has none.
  std::span<const ExpertWeights> experts(int layer) const;
  size_t weight_bytes() const { return weight_bytes_; }
  /// Device memory of the activations of a step of `rows` rows, `logit_rows` of them with logits.
  size_t workspace_bytes(int rows, int logit_rows) const;
  size_t workspace_bytes() const;  // held now

  /// Computes a step: stores keys and values of all rows, and the logits of the rows that need them. `states`
  /// may be null only when state_layers() is empty.
  void forward(const StepBatch& batch, KvCache& cache, StateCache* states = nullptr);
  /// Of the last forward(): row i belongs to batch.logit_rows[i]; [vocab], may be overwritten until the next
  /// forward().
  std::span<float> logits(int i);
  /// Whether the host can read the logits where they are, so that largest_logits() saves nothing.
  bool logits_on_host() const;
  /// Of each row of the last forward() the `count` logits that come first in the order of RankedValue among
  /// those of ids below `vocab`: [rows][count], valid until the next call or forward().
  std::span<const RankedValue> largest_logits(int count, int vocab);

 private:
  struct Layer;
  struct Workspace;

  Model(ModelSpec spec, Device& device);
  void bind(Binder& binder);
  /// Of a step of `rows` rows.
  int rows_at_once(int rows) const;
  void reserve(int rows, int logit_rows);
  void forward_rows(const StepBatch& batch, KvCache& cache, StateCache* states, int first_logit);

  ModelSpec spec_;
  Device& device_;
  std::unique_ptr<DeviceWeight> embedding_;
  std::unique_ptr<DeviceWeight> output_;  // null when tied
  std::unique_ptr<Vector> output_norm_;
  std::vector<Layer> layers_;
  std::unique_ptr<Workspace> workspace_;
  int64_t logit_rows_ = 0;  // of the last forward()
  // Of devices whose memory the host cannot read: all logits, once asked for, and what largest_logits() gave.
  std::vector<float> host_logits_;
  bool host_logits_valid_ = false;
  std::vector<RankedValue> largest_;
  int64_t scratch_cols_ = 0;
  size_t weight_bytes_ = 0;
  size_t file_bytes_ = 0;
};

}  // namespace vllm

// Finds, checks and packs the tensors of a spec, and knows at the end which ones nobody asked for.
#pragma once
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "model/load_progress.h"
#include "model/sublayer.h"
#include "weights/checkpoint.h"

namespace vllm {

/// The name for one layer: "{}" becomes its number. Empty stays empty.
std::string layer_name(const std::string& pattern, int layer);

/// A model is bound twice with the same calls: first dry, where nothing is packed (matrices and vectors are
/// null, linears empty), what is missing or of the wrong shape is found before the long work begins, and the
/// memory is counted that the packed weights will take.
class Binder {
 public:
  struct Part {
    std::string name;  // without ".weight" or ".bias"
    int64_t rows;
    /// Row i of what is bound is row order[i] of the tensor; empty: as stored.
    std::vector<int32_t> order = {};
  };
  /// A tensor that holds `count` matrices of `rows` x `cols`; `name` is complete.
  struct Stack {
    std::string name;
    int64_t count, rows, cols;
  };

  /// `file_bytes`: what the dry run counted, for the progress that is logged; 0 in the dry run.
  Binder(const Checkpoint& checkpoint, Device& device, const ModelSpec& spec, bool dry,
         size_t file_bytes = 0);

  bool has(const std::string& name) const { return checkpoint_.find(name) != nullptr; }
  /// The values of name + ".weight", plus one where the spec says so, times `scale`. Null for an empty name.
  std::unique_ptr<Vector> norm(const std::string& name, int64_t count, float scale = 1);
  std::unique_ptr<DeviceWeight> matrix(const std::string& name, int64_t rows, int64_t cols, bool lookup_only,
                                       const std::vector<int32_t>& order = {});
  /// A matrix of one expert, as a tensor of its own. In the dry run one that is larger than a buffer of the
  /// device is refused, here and in stacked().
  std::unique_ptr<DeviceWeight> expert(const std::string& name, int64_t rows, int64_t cols);
  /// A matrix for products that must not round their inputs: F32 whatever the file has.
  std::unique_ptr<DeviceWeight> exact_matrix(const std::string& name, int64_t rows, int64_t cols);
  /// Rows [first, first + rows) of matrix `index` of a stack of experts.
  std::unique_ptr<DeviceWeight> stacked(const Stack& stack, int64_t index, int64_t first, int64_t rows);
  /// The parts stacked by rows, with the biases that exist, or all of them if `bias_needed`.
  Linear linear(const std::vector<Part>& parts, int64_t cols, bool bias_needed);

  /// Throws: the checkpoint holds the same values under two names.
  [[noreturn]] void fail_both(const std::string& one, const std::string& other) const;
  /// The values of a tensor by its whole name; false, and noted, when it is missing.
  bool decode(const std::string& name, int64_t rows, int64_t cols, std::vector<float>& out);
  /// Values on the device: [rows, .].
  std::unique_ptr<Vector> vector(const std::vector<float>& values, int64_t rows = 1);
  [[noreturn]] void fail(const std::string& name, const std::string& what) const;

  /// After the dry run: one error that lists the missing tensors, and one for tensors that no part of the
  /// model uses, since then the model computed is not the model stored.
  void check() const;
  size_t weight_bytes() const { return weight_bytes_; }  // on the device; in the dry run what they will be
  size_t file_bytes() const { return progress_.done_bytes(); }  // read of the files, or to be read

 private:
  enum class Use { Product, Lookup, Expert };

  const Weight* take(const std::string& name, int64_t rows, int64_t cols);
  std::unique_ptr<DeviceWeight> pack(const Weight& weight, const WeightView& view, Use use);
  void count(size_t bytes);
  void refuse_missing() const;
  void refuse_unused() const;

  const Checkpoint& checkpoint_;
  Device& device_;
  const ModelSpec& spec_;
  const bool dry_;
  std::set<std::string> used_;
  std::vector<std::string> missing_;
  size_t weight_bytes_ = 0;
  LoadProgress progress_;
};

}  // namespace vllm

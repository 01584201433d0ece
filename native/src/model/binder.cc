#include "model/binder.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "device/checks.h"

namespace vllm {

std::string layer_name(const std::string& pattern, int layer) {
  std::string out = pattern;
  const size_t at = out.find("{}");
  if (at != std::string::npos) out.replace(at, 2, std::to_string(layer));
  return out;
}

namespace {

/// The rows of a weight in another order.
class OrderedRows final : public RowSource {
 public:
  OrderedRows(WeightView rows, std::vector<int32_t> order)
      : rows_(std::move(rows)),
        order_(std::move(order)),
        bytes_(static_cast<size_t>(row_bytes(rows_.format, rows_.cols))) {}
  void read(int64_t first, int64_t count, uint8_t* out) const override {
    for (int64_t i = first; i < first + count; ++i, out += bytes_) {
      const auto row = static_cast<size_t>(order_[static_cast<size_t>(i)]);
      if (rows_.source) {
        rows_.source->read(static_cast<int64_t>(row), 1, out);
      } else {
        const uint8_t* const from = rows_.data + row * bytes_;
        if (rows_.format == Format::F8_E4M3) checks::fp8_codes(rows_, static_cast<int64_t>(row), 1, from);
        std::memcpy(out, from, bytes_);
      }
    }
  }
  void release(int64_t, int64_t count) const override {
    if (count != rows_.rows) return;  // neighbours lie anywhere
    if (rows_.source) {
      rows_.source->release(0, count);
    } else if (rows_.file != nullptr) {
      rows_.file->release(rows_.data, static_cast<size_t>(count) * bytes_);
    }
  }

 private:
  WeightView rows_;
  std::vector<int32_t> order_;
  size_t bytes_;
};

/// Row i is row order[i] of the file.
WeightView reordered(const Weight& weight, const std::vector<int32_t>& order) {
  WeightView view = weight.view();
  view.source = std::make_shared<OrderedRows>(view, order);
  view.data = nullptr;
  if (view.scale && view.scale->size() > 1) {
    auto scale = std::make_shared<std::vector<float>>();
    for (const int32_t row : order) scale->push_back((*view.scale)[static_cast<size_t>(row)]);
    view.scale = std::move(scale);
  }
  return view;
}

/// The rows of another source from one on.
class RowsFrom final : public RowSource {
 public:
  RowsFrom(std::shared_ptr<const RowSource> source, int64_t offset)
      : source_(std::move(source)), offset_(offset) {}
  void read(int64_t first, int64_t count, uint8_t* out) const override {
    source_->read(offset_ + first, count, out);
  }
  void release(int64_t first, int64_t count) const override { source_->release(offset_ + first, count); }

 private:
  std::shared_ptr<const RowSource> source_;
  int64_t offset_;
};

}  // namespace

Binder::Binder(const Checkpoint& checkpoint, Device& device, const ModelSpec& spec, bool dry,
               size_t file_bytes)
    : checkpoint_(checkpoint),
      device_(device),
      spec_(spec),
      dry_(dry),
      progress_(file_bytes, LoadProgress::Clock::now()) {}

std::unique_ptr<Vector> Binder::norm(const std::string& name, int64_t count, float scale) {
  std::vector<float> values;
  if (name.empty() || !decode(name + ".weight", 1, count, values)) return nullptr;
  for (float& v : values) v = scale * (spec_.norm_adds_one ? v + 1.0f : v);
  return vector(values);
}

std::unique_ptr<DeviceWeight> Binder::matrix(const std::string& name, int64_t rows, int64_t cols,
                                             bool lookup_only, const std::vector<int32_t>& order) {
  const Weight* weight = take(name + ".weight", rows, cols);
  if (weight == nullptr) return nullptr;
  return pack(*weight, order.empty() || dry_ ? weight->view() : reordered(*weight, order),
              lookup_only ? Use::Lookup : Use::Product);
}

std::unique_ptr<DeviceWeight> Binder::expert(const std::string& name, int64_t rows, int64_t cols) {
  const Weight* weight = take(name + ".weight", rows, cols);
  return weight == nullptr ? nullptr : pack(*weight, weight->view(), Use::Expert);
}

std::unique_ptr<DeviceWeight> Binder::exact_matrix(const std::string& name, int64_t rows, int64_t cols) {
  const Weight* weight = take(name + ".weight", rows, cols);
  if (weight == nullptr) return nullptr;
  WeightView view = weight->view();
  if (dry_) {
    view = WeightView{Format::F32, rows, cols, nullptr, nullptr};
  } else if (view.format != Format::F32 || weight->joined()) {
    const auto values = std::make_shared<std::vector<float>>(static_cast<size_t>(rows * cols));
    for (int64_t r = 0; r < rows; ++r) view.decode_row(r, values->data() + r * cols);
    view = {Format::F32, rows, cols, reinterpret_cast<const uint8_t*>(values->data()), values};
  }
  return pack(*weight, view, Use::Product);
}

std::unique_ptr<DeviceWeight> Binder::stacked(const Stack& stack, int64_t index, int64_t first,
                                              int64_t rows) {
  const Weight* weight = checkpoint_.find(stack.name);
  if (weight == nullptr && index + first > 0) return nullptr;  // noted for the first rows
  if (weight != nullptr && weight->shape != std::vector<int64_t>{stack.count, stack.rows, stack.cols}) {
    std::string found;
    for (const int64_t n : weight->shape)
      found += format("%s%lld", found.empty() ? "" : " x ", static_cast<long long>(n));
    fail_load("%s: the tensor %s is %s, needed is %lld x %lld x %lld", checkpoint_.path().c_str(),
              stack.name.c_str(), found.c_str(), static_cast<long long>(stack.count),
              static_cast<long long>(stack.rows), static_cast<long long>(stack.cols));
  }
  weight = take(stack.name, stack.count * stack.rows, stack.cols);
  if (weight == nullptr) return nullptr;
  WeightView view = weight->view();
  const int64_t at = index * stack.rows + first;
  if (view.source) {
    view.source = std::make_shared<RowsFrom>(view.source, at);
  } else {
    view.data += at * row_bytes(view.format, view.cols);
  }
  if (view.scale && view.scale->size() > 1)
    view.scale =
        std::make_shared<const std::vector<float>>(view.scale->begin() + at, view.scale->begin() + at + rows);
  view.rows = rows;
  return pack(*weight, view, Use::Expert);
}

std::unique_ptr<DeviceWeight> Binder::pack(const Weight& weight, const WeightView& view, Use use) {
  const bool lookup_only = use == Use::Lookup;
  // What is read of the file are as many of its rows as there are in the view.
  const size_t bytes =
      weight.bytes / static_cast<size_t>(weight.view().rows) * static_cast<size_t>(view.rows);
  if (dry_) {
    const size_t needed = device_.packed_bytes(view, lookup_only), most = device_.largest_buffer();
    if (use == Use::Expert && needed > most)
      fail_load("%s: the matrices of experts in %s need %zu bytes each, %s has at most %zu in one buffer",
                checkpoint_.path().c_str(), weight.name.c_str(), needed, device_.description().c_str(), most);
    weight_bytes_ += needed;
    count(bytes);
    return nullptr;
  }
  auto packed = device_.pack(view, lookup_only);
  // Also what the device could not let go of piece by piece.
  if (const RowSource* source = view.source ? view.source.get() : weight.source.get()) {
    source->release(0, view.rows);
  } else {
    weight.file->release(view.file != nullptr ? view.data : weight.data, bytes);
  }
  weight_bytes_ += packed->bytes;
  count(bytes);
  return packed;
}

Linear Binder::linear(const std::vector<Part>& parts, int64_t cols, bool bias_needed) {
  Linear out;
  bool any_bias = bias_needed;
  for (const Part& part : parts) {
    out.weights.push_back(matrix(part.name, part.rows, cols, false, part.order));
    out.pointers.push_back(out.weights.back().get());
    any_bias = any_bias || has(part.name + ".bias");
  }
  if (!any_bias) return out;
  std::vector<float> bias;
  for (const Part& part : parts) {
    std::vector<float> values(static_cast<size_t>(part.rows), 0.0f);
    if (bias_needed || has(part.name + ".bias")) decode(part.name + ".bias", 1, part.rows, values);
    if (!part.order.empty()) {
      const std::vector<float> stored = values;
      for (size_t i = 0; i < values.size(); ++i) values[i] = stored[static_cast<size_t>(part.order[i])];
    }
    bias.insert(bias.end(), values.begin(), values.end());
  }
  out.bias = vector(bias);
  return out;
}

void Binder::fail_both(const std::string& one, const std::string& other) const {
  fail_load("%s: the experts are there twice, in %s and in %s; needed is one of the two",
            checkpoint_.path().c_str(), one.c_str(), other.c_str());
}

void Binder::check() const {
  refuse_missing();
  refuse_unused();
}

/// Null, and noted, when it is missing.
const Weight* Binder::take(const std::string& name, int64_t rows, int64_t cols) {
  const Weight* weight = checkpoint_.find(name);
  if (weight == nullptr) {
    missing_.push_back(name);
    return nullptr;
  }
  used_.insert(weight->name);
  const WeightView view = weight->view();
  if (view.rows != rows || view.cols != cols)
    fail_load("%s: the tensor %s is %lld x %lld, needed is %lld x %lld", checkpoint_.path().c_str(),
              name.c_str(), static_cast<long long>(view.rows), static_cast<long long>(view.cols),
              static_cast<long long>(rows), static_cast<long long>(cols));
  return weight;
}

bool Binder::decode(const std::string& name, int64_t rows, int64_t cols, std::vector<float>& out) {
  const Weight* weight = take(name, rows, cols);
  if (weight == nullptr) return false;
  if (weight->joined())
    fail_load("%s: the tensor %s is quantised, needed are plain values", checkpoint_.path().c_str(),
              name.c_str());
  const FormatInfo& info = format_info(weight->format);
  if (cols % info.block_size != 0)
    fail_load("%s: the tensor %s has rows of %lld values, needed is a multiple of %d",
              checkpoint_.path().c_str(), name.c_str(), static_cast<long long>(cols), info.block_size);
  out.resize(static_cast<size_t>(rows * cols));
  info.decode(weight->data, rows * cols, out.data());
  count(weight->bytes);
  return true;
}

std::unique_ptr<Vector> Binder::vector(const std::vector<float>& values, int64_t rows) {
  weight_bytes_ += values.size() * sizeof(float);
  if (dry_) return nullptr;
  auto out = std::make_unique<Vector>();
  const auto cols = static_cast<int64_t>(values.size()) / rows;
  out->buffer = device_.allocate(values.size() * sizeof(float));
  out->values = Tensor{out->buffer.get(), 0, rows, cols, cols};
  device_.write(out->values, values.data());
  return out;
}

void Binder::fail(const std::string& name, const std::string& what) const {
  fail_load("%s: the tensor %s %s", checkpoint_.path().c_str(), name.c_str(), what.c_str());
}

void Binder::count(size_t bytes) {
  progress_.add(bytes);
  if (dry_) return;
  const std::string line = progress_.take_line(LoadProgress::Clock::now());
  if (!line.empty()) log_info("%s", line.c_str());
}

void Binder::refuse_missing() const {
  if (missing_.empty()) return;
  constexpr size_t kShown = 8;
  std::string list;
  for (size_t i = 0; i < std::min(missing_.size(), kShown); ++i) list += (i == 0 ? "" : ", ") + missing_[i];
  if (missing_.size() > kShown) list += format(" and %zu more", missing_.size() - kShown);
  fail_load("%s: %zu tensors of the %s model are missing: %s", checkpoint_.path().c_str(), missing_.size(),
            spec_.architecture.c_str(), list.c_str());
}

void Binder::refuse_unused() const {
  size_t skipped = 0;
  std::string first;
  for (const auto& [name, weight] : checkpoint_.weights()) {
    if (used_.count(name) != 0) continue;
    const bool harmless = name == "rope_freqs.weight" || name.starts_with("rope_factors_") ||
                          name.ends_with("rotary_emb.inv_freq") ||
                          (spec_.tied_embeddings && name == spec_.names.output + ".weight");
    if (harmless) continue;
    const bool other_part =
        std::any_of(spec_.ignored_prefixes.begin(), spec_.ignored_prefixes.end(),
                    [&, &tensor = name](const std::string& prefix) { return tensor.starts_with(prefix); });
    if (!other_part)
      fail_load("%s: the tensor %s belongs to no part of the %s architecture", checkpoint_.path().c_str(),
                name.c_str(), spec_.architecture.c_str());
    if (skipped++ == 0) first = name;
  }
  if (skipped > 0)
    log_info("%zu tensors of parts that are not served are skipped (%s, ...)", skipped, first.c_str());
}

}  // namespace vllm

#include "weights/gguf_checkpoint.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>

namespace vllm {
namespace {

constexpr uint64_t kMaxConfigArray = 4096;

using ull = unsigned long long;

/// "model-00002-of-00003.gguf" in its parts.
struct SplitName {
  std::string stem;  // "dir/model"
  uint64_t index = 0;
  uint64_t count = 0;

  std::string path_of(uint64_t i) const {
    return stem + format("-%05llu-of-%05llu.gguf", ull{i + 1}, ull{count});
  }
};

std::optional<SplitName> parse_split_name(const std::string& path) {
  constexpr size_t kLength = sizeof("-00001-of-00003.gguf") - 1;
  if (path.size() < kLength) return std::nullopt;
  SplitName name;
  name.stem = path.substr(0, path.size() - kLength);
  const auto number = [](std::string_view digits) {
    uint64_t value = 0;
    for (const char c : digits) {
      if (c < '0' || c > '9') return uint64_t{0};
      value = value * 10 + static_cast<uint64_t>(c - '0');
    }
    return value;
  };
  const std::string_view tail = std::string_view(path).substr(name.stem.size());
  const uint64_t one_based = number(tail.substr(1, 5));
  name.count = number(tail.substr(10, 5));
  if (one_based == 0 || one_based > name.count) return std::nullopt;
  name.index = one_based - 1;
  return name.path_of(name.index) == path ? std::optional(name) : std::nullopt;
}

/// An unsigned integer of the metadata, absent when the key is.
std::optional<uint64_t> unsigned_value(const GgufFile& part, const char* key) {
  const auto it = part.metadata.find(key);
  if (it == part.metadata.end()) return std::nullopt;
  const Json value = it->second.is_array ? Json() : to_json(it->second);
  if (!value.is_number_integer() || value < 0) {
    fail_load("%s: %s is %s, needed is an integer from 0.", part.file->path().c_str(), key,
              it->second.is_array ? "an array" : dump_json(value).substr(0, 100).c_str());
  }
  return value.get<uint64_t>();
}

void check_split_keys(const GgufFile& part, const SplitName& name) {
  const auto count = unsigned_value(part, "split.count");
  const auto index = unsigned_value(part, "split.no");
  if (count != name.count || index != name.index) {
    fail_load("%s says it is part %lld of %lld (split.no, split.count), its name says part %llu of %llu.",
              part.file->path().c_str(), index ? static_cast<long long>(*index) + 1 : 0LL,
              count ? static_cast<long long>(*count) : 0LL, ull{name.index + 1}, ull{name.count});
  }
}

}  // namespace

GgufCheckpoint::GgufCheckpoint(const std::string& path) {
  path_ = path;
  GgufFile opened = parse_gguf(MappedFile::open(path));
  const uint64_t count = unsigned_value(opened, "split.count").value_or(1);
  if (count <= 1) {
    take_metadata(opened);
    take_tensors(opened);
  } else {
    const auto name = parse_split_name(path);
    if (!name) {
      fail_load("%s is one of %llu parts of a split model, its name must end in its number, as in '%s'.",
                path.c_str(), ull{count}, SplitName{"model", 0, count}.path_of(0).c_str());
    }
    std::optional<uint64_t> total;
    for (uint64_t i = 0; i < name->count; ++i) {
      SplitName part_name = *name;
      part_name.index = i;
      const std::string part_path = name->path_of(i);
      std::error_code ignored;
      if (i != name->index && !std::filesystem::exists(part_path, ignored)) {
        fail_load("%s, part %llu of %llu of the split model, is missing.", part_path.c_str(), ull{i + 1},
                  ull{name->count});
      }
      GgufFile part = i == name->index ? std::move(opened) : parse_gguf(MappedFile::open(part_path));
      check_split_keys(part, part_name);
      if (i == 0) {
        total = unsigned_value(part, "split.tensors.count");
        take_metadata(part);
      }
      take_tensors(part);
    }
    if (total && *total != weights_.size()) {
      fail_load("%s: the parts of the split model hold %zu tensors, needed are %llu (split.tensors.count).",
                path.c_str(), weights_.size(), ull{*total});
    }
  }
  if (weights_.empty()) fail_load("%s holds no tensors, needed is a model with weights.", path.c_str());
  join_scales();
}

void GgufCheckpoint::take_metadata(GgufFile& part) {
  file_ = part.file;
  metadata_ = std::move(part.metadata);
  config_ = Json::object();
  auto& members = config_.get_ref<Json::object_t&>();
  members.reserve(metadata_.size());
  for (const auto& [key, value] : metadata_) {
    const bool small = value.type != GgufType::String && value.count <= kMaxConfigArray;
    if (!value.is_array || small) members.emplace_back(key, to_json(value));
  }
}

void GgufCheckpoint::take_tensors(GgufFile& part) {
  for (Weight& weight : part.tensors) {
    std::string name = weight.name;
    if (!weights_.emplace(name, std::move(weight)).second) {
      fail_load("%s: the tensor %s is in an earlier part of the split model, too.", part.file->path().c_str(),
                quote(name).c_str());
    }
  }
}

void GgufCheckpoint::join_scales() {
  size_t scaled_inputs = 0;
  for (auto& [name, weight] : weights_) {
    if (!name.ends_with(".weight")) continue;
    const std::string stem = name.substr(0, name.size() - std::strlen("weight"));
    if (const auto scale = weights_.find(stem + "scale"); scale != weights_.end()) {
      weight.scale = scale_of(weight, scale->second);
      weights_.erase(scale);
    }
    scaled_inputs += weights_.erase(stem + "input_scale");
  }
  if (scaled_inputs > 0)
    quantisation_ = format("quantised inputs run weight-only (%zu weights)", scaled_inputs);
}

std::shared_ptr<const std::vector<float>> GgufCheckpoint::scale_of(const Weight& weight,
                                                                   const Weight& scale) const {
  const int64_t needed = weight.shape.size() == 3 ? weight.shape[0] : 1, rows = weight.view().rows;
  const WeightView found = scale.view();
  if (found.rows != 1 || found.cols != needed || found.format != Format::F32)
    fail_load("%s: the tensor %s is %lld x %lld of %s, needed is %lld of F32, the factor of %s%s.",
              path_.c_str(), quote(scale.name).c_str(), static_cast<long long>(found.rows),
              static_cast<long long>(found.cols), format_info(found.format).name,
              static_cast<long long>(needed), weight.shape.size() == 3 ? "each matrix of " : "",
              quote(weight.name).c_str());
  auto factors = std::make_shared<std::vector<float>>(static_cast<size_t>(needed));
  found.decode_row(0, factors->data());
  for (const float factor : *factors)
    if (!std::isfinite(factor))
      fail_load("%s: the tensor %s holds %g, needed are finite numbers.", path_.c_str(),
                quote(scale.name).c_str(), static_cast<double>(factor));
  if (needed == 1) return factors;
  auto of_rows = std::make_shared<std::vector<float>>();
  for (const float factor : *factors)
    of_rows->insert(of_rows->end(), static_cast<size_t>(rows / needed), factor);
  return of_rows;
}

const GgufValue* GgufCheckpoint::find_array(std::string_view key, bool of_strings) const {
  const auto it = metadata_.find(key);
  if (it == metadata_.end()) return nullptr;
  const GgufValue& value = it->second;
  if (!value.is_array || (value.type == GgufType::String) != of_strings) {
    fail_load("%s: %s is of another type, needed is an array of %s.", path_.c_str(), quote(key).c_str(),
              of_strings ? "strings" : "numbers");
  }
  return &value;
}

std::vector<std::string_view> GgufCheckpoint::string_array(std::string_view key) const {
  const GgufValue* value = find_array(key, true);
  return value ? strings_of(*value) : std::vector<std::string_view>{};
}

std::vector<float> GgufCheckpoint::float_array(std::string_view key) const {
  const GgufValue* value = find_array(key, false);
  return value ? floats_of(*value) : std::vector<float>{};
}

std::vector<int32_t> GgufCheckpoint::int_array(std::string_view key) const {
  const GgufValue* value = find_array(key, false);
  if (!value) return {};
  auto numbers = ints_of(*value);
  if (!numbers) fail_load("%s: %s must hold integers of 32 bits.", path_.c_str(), quote(key).c_str());
  return std::move(*numbers);
}

}  // namespace vllm

#include "weights/checkpoint.h"

#define XXH_INLINE_ALL
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "weights/gguf_checkpoint.h"
#include "weights/huggingface.h"

namespace vllm {

WeightView Weight::view() const {
  WeightView out;
  out.format = format;
  out.rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) out.rows *= shape[i];
  out.cols = shape.empty() ? 1 : shape.back();
  out.data = source ? nullptr : data;
  out.source = source;
  out.scale = scale;
  out.order = order;
  out.name = name;
  out.keep_alive = file;
  out.file = file.get();
  return out;
}

std::unique_ptr<Checkpoint> Checkpoint::open(const std::string& path) {
  struct stat info;
  if (path.empty()) fail_load("The model path is empty.");
  if (::stat(path.c_str(), &info) != 0) {
    fail_load("The model %s cannot be opened: %s.", path.c_str(), std::strerror(errno));
  }
  if (S_ISDIR(info.st_mode)) return std::make_unique<HuggingFaceCheckpoint>(path);
  return std::make_unique<GgufCheckpoint>(path);
}

const Weight* Checkpoint::find(std::string_view name) const {
  if (const auto it = weights_.find(name); it != weights_.end()) return &it->second;
  if (const auto it = unsupported_.find(name); it != unsupported_.end()) {
    fail_load("%s: tensor %s has the type %s, supported are %s.", it->second.file->path().c_str(),
              quote(name).c_str(), it->second.type.c_str(), supported_formats().c_str());
  }
  if (const auto it = faults_.find(name); it != faults_.end()) fail_load("%s", it->second.c_str());
  return nullptr;
}

std::string Checkpoint::format_summary() const {
  std::vector<std::pair<size_t, const char*>> sums;
  for (const FormatInfo& format : all_formats()) sums.emplace_back(0, format.name);
  for (const auto& [name, weight] : weights_) sums[static_cast<size_t>(weight.format)].first += weight.bytes;
  std::stable_sort(sums.begin(), sums.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string out;
  for (const auto& [bytes, name] : sums) {
    if (bytes == 0) break;
    if (!out.empty()) out += ", ";
    out += format("%s %.1f MB", name, static_cast<double>(bytes) / 1e6);
  }
  if (!quantisation_.empty()) out += "; " + quantisation_;
  return out;
}

std::string Checkpoint::fingerprint() const {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  const auto add = [&state](uint64_t value) { XXH3_64bits_update(&state, &value, sizeof value); };
  for (const auto& [name, weight] : weights_) {
    add(name.size());
    XXH3_64bits_update(&state, name.data(), name.size());
    add(static_cast<uint64_t>(weight.format));
    add(weight.shape.size());
    for (const int64_t size : weight.shape) add(static_cast<uint64_t>(size));
    add(static_cast<uint64_t>(weight.data - weight.file->data()));
  }
  return format("%016llx", static_cast<unsigned long long>(XXH3_64bits_digest(&state)));
}

std::string supported_formats() {
  std::string out;
  for (const FormatInfo& info : all_formats()) {
    if (info.ggml_type < 0) continue;  // part of a quantised weight
    if (!out.empty()) out += ", ";
    out += info.name;
  }
  return out;
}

}  // namespace vllm

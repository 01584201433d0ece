#include "weights/huggingface.h"

#include <algorithm>
#include <filesystem>

#include "weights/safetensors.h"

namespace vllm {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexName = "model.safetensors.index.json";

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// File names of the directory with this ending, sorted.
std::vector<std::string> names_ending_in(const std::string& directory, std::string_view ending) {
  std::vector<std::string> out;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    if (name.ends_with(ending)) out.push_back(std::move(name));
  }
  std::sort(out.begin(), out.end());
  return out;
}

/// "'a', 'b', 'c' and 7 more"
std::string list(const std::vector<std::string>& names) {
  constexpr size_t kShown = 8;
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) out += (i ? ", " : "") + quote(names[i]);
  if (names.size() > kShown) out += format(" and %zu more", names.size() - kShown);
  return out;
}

/// `inner` laid over `outer`; some keys of the outer object go before those of the inner.
Json merged(Json outer, Json inner) {
  static constexpr std::string_view kOuter[] = {"quantization_config", "tie_word_embeddings",
                                                "architectures"};
  auto& members = outer.get_ref<Json::object_t&>();
  std::map<std::string_view, size_t> known;
  for (size_t i = 0; i < members.size(); ++i) known.emplace(members.begin()[i].first, i);
  Json::object_t added;
  for (auto& [key, value] : inner.get_ref<Json::object_t&>()) {
    const auto it = known.find(key);
    if (it == known.end()) {
      added.emplace_back(key, std::move(value));
    } else {
      Json& old = members.begin()[it->second].second;
      if (old.is_null() || std::ranges::find(kOuter, key) == std::end(kOuter)) old = std::move(value);
    }
  }
  for (auto& [key, value] : added) members.emplace_back(key, std::move(value));
  return outer;
}

}  // namespace

HuggingFaceCheckpoint::HuggingFaceCheckpoint(const std::string& path) {
  path_ = path;
  while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
  read_config();
  read_weights();
  join_quantised();
  if (weights_.empty() && unsupported_.empty()) {
    fail_load("%s holds no tensors, needed is a model with weights.", path_.c_str());
  }
}

void HuggingFaceCheckpoint::read_config() {
  const std::string config_path = path_ + "/config.json";
  if (!exists(config_path)) {
    const auto ggufs = names_ending_in(path_, ".gguf");
    const std::string hint = ggufs.empty() ? "" : "; it holds " + list(ggufs) + ", name that file instead";
    fail_load("%s has no config.json, needed is a Hugging Face model directory or a GGUF file%s.",
              path_.c_str(), hint.c_str());
  }
  config_ = parse_json(read_text_file(config_path, size_t{1} << 25), config_path.c_str(), Status::ModelLoad);
  if (!config_.is_object()) fail_load("%s is no JSON object.", config_path.c_str());
  const auto it = config_.find("text_config");
  if (it == config_.end() || it->is_null()) return;
  if (!it->is_object()) {
    fail_load("%s: text_config is %s, needed is an object.", config_path.c_str(),
              quote(dump_json(*it)).c_str());
  }
  Json inner = std::move(*it);
  config_.erase("text_config");
  config_ = merged(std::move(config_), std::move(inner));
}

void HuggingFaceCheckpoint::read_weights() {
  const auto files = names_ending_in(path_, ".safetensors");
  std::string single;
  if (std::ranges::find(files, "model.safetensors") != files.end()) {
    single = "model.safetensors";
  } else if (exists(path_ + "/" + kIndexName)) {
    read_shards(path_ + "/" + kIndexName);
    return;
  } else if (files.size() == 1) {
    single = files[0];
  } else if (files.empty()) {
    const auto others = names_ending_in(path_, ".bin");
    const std::string hint = others.empty() ? "" : "; " + list(others) + " cannot be read";
    fail_load("%s holds no weights, needed are .safetensors files%s.", path_.c_str(), hint.c_str());
  } else {
    fail_load("%s holds several weight files (%s) and no %s that says which belong to the model.",
              path_.c_str(), list(files).c_str(), kIndexName);
  }
  SafetensorsFile file = parse_safetensors(MappedFile::open(path_ + "/" + single));
  weights_ = std::move(file.weights);
  unsupported_ = std::move(file.unsupported);
}

void HuggingFaceCheckpoint::read_shards(const std::string& index_path) {
  const Json index = parse_json(read_text_file(index_path), index_path.c_str(), Status::ModelLoad, 16);
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object()) {
    fail_load("%s has no weight_map, needed is an object of tensor and file names.", index_path.c_str());
  }
  std::map<std::string, std::vector<std::string>> wanted;  // shard to its tensors
  for (const auto& [tensor, shard] : map->get_ref<const Json::object_t&>()) {
    const std::string name = shard.is_string() ? shard.get<std::string>() : "";
    if (name.empty() || name == "." || name == ".." ||
        name.find_first_of(std::string_view("/\\\0", 3)) != name.npos) {
      fail_load("%s: the file of tensor %s is %s, needed is a plain file name.", index_path.c_str(),
                quote(tensor).c_str(), quote(dump_json(shard)).c_str());
    }
    wanted[name].push_back(tensor);
  }

  std::vector<std::string> absent;
  for (const auto& [shard, tensors] : wanted) {
    if (!exists(path_ + "/" + shard)) absent.push_back(shard);
  }
  if (!absent.empty()) {
    fail_load("%s names weight files that are missing: %s.", index_path.c_str(), list(absent).c_str());
  }
  for (const auto& [shard, tensors] : wanted) {
    SafetensorsFile file = parse_safetensors(MappedFile::open(path_ + "/" + shard));
    for (const std::string& tensor : tensors) {
      if (auto node = file.weights.extract(tensor)) {
        weights_.insert(std::move(node));
      } else if (auto other = file.unsupported.extract(tensor)) {
        unsupported_.insert(std::move(other));
      } else {
        absent.push_back(tensor);
      }
    }
    if (!absent.empty()) {
      fail_load("%s lacks tensors that %s places there: %s.", (path_ + "/" + shard).c_str(), kIndexName,
                list(absent).c_str());
    }
  }
}

}  // namespace vllm

#include "engine/documents.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/json.h"

namespace vllm {
namespace {

/// One object of a document, with its place ("offload_config.uva") for messages.
class Section {
 public:
  Section(const Json& object, std::string place) : object_(object), place_(std::move(place)) {
    if (!object.is_object()) fail_argument("%s is no object, needed is a JSON object", place_.c_str());
  }

  /// Refuses keys that are not in the list.
  void only(std::initializer_list<const char*> known) const {
    for (const auto& [key, value] : object_.items()) {
      if (std::any_of(known.begin(), known.end(), [&](const char* k) { return key == k; })) continue;
      std::string list;
      for (const char* k : known) list += (list.empty() ? "" : ", ") + std::string(k);
      fail_argument("%s has the key %s, known are %s", place_.c_str(), quote(key).c_str(), list.c_str());
    }
  }

  const Json* find(const char* key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }

  void one_of(const char* key, std::initializer_list<const char*> values) const {
    const Json* value = find(key);
    if (value == nullptr) return;
    std::string list;
    for (const char* v : values) {
      if (value->is_string() && value->get_ref<const std::string&>() == v) return;
      list += (list.empty() ? "" : ", ") + std::string(v);
    }
    fail_argument("%s.%s is %s, needed is one of %s", place_.c_str(), key, dump_json(*value).c_str(),
                  list.c_str());
  }

  /// The integer at `key`, at least `min`; `fallback` when absent.
  int64_t integer(const char* key, int64_t min, int64_t fallback) const {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_number_integer() || value->get<int64_t>() < min)
      fail_argument("%s.%s is %s, needed is an integer of at least %lld", place_.c_str(), key,
                    dump_json(*value).c_str(), static_cast<long long>(min));
    return value->get<int64_t>();
  }

  double number(const char* key, double fallback) const {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_number() || value->get<double>() < 0)
      fail_argument("%s.%s is %s, needed is a number of at least 0", place_.c_str(), key,
                    dump_json(*value).c_str());
    return value->get<double>();
  }

  std::string text(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return {};
    if (!value->is_string())
      fail_argument("%s.%s is %s, needed is a string", place_.c_str(), key, dump_json(*value).c_str());
    return value->get<std::string>();
  }

  void boolean(const char* key) const {
    const Json* value = find(key);
    if (value != nullptr && !value->is_boolean())
      fail_argument("%s.%s is %s, needed is true or false", place_.c_str(), key, dump_json(*value).c_str());
  }

  void names(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return;
    const bool good = value->is_array() &&
                      std::all_of(value->begin(), value->end(), [](const Json& v) { return v.is_string(); });
    if (!good)
      fail_argument("%s.%s is %s, needed is an array of strings", place_.c_str(), key,
                    dump_json(*value).c_str());
  }

  template <typename Body>
  void section(const char* key, Body&& body) const {
    if (const Json* value = find(key)) body(Section(*value, place_ + "." + key));
  }

  const Json& object() const { return object_; }
  const std::string& place() const { return place_; }

 private:
  const Json& object_;
  std::string place_;
};

Json parse(std::string_view text, const char* name) {
  return parse_json(text, name, Status::InvalidArgument, 32);
}

}  // namespace

bool check_speculative_config(std::string_view text) {
  if (text.empty()) return false;
  const Json document = parse(text, "speculative_config");
  const Section s(document, "speculative_config");
  if (s.find("method") == nullptr) fail_argument("speculative_config has no method");
  s.one_of("method", {"mtp", "dflash", "ngram", "draft_model", "dspark"});
  s.only({"method", "num_speculative_tokens", "model", "prompt_lookup_min", "prompt_lookup_max",
          "draft_sample_method", "rejection_sample_method"});
  const std::string method = s.text("method");
  if ((method == "ngram" || method == "draft_model") && s.find("num_speculative_tokens") == nullptr)
    fail_argument("speculative_config of method %s has no num_speculative_tokens", method.c_str());
  s.integer("num_speculative_tokens", 1, 0);
  if ((method == "dflash" || method == "dspark" || method == "draft_model") && s.text("model").empty())
    fail_argument("speculative_config of method %s has no model", method.c_str());
  s.text("model");
  const int64_t min = s.integer("prompt_lookup_min", 1, 5), max = s.integer("prompt_lookup_max", 1, 5);
  if (method == "ngram" && min > max)
    fail_argument("speculative_config.prompt_lookup_min is %lld, needed is at most prompt_lookup_max (%lld)",
                  static_cast<long long>(min), static_cast<long long>(max));
  s.one_of("draft_sample_method", {"greedy"});
  s.one_of("rejection_sample_method", {"standard"});
  return true;
}

bool check_kv_transfer_config(std::string_view text) {
  if (text.empty()) return false;
  const Json document = parse(text, "kv_transfer_config");
  const Section s(document, "kv_transfer_config");
  s.only({"kv_connector", "kv_role", "engine_id", "kv_load_failure_policy", "kv_connector_extra_config"});
  s.one_of("kv_connector", {"LMCacheConnector"});
  s.one_of("kv_role", {"kv_producer", "kv_consumer", "kv_both"});
  if (s.find("kv_connector") != nullptr && s.find("kv_role") == nullptr)
    fail_argument("kv_transfer_config has a kv_connector and no kv_role");
  s.text("engine_id");
  s.one_of("kv_load_failure_policy", {"fail", "recompute"});
  s.section("kv_connector_extra_config", [](const Section& extra) {
    for (const auto& [key, value] : extra.object().items())
      if (value.is_structured() || value.is_null())
        fail_argument("%s.%s is %s, needed is a string, number or boolean", extra.place().c_str(),
                      key.c_str(), dump_json(value).c_str());
  });
  return s.find("kv_connector") != nullptr;
}

bool check_offload_config(std::string_view text) {
  if (text.empty()) return false;
  const Json document = parse(text, "offload_config");
  const Section s(document, "offload_config");
  s.only({"offload_backend", "uva", "prefetch", "vllm_cpp"});
  s.one_of("offload_backend", {"auto", "uva", "prefetch"});
  double offloaded_gb = 0;
  int64_t group = 0;
  s.section("uva", [&](const Section& uva) {
    uva.only({"cpu_offload_gb", "cpu_offload_params"});
    offloaded_gb = uva.number("cpu_offload_gb", 0);
    uva.names("cpu_offload_params");
  });
  const std::string backend = s.text("offload_backend");
  s.section("prefetch", [&](const Section& prefetch) {
    prefetch.only({"offload_group_size", "offload_num_in_group", "offload_prefetch_step", "offload_params"});
    group = prefetch.integer("offload_group_size", 0, 0);
    const int64_t in_group = prefetch.integer("offload_num_in_group", 1, 1);
    const int64_t step = prefetch.integer("offload_prefetch_step", 0, 1);
    prefetch.names("offload_params");
    if (backend != "prefetch" && group == 0) return;
    if (in_group > group)
      fail_argument("offload_config.prefetch.offload_num_in_group is above offload_group_size");
    if (step < 1) fail_argument("offload_config.prefetch.offload_prefetch_step is 0, needed is at least 1");
  });
  bool streamed = false;
  s.section("vllm_cpp", [&](const Section& own) {
    own.only({"mmap", "expert_stream", "device_fit"});
    own.section("mmap", [](const Section& mmap) {
      mmap.only({"enabled", "prefault"});
      mmap.boolean("enabled");
      mmap.boolean("prefault");
    });
    own.section("expert_stream", [&](const Section& stream) {
      stream.only({"enabled", "slots", "slot_bytes"});
      stream.boolean("enabled");
      stream.integer("slots", 1, 1);
      stream.integer("slot_bytes", 1, 1);
      streamed = stream.find("enabled") != nullptr && stream.find("enabled")->get<bool>();
    });
    own.section("device_fit", [](const Section& fit) {
      fit.only({"weight_budget_bytes"});
      fit.integer("weight_budget_bytes", 0, 0);
    });
  });
  return offloaded_gb > 0 || group > 0 || streamed;
}

bool check_limit_mm_per_prompt(std::string_view text) {
  if (text.empty()) return false;
  const Json document = parse(text, "limit_mm_per_prompt");
  const Section s(document, "limit_mm_per_prompt");
  for (const auto& [modality, value] : s.object().items()) {
    if (!value.is_object()) {
      s.integer(modality.c_str(), 0, 0);
      continue;
    }
    const Section options(value, "limit_mm_per_prompt." + modality);
    options.integer("count", 0, 999);
    if (modality == "video") options.only({"count", "num_frames", "width", "height"});
    if (modality == "image") options.only({"count", "width", "height"});
    if (modality == "audio") options.only({"count", "length"});
    for (const char* size : {"num_frames", "width", "height", "length"}) options.integer(size, 1, 1);
  }
  return true;
}

}  // namespace vllm

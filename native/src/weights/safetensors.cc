#include "weights/safetensors.h"

#include <algorithm>
#include <cstring>

namespace vllm {
namespace {

// The limit of the reference implementation.
constexpr uint64_t kMaxHeader = 100'000'000;
// The table, one tensor's entry, its shape.
constexpr int kHeaderDepth = 3;

using ull = unsigned long long;

struct Dtype {
  const char* name;
  int bits;
};

constexpr Dtype kDtypes[] = {
    {"F64", 64},    {"F32", 32},        {"F16", 16},        {"BF16", 16},   {"F8_E4M3", 8}, {"F8_E5M2", 8},
    {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},
    {"I64", 64},    {"I32", 32},        {"I16", 16},        {"I8", 8},      {"U64", 64},    {"U32", 32},
    {"U16", 16},    {"U8", 8},          {"BOOL", 8},        {"C64", 64}};

const Dtype* find_dtype(std::string_view name) {
  for (const Dtype& dtype : kDtypes) {
    if (name == dtype.name) return &dtype;
  }
  return nullptr;
}

/// One entry of the header, checked by itself.
struct Entry {
  const Dtype* dtype = nullptr;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // from the start of the data
  uint64_t end = 0;
};

const Json& member(const Json& entry, const char* key) {
  static const Json absent;
  const auto it = entry.find(key);
  return it == entry.end() ? absent : *it;
}

std::string short_dump(const Json& value) { return quote(dump_json(value)); }

/// `where` is "FILE: tensor 'NAME'".
Entry parse_entry(const Json& json, const std::string& where) {
  const char* at = where.c_str();
  if (!json.is_object()) fail_load("%s is %s, needed is an object.", at, short_dump(json).c_str());
  Entry entry;
  const Json& dtype = member(json, "dtype");
  if (dtype.is_string()) entry.dtype = find_dtype(dtype.get_ref<const std::string&>());
  if (!entry.dtype) fail_load("%s has the unknown dtype %s.", at, short_dump(dtype).c_str());

  const Json& shape = member(json, "shape");
  if (!shape.is_array()) fail_load("%s has the shape %s, needed is an array.", at, short_dump(shape).c_str());
  uint64_t bits = static_cast<uint64_t>(entry.dtype->bits);
  bool overflow = false;
  bool empty = false;
  for (const Json& size : shape) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > INT64_MAX) {
      fail_load("%s has the shape %s, needed are integers from 0.", at, short_dump(shape).c_str());
    }
    const uint64_t value = size.get<uint64_t>();
    empty = empty || value == 0;
    overflow = overflow || __builtin_mul_overflow(bits, value, &bits);
    entry.shape.push_back(static_cast<int64_t>(value));
  }
  if (empty) bits = 0, overflow = false;
  if (overflow)
    fail_load("%s has the shape %s, more bits than 64 bits can count.", at, short_dump(shape).c_str());

  const Json& offsets = member(json, "data_offsets");
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    fail_load("%s has the data_offsets %s, needed are two integers.", at, short_dump(offsets).c_str());
  }
  entry.begin = offsets[0].get<uint64_t>();
  entry.end = offsets[1].get<uint64_t>();
  if (entry.begin > entry.end)
    fail_load("%s has the reversed data_offsets %s.", at, short_dump(offsets).c_str());
  if (bits % 8 != 0 || entry.end - entry.begin != bits / 8) {
    fail_load("%s has %llu bytes by its data_offsets, its shape %s of %s needs %llu.", at,
              ull{entry.end - entry.begin}, short_dump(shape).c_str(), entry.dtype->name,
              ull{(bits + 7) / 8});
  }
  return entry;
}

void refuse_overlap(const std::string& path, const std::vector<std::pair<std::string, Entry>>& entries) {
  std::vector<const std::pair<std::string, Entry>*> sorted;
  for (const auto& entry : entries) {
    if (entry.second.begin < entry.second.end) sorted.push_back(&entry);
  }
  std::sort(sorted.begin(), sorted.end(), [](auto* a, auto* b) { return a->second.begin < b->second.begin; });
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i - 1]->second.end > sorted[i]->second.begin) {
      fail_load("%s: the tensors %s and %s overlap.", path.c_str(), quote(sorted[i - 1]->first).c_str(),
                quote(sorted[i]->first).c_str());
    }
  }
}

}  // namespace

SafetensorsFile parse_safetensors(const std::shared_ptr<MappedFile>& file) {
  const std::string& path = file->path();
  uint64_t header_bytes = 0;
  if (file->size() < sizeof header_bytes) {
    fail_load("%s has %zu bytes, a safetensors file needs at least 10.", path.c_str(), file->size());
  }
  std::memcpy(&header_bytes, file->data(), sizeof header_bytes);
  const uint64_t left = file->size() - sizeof header_bytes;
  if (header_bytes > kMaxHeader) {
    fail_load("%s is no safetensors file: its header would have %llu bytes, allowed are %llu.", path.c_str(),
              ull{header_bytes}, ull{kMaxHeader});
  }
  if (header_bytes > left) {
    fail_load("%s has %zu bytes, its header needs %llu.", path.c_str(), file->size(),
              ull{header_bytes + sizeof header_bytes});
  }
  const std::string_view text(reinterpret_cast<const char*>(file->data()) + sizeof header_bytes,
                              header_bytes);
  const std::string what = "The header of " + path;
  Json header = parse_json(text, what.c_str(), Status::ModelLoad, kHeaderDepth);
  if (!header.is_object()) fail_load("%s is no JSON object.", what.c_str());

  std::vector<std::pair<std::string, Entry>> entries;
  uint64_t needed = 0;
  for (const auto& [name, json] : header.get_ref<const Json::object_t&>()) {
    if (name == "__metadata__") continue;
    entries.emplace_back(name, parse_entry(json, path + ": tensor " + quote(name)));
    needed = std::max(needed, entries.back().second.end);
  }
  header = nullptr;
  const uint64_t data_start = sizeof header_bytes + header_bytes;
  if (needed > file->size() - data_start) {
    const bool countable = needed <= UINT64_MAX - data_start;
    fail_load("%s has %zu bytes, its tensor table needs %llu.", path.c_str(), file->size(),
              ull{countable ? needed + data_start : UINT64_MAX});
  }
  refuse_overlap(path, entries);

  SafetensorsFile out;
  for (auto& [name, entry] : entries) {
    const FormatInfo* format = find_format(entry.dtype->name);
    if (!format) {
      out.unsupported[name] = {entry.dtype->name, file, std::move(entry.shape),
                               file->data() + data_start + entry.begin,
                               static_cast<size_t>(entry.end - entry.begin)};
      continue;
    }
    Weight weight;
    weight.name = name;
    weight.format = format->format;
    weight.shape = std::move(entry.shape);
    weight.data = file->data() + data_start + entry.begin;
    weight.bytes = static_cast<size_t>(entry.end - entry.begin);
    weight.file = file;
    out.weights.emplace(name, std::move(weight));
  }
  return out;
}

}  // namespace vllm
